#include "csd_model/firmware/kv_flushes.h"

namespace csdsim::csd_model {

KvFlushes::KvFlushes(ftl::KvFtl& ftl, const FlashGeometry& geometry, const ftl::FirmwareTimes& times, FlashIo& flash,
                     MapLookups& map_lookups, WriteBuffer& write_buffer, Done settled)
    : ftl_(ftl),
      geometry_(geometry),
      times_(times),
      flash_(flash),
      map_lookups_(map_lookups),
      write_buffer_(write_buffer),
      settled_(std::move(settled)) {}

Bytes KvFlushes::program_bytes(const ftl::FlushJob& job) {
  Bytes sum;
  for (const PageOp& op : job.programs) sum += Bytes{op.channel_bytes};
  return sum;
}

void KvFlushes::start(std::vector<ftl::FlushJob> jobs, Done done) {
  if (jobs.empty()) return done();
  const auto left = std::make_shared<std::size_t>(jobs.size());
  const auto shared_done = std::make_shared<Done>([left, done = std::move(done)] {
    if (--*left == 0) done();
  });
  for (ftl::FlushJob& each : jobs) {
    ++flushes_;
    const std::uint64_t number = write_buffer_.enter(program_bytes(each));
    const auto job = std::make_shared<ftl::FlushJob>(std::move(each));
    map_lookups_.spend(times_.of(*job), [this, job, number, shared_done] { start_one(job, number, shared_done); });
  }
}

void KvFlushes::start_one(const JobPtr& job, std::uint64_t number, const DonePtr& done) {
  if (job->reads.empty()) return program(job, number, done);
  flash_.submit(job->reads, [this, job, number, done] { program(job, number, done); });
}

void KvFlushes::program(const JobPtr& job, std::uint64_t number, const DonePtr& done) {
  if (ledger_ != nullptr)
    for (const PageOp& op : job->programs) tell_given(op, op.ppa.value);
  flash_.submit(job->programs, [this, job, number, done] {
    if (ledger_ != nullptr)
      for (const PageOp& op : job->programs) ledger_->done(op.kind, op.ppa.value);
    --flushes_;
    write_buffer_.leave(number, program_bytes(*job));
    erase(ftl_.flush_done(job->id));
    (*done)();
    settled_();
  });
}

void KvFlushes::erase(const std::vector<PageOp>& erases) {
  erases_ += erases.size();
  for (const PageOp& erase : erases) {
    const std::uint64_t block = geometry_.block_of(erase.ppa).value;
    if (ledger_ != nullptr) {
      ledger_->planned(PageOpKind::erase, block, 1, ftl::Namespace::kv);
      tell_given(erase, block);
    }
    flash_.submit({&erase, 1}, [this, ppa = erase.ppa, block] {
      if (ledger_ != nullptr) ledger_->done(PageOpKind::erase, block);
      --erases_;
      ftl_.erase_done(ppa);
      if (erased_) erased_(ppa);
      settled_();
    });
  }
}

void KvFlushes::plan(const std::vector<ftl::FlushJob>& jobs) {
  if (ledger_ == nullptr) return;
  for (const ftl::FlushJob& job : jobs)
    for (const PageOp& op : job.programs) ledger_->planned(PageOpKind::program, op.ppa.value, 1, ftl::Namespace::kv);
}

void KvFlushes::resume(ftl::RecoveryResult recovery) {
  start(std::move(recovery.jobs), [] {});
  erase(recovery.erases);
}

void KvFlushes::tell_given(const PageOp& op, std::uint64_t place) {
  const std::pair<std::uint32_t, OpClass> part{geometry_.plane_of(op.ppa).value, op.op_class};
  ledger_->given(op.kind, place, {&part, 1});
}

}  // namespace csdsim::csd_model
