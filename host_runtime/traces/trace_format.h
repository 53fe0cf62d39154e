// What a format of serving traces is to the reader. One file per format; formats() lists them.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>

#include "host_runtime/traces/read_trace.h"

namespace csdsim::host {

struct TraceFormat {
  std::string_view name;
  std::string_view description;
  /// Whether a file that begins so has this format. Called in the order of trace_formats().
  bool (*recognises)(std::string_view beginning);
  ServingTrace (*read)(const std::filesystem::path& path, const ServingTraceOptions& options);
};

extern const TraceFormat kAgenticFormat, kAzureFormat, kBailianFormat, kBurstGptFormat, kLengthsFormat, kMooncakeFormat,
    kShareGptFormat, kWekaFormat;

/// Of a line, which may be a whole session, and of a file that is one JSON text.
inline constexpr std::size_t kLongestTraceLine = std::size_t{256} << 20;
inline constexpr Bytes kLargestTrace = Bytes::gib(2);

/// Whether a JSON text has a member of this name, as far as its beginning says.
inline bool has_key(std::string_view beginning, std::string_view key) {
  for (std::size_t at = beginning.find(key); at != beginning.npos; at = beginning.find(key, at + 1))
    if (at > 0 && beginning[at - 1] == '"' && beginning.substr(at + key.size()).starts_with('"')) return true;
  return false;
}

}  // namespace csdsim::host
