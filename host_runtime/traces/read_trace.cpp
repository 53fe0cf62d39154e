#include "host_runtime/traces/read_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "base/text_file.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

// In the order in which a file is compared with them: the last one of JSON lines and of CSV takes what is left.
const std::array kFormats{&kAgenticFormat,  &kBailianFormat,  &kShareGptFormat, &kWekaFormat,
                          &kMooncakeFormat, &kBurstGptFormat, &kAzureFormat,    &kLengthsFormat};

/// Bytes of whole lines that are enough to tell formats apart.
constexpr std::size_t kBeginning = 4096;

const TraceFormat& format_named(const std::string& name) {
  const auto found = std::ranges::find(kFormats, name, &TraceFormat::name);
  if (found != kFormats.end()) return **found;
  std::vector<std::string> known;
  for (const TraceFormat* format : kFormats) known.emplace_back(format->name);
  throw UserError(fmt::format("there is no trace format '{}'{}; known are {}", printable(name),
                              did_you_mean(name, known), join(known)));
}

const TraceFormat& format_of(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return kWekaFormat;
  TextLines lines(path, kLongestTraceLine);
  std::string beginning;
  while (beginning.size() < kBeginning) {
    const std::optional<std::string_view> line = lines.next();
    if (!line) break;
    beginning += line->substr(line->find_first_not_of(" \t"));
    beginning += '\n';
  }
  if (beginning.empty()) throw UserError(fmt::format("{}: error: holds no request", path.string()));
  for (const TraceFormat* format : kFormats)
    if (format->recognises(beginning)) return *format;
  throw InternalError("a trace that no format takes");
}

}  // namespace

std::vector<ServingTraceFormat> serving_trace_formats() {
  std::vector<ServingTraceFormat> formats;
  for (const TraceFormat* format : kFormats) formats.push_back({format->name, format->description});
  return formats;
}

ServingTrace read_serving_trace(const std::filesystem::path& path, const ServingTraceOptions& options) {
  const TraceFormat& format = options.format.empty() ? format_of(path) : format_named(options.format);
  return format.read(path, options);
}

}  // namespace csdsim::host
