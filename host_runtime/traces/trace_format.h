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

extern const TraceFormat kMooncakeFormat;

/// A line is the prompt of a request, or a whole session.
inline constexpr std::size_t kLongestTraceLine = std::size_t{256} << 20;

/// Whether a JSON text has a member of this name, as far as its beginning says.
inline bool has_key(std::string_view beginning, std::string_view key) {
  for (std::size_t at = beginning.find(key); at != beginning.npos; at = beginning.find(key, at + 1))
    if (at > 0 && beginning[at - 1] == '"' && beginning.substr(at + key.size()).starts_with('"')) return true;
  return false;
}

}  // namespace csdsim::host
