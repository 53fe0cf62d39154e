#include "report/run_trace.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "platform/platform.h"

namespace csdsim::report {
namespace {

/// Order of the groups of tracks.
enum Track : std::uint32_t { kHostPlace = 1, kGpuPlace = 100, kLinkPlace = 200, kDrivePlace = 1000 };

std::function<std::string(std::uint32_t)> numbered(std::string name) {
  return [name = std::move(name)](std::uint32_t unit) { return fmt::format("{} {}", name, unit); };
}
std::function<std::string(std::uint32_t)> called(std::string name) {
  return [name = std::move(name)](std::uint32_t) { return name; };
}

/// True if the arrows of a token lead through operations of this kind: those that its hidden states pass.
bool carries_token(host::OpKind kind) {
  switch (kind) {
    case host::OpKind::append_kv:
    case host::OpKind::create_kv:
    case host::OpKind::fork_kv:
    case host::OpKind::free_kv:
    case host::OpKind::transfer:
    case host::OpKind::read_blocks:
    case host::OpKind::write_blocks:
    case host::OpKind::read_file:
    case host::OpKind::write_file:
    case host::OpKind::delete_records:
    case host::OpKind::insert_records:
    case host::OpKind::update_pools:
      return false;
    default:
      return true;
  }
}

bool of_drive(host::ResourceKind kind) {
  return kind == host::ResourceKind::drive_kv || kind == host::ResourceKind::drive_blocks ||
         kind == host::ResourceKind::file;
}

std::uint32_t place_of(host::Resource r) {
  switch (r.kind) {
    case host::ResourceKind::gpu:
      return kGpuPlace + r.index;
    case host::ResourceKind::host:
      return kHostPlace;
    case host::ResourceKind::host_to_gpu:
    case host::ResourceKind::gpu_to_host:
      return kLinkPlace + 2 * r.index;
    default:
      return kDrivePlace + 2 * r.index;
  }
}

}  // namespace

RunTrace::RunTrace(const std::filesystem::path& path, Bytes limit) : sink_(path, limit) {}
RunTrace::~RunTrace() = default;

UnitTracks& RunTrace::units(std::uint32_t process, UnitTracks::Style style) {
  return *units_.emplace_back(std::make_unique<UnitTracks>(sink_, process, std::move(style)));
}

std::uint32_t RunTrace::host() {
  if (host_ == 0) host_ = sink_.process("host", kHostPlace);
  return host_;
}

void RunTrace::watch(platform::Platform& platform) {
  platform.io_cores().observe(&units(host(), {.name = numbered("core")}));
  for (std::uint32_t i = 0; i < platform.drives(); ++i)
    flash_is_silent_ |= !platform.drive(i).observe(observers_of(i, platform.drive(i).config()));
}

void RunTrace::leave(platform::Platform& platform) {
  platform.io_cores().observe(nullptr);
  for (std::uint32_t i = 0; i < platform.drives(); ++i) platform.drive(i).observe({});
}

csd_model::DriveObservers RunTrace::observers_of(std::uint32_t drive, const csd_model::DriveConfig& config) {
  const std::uint32_t place = kDrivePlace + 2 * drive;
  const std::uint32_t process = sink_.process(fmt::format("drive {}", drive), place);
  drives_[drive] = process;
  csd_model::DriveObservers o;
  o.queues = &units(process, {.name = numbered("NVMe queue"),
                              .amount = "cid",
                              .level = [](std::uint32_t q) { return fmt::format("NVMe queue {} commands", q); },
                              .async = true});
  o.controller_cores = &units(process, {.name = called("firmware: commands"), .overlaps = true});
  o.lookup_cores = &units(process, {.name = numbered("firmware: lookup core")});
  o.dram = &units(process, {.name = called("controller DRAM"), .amount = "bytes", .rate = "controller DRAM B/s"});
  o.write_buffer = &units(process, {.name = called("write buffer"), .level = called("write buffer bytes")});
  o.link = &units(process, {.name = [](std::uint32_t d) { return d == 0 ? "link to host" : "link to drive"; },
                            .amount = "bytes",
                            .rate = "B/s",
                            .rate_by_unit = true});
  constexpr std::array<std::string_view, 3> kUnits{"engine kernels", "engine scoring unit", "engine argtopk"};
  o.engine = &units(process, {.name = [kUnits](std::uint32_t u) { return std::string(kUnits.at(u)); },
                              .amount = "job",
                              .level = called("engine buffer bytes"),
                              .overlaps = true});
  o.internal_link = [this, drive](const nvme::SharedLink& link, const nvme::SharedLink::Period& p) {
    add_shared(fmt::format("drive {}: {}", drive, link.name()), p);
  };
  o.flash = flash_of(sink_.process(fmt::format("drive {} flash", drive), place + 1), config.geometry);
  return o;
}

nfc::FlashObservers RunTrace::flash(const std::string& name, const FlashGeometry& geometry) {
  return flash_of(sink_.process(name), geometry);
}

nfc::FlashObservers RunTrace::flash_of(std::uint32_t process, const FlashGeometry& g) {
  // A channel, its filter and its decoder stand above its dies.
  const std::uint32_t span = g.dies_per_channel * g.planes_per_die + 10;
  const auto beside = [span](std::uint32_t offset) {
    return [span, offset](std::uint32_t channel) { return channel * span + offset; };
  };
  nfc::FlashObservers flash;
  flash.channels = &units(
      process, {.name = numbered("channel"), .place = beside(1), .amount = "bytes", .rate = "flash channels B/s"});
  flash.filters = &units(process, {.name = numbered("filter"), .place = beside(2), .amount = "bytes"});
  flash.decoders = &units(process, {.name = numbered("decoder"), .place = beside(3), .amount = "bytes"});
  flash.buffers = &units(process, {.name = numbered("channel"), .level = [](std::uint32_t c) {
                                     return fmt::format("channel {} page buffers in use", c);
                                   }});
  flash.planes = &units(process, {.name =
                                      [g](std::uint32_t plane) {
                                        const std::uint32_t die = g.die_of(PlaneId{plane}).value;
                                        return fmt::format("channel {} die {} plane {}", die / g.dies_per_channel,
                                                           die % g.dies_per_channel, plane % g.planes_per_die);
                                      },
                                  .place =
                                      [g, span](std::uint32_t plane) {
                                        const std::uint32_t of_channel = g.dies_per_channel * g.planes_per_die;
                                        return plane / of_channel * span + 10 + plane % of_channel;
                                      }});
  return flash;
}

RunTrace::OperationTracks& RunTrace::tracks_of(host::Resource r) {
  const auto [at, fresh] = operations_.try_emplace(r);
  OperationTracks& tracks = at->second;
  if (!fresh) return tracks;
  tracks.name = r.kind == host::ResourceKind::drive_kv       ? "KV operations"
                : r.kind == host::ResourceKind::drive_blocks ? "block operations"
                : r.kind == host::ResourceKind::file         ? "file operations"
                                                             : "operations";
  if (r.kind == host::ResourceKind::host)
    tracks.process = host();
  else if (of_drive(r.kind) && drives_.contains(r.index))
    tracks.process = drives_[r.index];
  else
    tracks.process = sink_.process(host::resource_name(r), place_of(r));
  return tracks;
}

void RunTrace::add(const host::OperationRecord& r) {
  OperationTracks& tracks = tracks_of(r.resource);
  const std::uint32_t lane = tracks.lanes.take(r.start, r.end);
  if (lane == tracks.tracks.size())
    tracks.tracks.push_back(
        sink_.track(tracks.process, lane == 0 ? tracks.name : fmt::format("{} ({})", tracks.name, lane + 1), 1 + lane));
  const TraceTrack track = tracks.tracks[lane];
  const std::string_view name = host::kOpKindNames[static_cast<std::size_t>(r.kind)];
  const std::string_view phase = r.tag.phase == host::Phase::prefill ? "prefill" : "decode";
  const std::string layer = r.tag.layer ? fmt::format("{}", r.tag.layer->value) : "-";
  sink_.complete(track, name, r.start, r.end - r.start,
                 {{"phase", phase},
                  {"step", std::uint64_t{r.tag.step}},
                  {"layer", std::string_view(layer)},
                  {"mini_batch", std::uint64_t{r.tag.mini_batch.value}},
                  {"bytes", r.moved.value},
                  {"waited_ns", static_cast<std::uint64_t>(r.waited.ps / 1000)}});
  // Where drives work on the same token side by side, the arrows pass the first.
  const bool beside = of_drive(r.resource.kind) && r.resource.index > 0;
  if (carries_token(r.kind) && !beside && r.end > r.start) add_flow(track, r);
}

void RunTrace::add_flow(TraceTrack track, const host::OperationRecord& r) {
  const std::uint64_t step = r.tag.phase == host::Phase::prefill ? 0 : std::uint64_t{r.tag.step} + 1;
  const std::uint64_t id = std::uint64_t{r.tag.mini_batch.value} << 40 | step;
  const bool ends = r.kind == host::OpKind::sample;
  const bool begins = flows_.insert(id).second;
  if (ends) flows_.erase(id);
  if (begins && ends) return;
  sink_.flow(track, "token", id, ends ? FlowStep::end : begins ? FlowStep::begin : FlowStep::step, r.start);
}

void RunTrace::add_request(std::uint32_t engine, std::uint64_t request, std::span<const Span> spans,
                           TraceSink::Args args) {
  OperationTracks& tracks = requests_[engine];
  if (tracks.tracks.empty()) tracks.process = sink_.process(fmt::format("requests of engine {}", engine), kHostPlace);
  const std::uint32_t lane = tracks.lanes.take(spans.front().begin, spans.back().end);
  if (lane == tracks.tracks.size())
    tracks.tracks.push_back(sink_.track(tracks.process, fmt::format("place {}", lane + 1), 1 + lane));
  const TraceTrack track = tracks.tracks[lane];
  sink_.complete(track, fmt::format("request {}", request), spans.front().begin, spans.back().end - spans.front().begin,
                 args);
  for (const Span& span : spans)
    if (span.end > span.begin) sink_.complete(track, span.name, span.begin, span.end - span.begin);
}

void RunTrace::add_counter(std::string_view name, SimTime at, double value) {
  sink_.counter({.process = host(), .thread = 0}, name, at, value);
}

void RunTrace::add_shared(const std::string& link, const nvme::SharedLink::Period& period) {
  UnitTracks*& tracks = shared_[link];
  if (tracks == nullptr)
    tracks = &units(sink_.process(link, kLinkPlace + 50), {.name = called(link), .amount = "bytes", .rate = "B/s"});
  tracks->work(0, "busy", period.start, period.end, period.bytes);
}

void RunTrace::close(const std::function<void(const std::string&)>& notice) {
  for (const auto& units : units_) units->finish();
  sink_.close();
  if (!notice) return;
  if (flash_is_silent_) notice("trace: without tracks of the flash, whose model reports no operations");
  if (sink_.dropped_events() == 0) return;
  notice(
      fmt::format("trace: its limit of {} bytes is reached; {} events from {:.6g} ms on are left out (--trace-limit)",
                  sink_.limit().value, sink_.dropped_events(), sink_.first_dropped()->seconds() * 1e3));
}

}  // namespace csdsim::report
