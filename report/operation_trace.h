// Writes the operations of a generation as a trace file.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <string>
#include <utility>

#include "base/trace.h"
#include "host_runtime/core/planner/executor.h"

namespace csdsim::report {

/// Writes the operations of a run as a Chrome trace with one row per resource and mini-batch, and one per shared link.
class OperationTrace {
 public:
  explicit OperationTrace(const std::filesystem::path& path) : sink_(path) {}
  void add(const host::OperationRecord& r) {
    const auto [process, fresh] = processes_.try_emplace(r.resource, 0);
    if (fresh) process->second = sink_.process(host::resource_name(r.resource));
    const auto key = std::pair(r.resource, r.tag.mini_batch.value);
    auto track = tracks_.find(key);
    if (track == tracks_.end())
      track = tracks_.emplace(key, sink_.track(process->second, fmt::format("mini-batch {}", key.second))).first;
    sink_.complete(track->second, host::operation_name(r.kind, r.tag), r.start, r.end - r.start);
  }
  /// A busy period of a link that drives and GPUs share.
  void add_shared(const std::string& link, SimTime start, SimTime end, std::uint64_t bytes) {
    const auto [track, fresh] = shared_.try_emplace(link);
    if (fresh) track->second = sink_.track(sink_.process(link), "busy");
    sink_.complete(track->second, fmt::format("{:.3f} MB", static_cast<double>(bytes) * 1e-6), start, end - start,
                   {{"bytes", bytes}});
  }
  void close() { sink_.close(); }

 private:
  TraceSink sink_;
  std::map<host::Resource, std::uint32_t> processes_;
  std::map<std::string, TraceTrack> shared_;
  std::map<std::pair<host::Resource, std::uint32_t>, TraceTrack> tracks_;
};

}  // namespace csdsim::report
