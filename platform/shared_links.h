// The links that several drives and GPUs share, and which of them a transfer passes.
//
//                    host memory
//                         |
//                   root complex               in: from devices, out: to devices
//        +----------------+----------------+
//        |                |                |
//      switch          drives            GPUs   each on a link of its own
//      |    |
//   drives GPUs
//
// A transfer between a device and host memory passes the root complex once, in or out; one between two devices passes
// it in and out, unless both are behind the switch. What crosses the upstream link of the switch passes `up` or `down`.
// Each GPU's link carries what reaches (in) and leaves (out) the GPU. The link of a drive is part of the drive's model.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nvme_if/core/memory_map.h"
#include "nvme_if/core/shared_link.h"

namespace csdsim::platform {

enum class SharedLinkKind : std::uint8_t { gpu_in, gpu_out, root_in, root_out, switch_up, switch_down };
inline constexpr std::size_t kSharedLinkKinds = 6;
constexpr std::array<std::string_view, kSharedLinkKinds> kSharedLinkNames{
    "gpu_link_in", "gpu_link_out", "root_complex_in", "root_complex_out", "switch_up", "switch_down"};

/// The first `drives` drives and the first `gpus` GPUs are behind the switch.
struct SwitchParams {
  Bandwidth bandwidth = {};  ///< bandwidth of the upstream link, in each direction
  std::uint32_t drives = 0;
  std::uint32_t gpus = 0;
};

/// Payload bytes per second in each direction; unset: no limit.
struct SharedLinksParams {
  std::optional<Bandwidth> gpu_link = {};  ///< peer to peer over the link of a GPU
  std::optional<Bandwidth> root_complex = {};
  std::optional<SwitchParams> upstream = {};
  bool peer_to_peer = true;              ///< drives read and write GPU memory
  std::optional<Bandwidth> copies = {};  ///< rate of copies between host and each GPU; unset: there are none

  bool limited() const { return gpu_link || root_complex || upstream; }
};

/// Payload and busy time of shared links.
struct LinkUse {
  double bytes = 0;
  double busy_s = 0;
  double waited_s = 0;  ///< that transfers waited for others
};

/// Builds the routes of a platform. A link that cannot hold anybody up, because all its senders together are no faster
/// than the link, is left out of the routes: it costs no simulation time, and its use follows from the traffic.
class SharedLinks {
 public:
  SharedLinks(const SharedLinksParams& params, std::uint32_t drives, Bandwidth drive_rate, std::uint32_t gpus);

  /// Sets the routes of drive `index` to the regions of its memory map, whose traffic is counted. Drives come in order.
  void add_drive(std::uint32_t index, nvme::MemoryMap& map, nvme::RegionId host,
                 const std::vector<nvme::RegionId>& gpus);

  std::uint32_t gpus() const { return static_cast<std::uint32_t>(copies_.size()); }
  /// The route of copies between host memory and a GPU; empty where nothing can hold them up.
  const nvme::Route& copy_route(std::uint32_t gpu, bool to_gpu) const { return copies_[gpu][to_gpu ? 1 : 0].route; }
  void count_copy(std::uint32_t gpu, bool to_gpu, Bytes bytes) { copies_[gpu][to_gpu ? 1 : 0].bytes += bytes.value; }

  struct Link {
    SharedLinkKind kind = SharedLinkKind::gpu_in;
    std::uint32_t gpu = 0;  ///< index of a GPU, for a GPU's link
    Bandwidth rate = {};    ///< rate of peer-to-peer transfers, for a GPU's link
    bool binds = false;     ///< its senders together are faster than the link
    nvme::SharedLink shared;
  };
  const std::vector<std::unique_ptr<Link>>& links() const { return links_; }
  /// Use of one link, or of all links of a kind together, since the start.
  LinkUse use(const Link& link) const;
  LinkUse use(SharedLinkKind kind) const;
  bool has(SharedLinkKind kind) const;

  /// Reports the busy periods of the links that bind. Call end_periods() at the end.
  void set_observer(const nvme::SharedLink::Observer& observer);
  void end_periods();

 private:
  struct Device {
    enum class Kind : std::uint8_t { host, drive, gpu } kind = Kind::host;
    std::uint32_t index = 0;
  };
  /// Traffic in one direction between two devices.
  struct Flow {
    nvme::Route route;  ///< route over the links that bind
    nvme::Route rest;   ///< route over the other links
    std::uint64_t bytes = 0;
  };
  struct DriveFlows {
    const nvme::MemoryMap* map = nullptr;
    /// [region][LinkDirection]
    std::vector<std::pair<nvme::RegionId, std::array<Flow, 2>>> regions;
  };

  void add_link(SharedLinkKind kind, std::uint32_t gpu, const std::string& name, Bandwidth rate);
  Link* find(SharedLinkKind kind, std::uint32_t gpu = 0) const;
  bool behind_switch(Device d) const;
  nvme::Route path(Device from, Device to, bool copy) const;
  void find_bounds(std::uint32_t drives, Bandwidth drive_rate, std::uint32_t gpus);
  Flow flow(Device from, Device to, bool copy) const;

  SharedLinksParams params_;
  std::vector<std::unique_ptr<Link>> links_;
  std::vector<DriveFlows> drives_;
  std::vector<std::array<Flow, 2>> copies_;  ///< [gpu][to the GPU]
};

}  // namespace csdsim::platform
