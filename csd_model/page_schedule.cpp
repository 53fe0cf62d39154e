#include "csd_model/page_schedule.h"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <queue>
#include <tuple>

#include "ftl/core/stripe.h"
#include "ftl/kv/kv_policy.h"
#include "nfc/core/plain_timeline.h"

namespace csdsim::csd_model {
namespace {

double bytes_per_second(Bandwidth b) { return static_cast<double>(b.bytes_per_second); }

/// The NVMe driver cuts reads of a range into requests of this size (activation_request of the planner).
constexpr std::uint64_t kBlockRequest = 32 << 10;
/// Layers over which times are averaged.
constexpr std::uint32_t kMostLayers = 4;

}  // namespace

bool PageSchedule::covers(const DriveConfig& drive) {
  const engine::EngineConfig& engine = drive.engine;
  return nfc::PlainTimeline::covers(drive.flash) && drive.flash.buffer_limit() == 0 &&
         drive.flash.read_jitter.ps == 0 && drive.flash.arbitration == nfc::BusArbitration::command_first &&
         !engine.takes_pages() && engine.page_buffers == 0 && engine.overlap_flash && drive.mapping_unit.value == 0 &&
         (!drive.peer_reads || drive.peer_piece() == drive.geometry.page_size) &&
         dynamic_cast<ftl::KvPlanePolicy*>(make_mapping(drive).get()) != nullptr;
}

PageSchedule::PageSchedule(const DriveConfig& drive) : drive_(drive), mapping_(make_mapping(drive)) {}
PageSchedule::~PageSchedule() = default;

/// Events in the order of time.
class PageSchedule::Run {
 public:
  Run(const DriveConfig& drive, ftl::KvPlanePolicy& mapping, const ScheduledAttention& work, std::uint32_t head_dim)
      : drive_(drive),
        mapping_(mapping),
        work_(work),
        page_(static_cast<double>(drive.geometry.page_size.value)),
        command_(drive.flash.command_time.seconds()),
        sensing_(drive.flash.read_latency.seconds()),
        carrying_(drive.flash.data_out_setup.seconds() +
                  nfc::bus_bytes(drive.flash, static_cast<std::uint32_t>(drive.geometry.page_size.value)) /
                      bytes_per_second(drive.flash.channel_bandwidth)),
        lookup_(drive.lookup_time.seconds() / drive.lookup_cores),
        planes_(drive.geometry.planes()),
        buses_(drive.geometry.channels),
        free_kernels_(drive.engine.kernels) {
    shape_ = {.layers = 1, .kv_heads = work.heads, .head_dim = head_dim, .max_tokens = 1, .component_major = false};
    layout_ = mapping.layout(shape_, drive.geometry.page_size, drive.kv.layout);
  }

  /// Follows a layer that begins when the one before has all its outputs. Returns when it has its own.
  double layer(std::uint32_t number) {
    find_pages(number);
    ask_for_blocks();
    if (!jobs_.empty()) at(now_ + work_.queries_after + drive_.pipeline_time.seconds(), Kind::queries, 0);
    missing_outputs_ = jobs_.size();
    // The GPU needs what was read beside the layer before.
    while (!events_.empty() && (jobs_.empty() || missing_outputs_ > 0 || missing_blocks_[1 - round_] > 0)) {
      const Event event = events_.top();
      events_.pop();
      now_ = event.at;
      happen(event);
    }
    round_ = 1 - round_;
    // Outputs leave the drive after the blocks that came to its link before them.
    if (!jobs_.empty() && work_.way > 0) now_ = std::max(now_, way_free_);
    return now_;
  }
  /// Since the last page has crossed the internal link, at the end of a layer.
  double link_idle() const { return now_ - link_free_; }

 private:
  enum class Kind : std::uint8_t {
    queries,
    start,
    sensed,
    bus_free,
    arrived,
    read_pages,
    blocks_done,
    request_done,
    kernel_done
  };
  struct Event {
    double at;
    std::uint64_t order;
    Kind kind;
    std::uint32_t what;
    bool operator>(const Event& o) const { return std::tie(at, order) > std::tie(o.at, o.order); }
  };
  /// Pages that are read as one: those of a job, of a request over the switch, or of a request of the host.
  struct Request {
    std::uint32_t job = kNoJob;
    std::size_t round = 0;  ///< of blocks
    std::vector<std::uint32_t> planes = {};
    std::size_t missing = 0;
    double passed = 0, stored = 0;  ///< over the switch: at the rate of a request, and in the FPGA's DRAM
  };
  struct Job {
    std::vector<std::uint32_t> planes;
    std::size_t missing = 0;  ///< requests
  };
  struct Bus {
    std::deque<std::uint32_t> commands, data;  ///< planes that wait for it
    bool busy = false;
  };
  static constexpr std::uint32_t kNoJob = ~0U;
  static constexpr double kIdle = 1;  ///< s

  void at(double time, Kind kind, std::uint32_t what) { events_.push({time, order_++, kind, what}); }

  void find_pages(std::uint32_t layer) {
    jobs_.clear();
    next_job_ = 0;
    for (std::uint32_t s = 0; s < work_.sequences; ++s)
      for (std::uint32_t head = 0; head < work_.heads; ++head) {
        Job& job = jobs_.emplace_back();
        const ftl::KvSequenceInfo sequence{SequenceId{s}, shape_, layout_};
        for (const ftl::PageKind kind : {ftl::PageKind::token_k, ftl::PageKind::token_v})
          for (std::uint32_t group = 0; group < work_.groups; ++group)
            job.planes.push_back(
                mapping_.plane({{SequenceId{s}, LayerId{layer}, KvHead{head}}, kind, group, 0}, sequence).value);
      }
  }

  void ask_for_blocks() {
    const ftl::Stripe stripe(drive_.geometry, drive_.block.stripe_order);
    const std::uint64_t most = std::max<std::uint64_t>(1, kBlockRequest / drive_.geometry.page_size.value);
    for (std::uint64_t first = 0; first < work_.blocks; first += most) {
      Request request;
      for (std::uint64_t page = first; page < std::min(work_.blocks, first + most); ++page)
        request.planes.push_back(stripe.plane_at(page).value);
      request.round = round_;
      ++missing_blocks_[round_];
      requests_.push_back(std::move(request));
      look_up_and_read(static_cast<std::uint32_t>(requests_.size() - 1));
    }
  }

  /// The firmware finds pages one after another.
  void look_up_and_read(std::uint32_t request) {
    requests_[request].missing = requests_[request].planes.size();
    found_ = std::max(found_, now_) + lookup_ * static_cast<double>(requests_[request].missing);
    at(found_, Kind::read_pages, request);
  }

  void happen(const Event& event) {
    switch (event.kind) {
      case Kind::queries:
        // Tokens that fill no page cross the switch before the engine starts.
        if (drive_.peer_reads && work_.tail_bytes > 0) link_free_ = std::max(now_, link_free_ + crossing(tail()));
        return at(drive_.peer_reads && work_.tail_bytes > 0 ? link_free_ : now_, Kind::start, 0);
      case Kind::start:
        while (next_job_ < std::min<std::size_t>(jobs_.size(), drive_.engine.jobs_in_flight)) start_job();
        return;
      case Kind::read_pages:
        for (const std::uint32_t plane : requests_[event.what].planes) {
          planes_[plane].push_back(event.what);
          if (planes_[plane].size() == 1) ask_for_command(plane);
        }
        return;
      case Kind::sensed:
        buses_[channel(event.what)].data.push_back(event.what);
        return serve(channel(event.what));
      case Kind::bus_free:
        buses_[event.what].busy = false;
        return serve(event.what);
      case Kind::arrived:
        return page_arrived(event.what);
      case Kind::blocks_done:
        --missing_blocks_[requests_[event.what].round];
        return;
      case Kind::request_done:
        --running_;
        start_requests();
        if (Job& job = jobs_[requests_[event.what].job]; --job.missing == 0) pages_complete();
        return;
      case Kind::kernel_done:
        --missing_outputs_;
        ++free_kernels_;
        if (ready_ > 0) --ready_, start_kernel();
        if (next_job_ < jobs_.size()) start_job();
        return;
    }
  }

  void ask_for_command(std::uint32_t plane) {
    buses_[channel(plane)].commands.push_back(plane);
    serve(channel(plane));
  }

  /// A free bus takes commands first (BusArbitration::command_first).
  void serve(std::uint32_t channel) {
    Bus& bus = buses_[channel];
    if (bus.busy || (bus.commands.empty() && bus.data.empty())) return;
    bus.busy = true;
    std::deque<std::uint32_t>& queue = bus.commands.empty() ? bus.data : bus.commands;
    const bool command = !bus.commands.empty();
    const std::uint32_t plane = queue.front();
    queue.pop_front();
    const double end = now_ + (command ? command_ : carrying_);
    if (command)
      at(end + sensing_, Kind::sensed, plane);
    else
      at(end, Kind::arrived, plane);
    at(end, Kind::bus_free, channel);
  }

  void start_job() {
    const auto number = static_cast<std::uint32_t>(next_job_++);
    Job& job = jobs_[number];
    if (job.planes.empty()) return pages_complete();
    const std::size_t most =
        drive_.peer_reads
            ? std::max<std::size_t>(1, drive_.peer_reads->request_size.value / drive_.geometry.page_size.value)
            : job.planes.size();
    for (std::size_t first = 0; first < job.planes.size(); first += most) {
      const auto begin = job.planes.begin() + static_cast<std::ptrdiff_t>(first);
      const auto end = job.planes.begin() + static_cast<std::ptrdiff_t>(std::min(job.planes.size(), first + most));
      requests_.push_back({.job = number, .round = round_, .planes = {begin, end}});
      ++job.missing;
      waiting_.push_back(static_cast<std::uint32_t>(requests_.size() - 1));
    }
    start_requests();
  }

  void start_requests() {
    while (!waiting_.empty() && (!drive_.peer_reads || running_ < drive_.peer_reads->outstanding)) {
      const std::uint32_t request = waiting_.front();
      waiting_.pop_front();
      ++running_;
      if (!drive_.peer_reads) {
        look_up_and_read(request);
      } else {
        requests_[request].missing = requests_[request].planes.size();
        found_ = std::max(found_, now_) + lookup_ * static_cast<double>(requests_[request].missing);
        at(found_ + drive_.peer_reads->command_time.seconds(), Kind::read_pages, request);
      }
    }
  }

  void page_arrived(std::uint32_t plane) {
    const std::uint32_t number = planes_[plane].front();
    planes_[plane].pop_front();
    if (!planes_[plane].empty()) ask_for_command(plane);
    Request& request = requests_[number];
    const bool last = --request.missing == 0;
    const double arrival = now_ + drive_.flash.ecc_latency.seconds();
    if (request.job == kNoJob) {
      if (!last) return;
      const double bytes = page_ * static_cast<double>(request.planes.size());
      if (drive_.peer_reads) link_free_ = std::max(arrival, link_free_ + crossing(bytes));
      // Blocks leave the drive one after another.
      way_free_ = std::max(way_free_, drive_.peer_reads ? std::max(arrival, link_free_) : arrival) + bytes * work_.way;
      return at(way_free_, Kind::blocks_done, number);
    }
    if (!drive_.peer_reads) {
      if (last) at(arrival, Kind::request_done, number);
      return;
    }
    const PeerReadConfig& reads = *drive_.peer_reads;
    link_free_ = std::max(arrival, link_free_) + crossing(page_);
    dram_free_ = std::max(link_free_, dram_free_ + 2 * page_ / bytes_per_second(reads.dram_bandwidth));
    request.stored = dram_free_;
    request.passed = std::max(request.passed, arrival) + page_ / bytes_per_second(reads.request_bandwidth);
    if (last) at(std::max(request.passed, request.stored), Kind::request_done, number);
  }

  void pages_complete() {
    if (free_kernels_ > 0)
      start_kernel();
    else
      ++ready_;
  }
  void start_kernel() {
    --free_kernels_;
    at(now_ + work_.kernel, Kind::kernel_done, 0);
  }

  double crossing(double bytes) const { return bytes / bytes_per_second(drive_.peer_reads->bandwidth); }
  double tail() const { return work_.tail_bytes; }
  std::uint32_t channel(std::uint32_t plane) const { return drive_.geometry.channel_of(PlaneId{plane}).value; }

  const DriveConfig& drive_;
  ftl::KvPlanePolicy& mapping_;
  const ScheduledAttention& work_;
  ftl::KvShape shape_;
  ftl::KvLayout layout_;
  double page_;
  double command_, sensing_, carrying_, lookup_;   ///< of a page
  std::vector<std::deque<std::uint32_t>> planes_;  ///< [PlaneId] requests whose pages wait, the first one is read
  std::vector<Bus> buses_;                         ///< [ChannelId]
  std::vector<Job> jobs_;
  std::vector<Request> requests_;
  std::deque<std::uint32_t> waiting_;  ///< requests over the switch
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::size_t next_job_ = 0, ready_ = 0, missing_outputs_ = 0;
  std::array<std::size_t, 2> missing_blocks_{};  ///< requests, of this layer and of the one before
  std::size_t round_ = 0;
  std::uint32_t running_ = 0, free_kernels_;
  double now_ = 0, found_ = 0, way_free_ = 0;
  /// Both have been idle: they forward at once.
  double link_free_ = -kIdle, dram_free_ = -kIdle;
};

ScheduledTimes PageSchedule::idle_before(const ScheduledAttention& work, std::uint32_t head_dim) const {
  auto& mapping = dynamic_cast<ftl::KvPlanePolicy&>(*mapping_);
  const std::uint32_t layers = std::clamp(work.layers, 1U, kMostLayers);
  ScheduledTimes sum;
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    Run run(drive_, mapping, work, head_dim);
    sum.end += run.layer(layer);
    sum.link_idle += run.link_idle();
  }
  return {sum.end / layers, sum.link_idle / layers};
}

ScheduledTimes PageSchedule::of_many(const ScheduledAttention& work, std::uint32_t head_dim) const {
  constexpr std::uint32_t kPages = 4096;
  ScheduledAttention first = work;
  first.sequences = std::clamp(kPages / std::max(1U, 2 * work.groups * work.heads), 1U, work.sequences);
  ScheduledTimes times = idle_before(first, head_dim);
  if (first.sequences == work.sequences) return times;
  const std::uint32_t followed = first.sequences, half = followed / 2;
  first.sequences = half;
  const double of_half = half > 0 ? idle_before(first, head_dim).end : 0;
  times.end += (work.sequences - followed) * (times.end - of_half) / (followed - half);
  return times;
}

double PageSchedule::end(const ScheduledAttention& work, std::uint32_t head_dim) const {
  if (work.blocks == 0 && work.queries_after <= 0) return idle_before(work, head_dim).end;
  auto& mapping = dynamic_cast<ftl::KvPlanePolicy&>(*mapping_);
  constexpr std::uint32_t kBefore = 2;
  const std::uint32_t layers = std::clamp(work.layers, 1U, kMostLayers);
  double sum = 0;
  if (work.heads == 0) return Run(drive_, mapping, work, head_dim).layer(0);
  Run run(drive_, mapping, work, head_dim);
  double before = 0;
  const std::uint32_t warm = kBefore * layers, all = warm + layers;
  for (std::uint32_t layer = 0; layer < warm; ++layer) before = run.layer(layer % layers);
  for (std::uint32_t layer = warm; layer < all; ++layer) sum = run.layer(layer % layers) - before;
  return sum / layers;
}

}  // namespace csdsim::csd_model
