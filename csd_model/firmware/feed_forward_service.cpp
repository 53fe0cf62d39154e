#include "csd_model/firmware/feed_forward_service.h"

#include <algorithm>
#include <utility>

#include "base/fp16.h"

namespace csdsim::csd_model {

using nvme::Command;
using nvme::NeuronRun;
namespace status = nvme::status;

namespace {

engine::FeedForwardShape shape_of(const nvme::FeedForward& op) {
  return {
      .tokens = op.tokens,
      .width = op.width,
      .activation = op.activation == nvme::NeuronActivation::silu ? engine::Activation::silu : engine::Activation::relu,
      .gated = op.gated(),
      .threshold = op.threshold};
}

}  // namespace

struct FeedForwardService::Job {
  Command* command = nullptr;
  nvme::FeedForward op;
  nvme::FeedForwardLayout layout;
  std::vector<NeuronRun> runs;
  DramBuffer inputs;  ///< sections bias and x; empty in timing runs
  DramBuffer out;     ///< section y; empty in timing runs
  std::uint32_t transfers = 0;
  Status transferred = status::success;  ///< the first error
  std::unique_ptr<RecordPages> pages;
  std::vector<Half> rows;          ///< [neuron][matrix][width]; empty in timing runs
  std::vector<ftl::Phase> mapped;  ///< [read] with a cached map: the page read, planned ahead
  ftl::IoStatus planned = ftl::IoStatus::ok;
  engine::NeuronJob of_engine;
};

FeedForwardService::FeedForwardService(const FeedForwardServiceConfig& config, ftl::BlockFtl& ftl, BlockService& blocks,
                                       EngineIo& engine, MapLookups& lookups, ControllerDram& dram, DramPort& port)
    : config_(config), ftl_(ftl), blocks_(blocks), engine_(engine), lookups_(lookups), dram_(dram), port_(port) {}

FeedForwardService::~FeedForwardService() = default;

void FeedForwardService::feed_forward(Command& command, const nvme::FeedForward& op) {
  blocks_.note_command();
  const auto job = std::make_shared<Job>();
  job->command = &command;
  job->op = op;
  job->layout = nvme::feed_forward_layout(op);
  job->runs.resize(op.runs);
  fetch_inputs(job);
}

/// The list moves in timing runs as well: it says what is read.
void FeedForwardService::fetch_inputs(const JobPtr& job) {
  const auto arrived = [this, job](Status s) {
    if (job->transferred.ok()) job->transferred = s;
    if (--job->transfers > 0) return;
    if (!job->transferred.ok()) return job->command->complete(job->transferred);
    port_.move(DramTraffic::host_data, job->layout.y, [this, job] { inputs_arrived(job); });
  };
  job->transfers = 2;
  job->command->read_host(Bytes{0}, std::as_writable_bytes(std::span(job->runs)), arrived);
  const Bytes size = job->layout.y - job->layout.bias;
  if (!config_.carried) return job->command->read_host_timing(job->layout.bias, size, arrived);
  job->inputs = dram_.allocate(size);
  job->command->read_host(job->layout.bias, job->inputs.bytes(), arrived);
}

nvme::Status FeedForwardService::validate(const Job& job) const {
  const std::uint64_t capacity = ftl_.capacity().value, row = job.op.row().value;
  std::uint64_t neurons = 0;
  for (const NeuronRun& run : job.runs) {
    if (run.count == 0 || (!job.op.gated() && run.gate != 0)) return status::invalid_field;
    if (((run.up | run.gate | run.down | run.stride) & 1) != 0) return status::invalid_field;
    neurons += run.count;
    // At most 2^64 - 2^33 + 1, so the product does not overflow; the sums are compared without adding.
    const std::uint64_t span = (std::uint64_t{run.count} - 1) * run.stride;
    for (const std::uint64_t address : {run.up, run.gate, run.down})
      if (row > capacity || span > capacity - row || address > capacity - row - span) return status::lba_out_of_range;
  }
  return neurons == job.op.neurons ? status::success : status::invalid_field;
}

void FeedForwardService::inputs_arrived(const JobPtr& job) {
  if (const Status s = validate(*job); !s.ok()) return job->command->complete(s);
  job->pages = std::make_unique<RecordPages>(job->op, job->runs, config_.page_size, config_.carried);
  if (config_.carried) job->rows.resize(job->op.neurons * shape_of(job->op).row_elements());
  if (!ftl_.map_is_cached()) return read_buffered(job);
  // Map entries that are not cached are read from flash first, in the phases before that of the page itself.
  ftl::IoPlan map;
  job->mapped.resize(job->pages->reads().size());
  for (std::uint32_t index = 0; index < job->mapped.size(); ++index) {
    const RecordPage& read = job->pages->reads()[index];
    page_.resize(config_.carried ? read.end - read.begin : 0);
    ftl::IoPlan plan =
        ftl_.read(config_.page_size * read.page + Bytes{read.begin}, Bytes{read.end - read.begin}, page_);
    if (plan.status != ftl::IoStatus::ok) job->planned = plan.status;
    if (config_.carried) job->pages->scatter(index, page_, std::as_writable_bytes(std::span(job->rows)));
    if (ftl_.lookup(ftl::LogicalPage{read.page}).valid()) {
      job->mapped[index] = std::move(plan.phases.back());
      plan.phases.pop_back();
    }
    std::ranges::move(plan.phases, std::back_inserter(map.phases));
  }
  blocks_.run_plan(std::move(map), [this, job] { read_buffered(job); });
}

/// Pages that are not in flash yet come from controller DRAM. The others are looked up as the engine asks for them.
void FeedForwardService::read_buffered(const JobPtr& job) {
  std::uint64_t found = 0;  // without the engine
  Bytes buffered;
  if (port_.limited() || !lookups_.are_free())
    for (const RecordPage& read : job->pages->reads()) {
      const PhysicalPageAddress ppa = ftl_.lookup(ftl::LogicalPage{read.page});
      const bool in_dram = blocks_.plans().in_dram(ppa);
      if (in_dram) buffered += Bytes{read.end - read.begin};
      if (in_dram || !ppa.valid()) ++found;
    }
  lookups_.run(found, nullptr, [this, job, buffered] {
    port_.move(DramTraffic::records, buffered, [this, job] { start_engine(job); });
  });
}

void FeedForwardService::start_engine(const JobPtr& job) {
  job->of_engine = {
      .shape = shape_of(job->op), .neurons = job->op.neurons, .source = this, .tag = in_engine_.put(JobPtr(job))};
  if (config_.carried) {
    job->out = dram_.allocate(job->layout.size - job->layout.y);
    std::ranges::fill(job->out.bytes(), std::byte{0});  // what is added to, and the padding
    if (job->op.has_bias()) job->of_engine.bias = job->inputs.as<const Half>();
    job->of_engine.x = job->inputs.as<const Half>(job->layout.x - job->layout.bias);
    job->of_engine.y = job->out.as<float>();
  }
  if (engine_.run(job->of_engine, [this, job] { computed(job); })) return;
  in_engine_.release(static_cast<std::uint32_t>(job->of_engine.tag));
  job->command->complete(status::engine_buffer_exceeded);
}

void FeedForwardService::plan_records(const engine::NeuronJob& of_engine, engine::NeuronPages& out) {
  Job& job = *in_engine_[static_cast<std::uint32_t>(of_engine.tag)];
  const std::size_t reads = job.pages->reads().size();
  std::vector<std::uint32_t> pages_until(reads + 1);  // [read]: flash pages that the reads before it take
  ftl::Phase ops;
  for (std::uint32_t index = 0; index < reads; ++index) {
    ops.clear();
    plan_page(job, index, ops);
    if (!ops.empty()) ++out.lookups;
    out.pages.insert(out.pages.end(), ops.begin(), ops.end());
    pages_until[index + 1] = static_cast<std::uint32_t>(out.pages.size());
  }
  for (const std::uint32_t needed : job.pages->needed()) out.needed.push_back(pages_until[needed]);
  if (config_.carried) out.rows = job.rows.data();
}

/// The flash operation of a read, if it takes one, and the bytes.
void FeedForwardService::plan_page(Job& job, std::uint32_t index, ftl::Phase& ops) {
  const RecordPage& read = job.pages->reads()[index];
  if (ftl_.map_is_cached()) {
    ops = job.mapped[index];
    // What was done for map entries of other pages may have moved this one, or the host may have deallocated it.
    const PhysicalPageAddress now = ftl_.lookup(ftl::LogicalPage{read.page});
    if (!now.valid()) ops.clear();
    for (PageOp& op : ops) op.ppa = now;
  } else {
    page_.resize(config_.carried ? read.end - read.begin : 0);
    const ftl::IoStatus planned =
        ftl_.read(config_.page_size * read.page + Bytes{read.begin}, Bytes{read.end - read.begin}, page_, ops);
    // Pages that cannot be corrected are read as well: the drive notices only then.
    if (planned != ftl::IoStatus::ok) job.planned = planned;
    if (config_.carried) job.pages->scatter(index, page_, std::as_writable_bytes(std::span(job.rows)));
  }
  blocks_.plans().leave_out_buffered(ops);
}

void FeedForwardService::computed(const JobPtr& job) {
  in_engine_.release(static_cast<std::uint32_t>(job->of_engine.tag));
  if (job->planned != ftl::IoStatus::ok) return job->command->complete(BlockService::to_status(job->planned));
  // What the engine keeps in controller DRAM is written and read once.
  const Bytes buffer = config_.engine_in_dram ? engine::job_footprint(job->of_engine) * 2 : Bytes{};
  port_.move(DramTraffic::engine_buffer, buffer, [this, job] {
    const Bytes size = job->layout.size - job->layout.y;
    const auto done = [job](Status s) { job->command->complete(s); };
    port_.stream(DramTraffic::host_data, size);
    if (!config_.carried) return job->command->write_host_timing(job->layout.y, size, done);
    job->command->write_host(job->layout.y, job->out.bytes(), done);
  });
}

}  // namespace csdsim::csd_model
