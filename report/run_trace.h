// The trace file of a run: operations of the host, and what the parts of the drives do (docs/traces.md).
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/trace.h"
#include "host_runtime/core/plan/executor.h"
#include "nvme_if/core/shared_link.h"
#include "platform/platform.h"
#include "report/unit_tracks.h"

namespace csdsim::report {

class RunTrace {
 public:
  RunTrace(const std::filesystem::path& path, Bytes limit);
  ~RunTrace();

  /// Traces the host's cores and the drives of a platform, until leave(). Call it before the simulation starts.
  void watch(platform::Platform& platform);
  /// Call it while the modules are there.
  void leave(platform::Platform& platform);
  /// Who traces the flash of a study that has no platform, as a group of tracks called `name`.
  nfc::FlashObservers flash(const std::string& name, const FlashGeometry& geometry);

  void add(const host::OperationRecord& record);
  /// A request of a serving run: its spans are slices of a track that it shares with requests before and after it.
  struct Span {
    std::string_view name;
    SimTime begin, end;
  };
  void add_request(std::uint32_t engine, std::uint64_t request, std::span<const Span> spans, TraceSink::Args args);
  /// A quantity over time.
  void add_counter(std::string_view name, SimTime at, double value);
  /// A busy period of a link that drives and GPUs share.
  void add_shared(const std::string& link, const nvme::SharedLink::Period& period);

  /// Ends the file. Calls `notice`, if there is one, with a line about what is not in it.
  void close(const std::function<void(const std::string&)>& notice);

 private:
  struct DriveGroup {
    std::uint32_t process = 0;
    nvme::SharedLink::Observer internal_link;
  };
  /// The tracks of operations of a resource.
  struct OperationTracks {
    std::uint32_t process = 0;
    std::string name;
    TraceLanes lanes;
    std::vector<TraceTrack> tracks;
  };

  UnitTracks& units(std::uint32_t process, UnitTracks::Style style);
  csd_model::DriveObservers observers_of(std::uint32_t drive, const csd_model::DriveConfig& config);
  nfc::FlashObservers flash_of(std::uint32_t process, const FlashGeometry& geometry);
  std::uint32_t host();
  OperationTracks& tracks_of(host::Resource resource);
  void add_flow(TraceTrack track, const host::OperationRecord& record);

  TraceSink sink_;
  std::uint32_t host_ = 0;
  std::map<std::uint32_t, std::uint32_t> drives_;  ///< process of each drive
  std::vector<std::unique_ptr<UnitTracks>> units_;
  std::map<host::Resource, OperationTracks> operations_;
  std::map<std::uint32_t, OperationTracks> requests_;  ///< by engine
  std::map<std::string, UnitTracks*> shared_;
  std::set<std::uint64_t> flows_;  ///< tokens whose arrows have begun
  bool flash_is_silent_ = false;
};

}  // namespace csdsim::report
