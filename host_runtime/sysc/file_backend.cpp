#include "host_runtime/sysc/file_backend.h"

#include <fmt/format.h>

#include "base/error.h"
#include "simulation/sim_time.h"

namespace csdsim::host {

FileBackend::FileBackend(DriveCommands& commands, const std::vector<FileTable>& files, const FileIoConfig& config,
                         OperationData* data)
    : commands_(commands), files_(files), config_(config), data_(data) {
  if (config.threads == 0) throw UserError("file: threads is 0, must be at least 1");
}

std::optional<SimTime> FileBackend::start(const Operation& op, SimTime now) {
  const auto* work = std::get_if<FileWork>(&op.work);
  const auto refuse = [&](std::string_view why) {
    throw InternalError(fmt::format("{} of {}: {}", operation_name(op.kind, op.tag), resource_name(op.resource), why));
  };
  const bool known = op.kind == OpKind::read_file || op.kind == OpKind::write_file;
  if (op.resource.kind != ResourceKind::file || work == nullptr || !known) refuse("no work of a file");
  if (op.resource.index >= files_.size()) refuse("no files there");
  if (config_.copy_bandwidth.bytes_per_second > 0 && work->memory == BufferMemory::gpu)
    refuse("threads copy to and from host memory only");
  const auto running = commands_.begin(op, now);
  for (const FileIo& io : files_[op.resource.index].cut(op, config_.io_size)) {
    commands_.hold(running);
    waiting_.push_back({&op, running, io});
  }
  start_ios();
  commands_.end_command(running);
  return std::nullopt;
}

SimTime FileBackend::copy_time(const FileIo& io) const {
  return config_.copy_bandwidth.bytes_per_second == 0 ? SimTime{} : transfer_time(io.size, config_.copy_bandwidth);
}

void FileBackend::start_ios() {
  while (busy_ < config_.threads && !waiting_.empty()) {
    ++busy_;
    const auto a = std::make_shared<Active>(Active{std::move(waiting_.front()), {}});
    waiting_.pop_front();
    const Bytes block = files_[a->op->resource.index].block();
    const bool direct = config_.copy_bandwidth.bytes_per_second == 0;
    a->buffer = commands_.allocate(direct ? std::get<FileWork>(a->op->work).memory : BufferMemory::host,
                                   block * a->io.extent.blocks);
    ++totals_.ios;
    totals_.wanted += a->io.size;
    totals_.transferred += a->buffer.segment.length;
    if (!direct) totals_.copied += a->io.size;
    if (writes(*a) && data_ != nullptr)
      data_->load_file(*a->op, a->io.range, a->io.at, {a->buffer.bytes, a->io.size.value});
    spend(config_.io_overhead + (writes(*a) ? copy_time(a->io) : SimTime{}), [this, a] { ask_drive(a); });
  }
}

void FileBackend::ask_drive(const ActivePtr& a) {
  commands_.submit_blocks(a->running, writes(*a) ? nvme::nvm_opcode::write : nvme::nvm_opcode::read, a->io.extent,
                          a->buffer.segment, operation_name(a->op->kind, a->op->tag), [this, a] { arrived(a); });
}

void FileBackend::arrived(const ActivePtr& a) {
  if (writes(*a)) return end(a);
  spend(copy_time(a->io), [this, a] { end(a); });
}

void FileBackend::end(const ActivePtr& a) {
  if (!writes(*a) && data_ != nullptr)
    data_->store_file(*a->op, a->io.range, a->io.at, {a->buffer.bytes + a->io.skip.value, a->io.size.value});
  commands_.release(a->buffer);
  --busy_;
  start_ios();
  commands_.end_command(a->running);
}

void FileBackend::spend(SimTime duration, Callback<void()> then) {
  if (duration == SimTime{}) return then();
  totals_.thread_time += duration;
  due_.emplace(std::pair(sim_time_now() + duration, next_due_++), std::move(then));
  alarm_.set(due_.begin()->first.first);
}

void FileBackend::on_due() {
  while (!due_.empty() && due_.begin()->first.first <= sim_time_now()) {
    const auto then = std::move(due_.extract(due_.begin()).mapped());
    then();
  }
  if (!due_.empty()) alarm_.set(due_.begin()->first.first);
}

}  // namespace csdsim::host
