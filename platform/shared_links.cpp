#include "platform/shared_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "simulation/sim_time.h"

namespace csdsim::platform {

using nvme::Hop;
using nvme::LinkDirection;
using nvme::Route;

namespace {

// Pauses of a busy link up to this long do not divide its busy periods in a trace.
constexpr SimTime kTraceGap = SimTime::microseconds(5);

std::string gpu_link_name(std::uint32_t gpu, std::string_view direction) {
  return gpu == 0 ? fmt::format("shared link {} gpu", direction) : fmt::format("shared link {} gpu {}", direction, gpu);
}

}  // namespace

SharedLinks::SharedLinks(const SharedLinksParams& params, std::uint32_t drives, Bandwidth drive_rate,
                         std::uint32_t gpus)
    : params_(params), copies_(gpus) {
  if (params.upstream && (params.upstream->drives > drives || params.upstream->gpus > gpus))
    throw UserError(fmt::format("platform: {} drives and {} GPUs behind the switch, of {} and {}",
                                params.upstream->drives, params.upstream->gpus, drives, gpus));
  if (params.gpu_link) {
    for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
      add_link(SharedLinkKind::gpu_in, gpu, gpu_link_name(gpu, "to"), *params.gpu_link);
      add_link(SharedLinkKind::gpu_out, gpu, gpu_link_name(gpu, "from"), *params.gpu_link);
    }
  }
  if (params.root_complex) {
    add_link(SharedLinkKind::root_in, 0, "root complex in", *params.root_complex);
    add_link(SharedLinkKind::root_out, 0, "root complex out", *params.root_complex);
  }
  if (params.upstream) {
    add_link(SharedLinkKind::switch_up, 0, "switch up", params.upstream->bandwidth);
    add_link(SharedLinkKind::switch_down, 0, "switch down", params.upstream->bandwidth);
  }
  find_bounds(drives, drive_rate, gpus);
  for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
    const Device host{}, device{Device::Kind::gpu, gpu};
    copies_[gpu] = {flow(device, host, true), flow(host, device, true)};
  }
}

void SharedLinks::add_link(SharedLinkKind kind, std::uint32_t gpu, const std::string& name, Bandwidth rate) {
  if (rate.bytes_per_second == 0) throw UserError(fmt::format("platform: {}: the bandwidth is 0", name));
  links_.push_back(std::make_unique<Link>(Link{kind, gpu, rate, false, nvme::SharedLink(name)}));
}

SharedLinks::Link* SharedLinks::find(SharedLinkKind kind, std::uint32_t gpu) const {
  for (const auto& link : links_)
    if (link->kind == kind && link->gpu == gpu) return link.get();
  return nullptr;
}

bool SharedLinks::has(SharedLinkKind kind) const {
  return std::any_of(links_.begin(), links_.end(), [&](const auto& link) { return link->kind == kind; });
}

bool SharedLinks::behind_switch(Device d) const {
  if (!params_.upstream || d.kind == Device::Kind::host) return false;
  return d.index < (d.kind == Device::Kind::gpu ? params_.upstream->gpus : params_.upstream->drives);
}

/// All shared links between two devices.
Route SharedLinks::path(Device from, Device to, bool copy) const {
  Route route;
  const auto pass = [&](SharedLinkKind kind, std::uint32_t gpu = 0) {
    if (Link* const link = find(kind, gpu)) route.push_back({&link->shared, link->rate});
  };
  const auto pass_gpu = [&](SharedLinkKind kind, Device d) {
    if (d.kind != Device::Kind::gpu) return;
    pass(kind, d.index);
    // Copies have a rate of their own; the link is busy for as long as they take.
    if (copy && find(kind, d.index) != nullptr) route.back().rate = params_.copies.value_or(route.back().rate);
  };
  pass_gpu(SharedLinkKind::gpu_out, from);
  if (!behind_switch(from) || !behind_switch(to)) {
    if (behind_switch(from)) pass(SharedLinkKind::switch_up);
    if (from.kind != Device::Kind::host) pass(SharedLinkKind::root_in);
    if (to.kind != Device::Kind::host) pass(SharedLinkKind::root_out);
    if (behind_switch(to)) pass(SharedLinkKind::switch_down);
  }
  pass_gpu(SharedLinkKind::gpu_in, to);
  return route;
}

/// A link binds if its senders together can offer more than it carries. Each direction of a drive's link, and each
/// direction of copies of a GPU, is one sender, whatever its destinations.
void SharedLinks::find_bounds(std::uint32_t drives, Bandwidth drive_rate, std::uint32_t gpus) {
  std::map<const nvme::SharedLink*, double> offered;  // share of the link
  const auto add_sender = [&](Bandwidth rate, const std::vector<Route>& routes) {
    std::map<const nvme::SharedLink*, double> most;
    for (const Route& route : routes)
      for (const Hop& hop : route)
        most[hop.link] = std::max(most[hop.link], double(rate.bytes_per_second) / double(hop.rate.bytes_per_second));
    for (const auto& [link, share] : most) offered[link] += share;
  };
  const Device host{};
  for (std::uint32_t i = 0; i < drives; ++i) {
    const Device drive{Device::Kind::drive, i};
    std::vector<Route> written{path(drive, host, false)}, read{path(host, drive, false)};
    for (std::uint32_t gpu = 0; params_.peer_to_peer && gpu < gpus; ++gpu) {
      written.push_back(path(drive, {Device::Kind::gpu, gpu}, false));
      read.push_back(path({Device::Kind::gpu, gpu}, drive, false));
    }
    add_sender(drive_rate, written);
    add_sender(drive_rate, read);
  }
  for (std::uint32_t gpu = 0; params_.copies && gpu < gpus; ++gpu) {
    add_sender(*params_.copies, {path(host, {Device::Kind::gpu, gpu}, true)});
    add_sender(*params_.copies, {path({Device::Kind::gpu, gpu}, host, true)});
  }
  for (const auto& link : links_) link->binds = offered[&link->shared] > 1;
}

SharedLinks::Flow SharedLinks::flow(Device from, Device to, bool copy) const {
  Flow flow;
  for (const Hop& hop : path(from, to, copy)) {
    const auto link = std::find_if(links_.begin(), links_.end(), [&](const auto& l) { return &l->shared == hop.link; });
    ((*link)->binds ? flow.route : flow.rest).push_back(hop);
  }
  return flow;
}

void SharedLinks::add_drive(std::uint32_t index, nvme::MemoryMap& map, nvme::RegionId host,
                            const std::vector<nvme::RegionId>& gpus) {
  DriveFlows flows{.map = &map, .regions = {}};
  const Device drive{Device::Kind::drive, index};
  const auto add = [&](nvme::RegionId region, Device memory) {
    std::array<Flow, 2> both;
    both[std::size_t(LinkDirection::to_host)] = flow(drive, memory, false);
    both[std::size_t(LinkDirection::to_drive)] = flow(memory, drive, false);
    for (const LinkDirection direction : {LinkDirection::to_host, LinkDirection::to_drive})
      map.set_route(region, direction, both[std::size_t(direction)].route);
    flows.regions.emplace_back(region, std::move(both));
  };
  add(host, {});
  for (std::uint32_t gpu = 0; gpu < gpus.size(); ++gpu) add(gpus[gpu], {Device::Kind::gpu, gpu});
  drives_.push_back(std::move(flows));
}

LinkUse SharedLinks::use(const Link& link) const {
  if (link.binds) {
    const nvme::SharedLinkStats& stats = link.shared.stats();
    return {double(stats.bytes), link.shared.busy_until(sim_time_now()).seconds(), stats.waited.seconds()};
  }
  LinkUse use;
  const auto add = [&](const Flow& flow, std::uint64_t bytes) {
    for (const Hop& hop : flow.rest) {
      if (hop.link != &link.shared) continue;
      use.bytes += double(bytes);
      use.busy_s += double(bytes) / double(hop.rate.bytes_per_second);
    }
  };
  for (const DriveFlows& drive : drives_)
    for (const auto& [region, flows] : drive.regions) {
      const nvme::RegionTraffic& traffic = drive.map->traffic(region);
      add(flows[std::size_t(LinkDirection::to_host)], traffic.bytes_to_region);
      add(flows[std::size_t(LinkDirection::to_drive)], traffic.bytes_from_region);
    }
  for (const auto& of_gpu : copies_)
    for (const Flow& flow : of_gpu) add(flow, flow.bytes);
  return use;
}

LinkUse SharedLinks::use(SharedLinkKind kind) const {
  LinkUse sum;
  for (const auto& link : links_) {
    if (link->kind != kind) continue;
    const LinkUse one = use(*link);
    sum.bytes += one.bytes;
    sum.busy_s += one.busy_s;
    sum.waited_s += one.waited_s;
  }
  return sum;
}

void SharedLinks::set_observer(const nvme::SharedLink::Observer& observer) {
  for (const auto& link : links_)
    if (link->binds) link->shared.set_observer(observer, kTraceGap);
}

void SharedLinks::end_periods() {
  for (const auto& link : links_) link->shared.end_period();
}

}  // namespace csdsim::platform
