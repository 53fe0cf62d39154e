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

const std::array kFormats{&kMooncakeFormat};

const TraceFormat& format_named(const std::string& name) {
  const auto found = std::ranges::find(kFormats, name, &TraceFormat::name);
  if (found != kFormats.end()) return **found;
  std::vector<std::string> known;
  for (const TraceFormat* format : kFormats) known.emplace_back(format->name);
  throw UserError(fmt::format("there is no trace format '{}'{}; known are {}", printable(name),
                              did_you_mean(name, known), join(known)));
}

const TraceFormat& format_of(const std::filesystem::path& path) {
  TextLines lines(path, kLongestTraceLine);
  const std::optional<std::string_view> first = lines.next();
  if (!first) throw UserError(fmt::format("{}: error: holds no request", path.string()));
  const std::string_view beginning = first->substr(first->find_first_not_of(" \t"));
  for (const TraceFormat* format : kFormats)
    if (format->recognises(beginning)) return *format;
  lines.fail(lines.line(), 1, "not a trace of a known format");
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
