// The interface of a format of serving traces. One file per format; formats() lists them.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "host_runtime/traces/read_trace.h"

namespace csdsim::host {

struct TraceFormat {
  std::string_view name;
  std::string_view description;
  /// Whether a file that begins so has this format. Called in the order of trace_formats().
  bool (*recognises)(std::string_view beginning);
  ServingTrace (*read)(const std::filesystem::path& path, const ServingTraceOptions& options);
  /// The text of a file; null where the project writes none. Throws UserError for what the format cannot say.
  std::string (*write)(const ServingTrace& trace) = nullptr;
};

/// Throws UserError unless all requests have arrivals.
void require_arrivals(const ServingTrace& trace, std::string_view format);
/// The request of the same session before this one, if that is all that it waits for. Throws UserError otherwise.
std::optional<TraceDependency> dependency_of(const ServingTrace& trace, const TracedRequest& request,
                                             std::string_view format);
/// "3.25" for 3,250 ms in units of seconds: exact, without trailing zeros.
std::string time_text(SimTime time, SimTime unit);
/// "[0, 1, 2]"
std::string id_list(std::span<const KvBlockId> ids);

extern const TraceFormat kAgenticFormat, kAzureFormat, kBailianFormat, kBurstGptFormat, kLengthsFormat, kMooncakeFormat,
    kShareGptFormat, kWekaFormat;

/// Limits of a line, which may be a whole session, and of a file that is one JSON text.
inline constexpr std::size_t kLongestTraceLine = std::size_t{256} << 20;
inline constexpr Bytes kLargestTrace = Bytes::gib(2);

/// Whether a JSON text has a member of this name, as far as its beginning says.
inline bool has_key(std::string_view beginning, std::string_view key) {
  for (std::size_t at = beginning.find(key); at != beginning.npos; at = beginning.find(key, at + 1))
    if (at > 0 && beginning[at - 1] == '"' && beginning.substr(at + key.size()).starts_with('"')) return true;
  return false;
}

/// Whether a text begins as JSON does: an object, or an array of them.
inline bool begins_json(std::string_view beginning) { return beginning.starts_with('{') || beginning.starts_with('['); }

}  // namespace csdsim::host
