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
  for (const TraceFormat* format : kFormats)
    formats.push_back({format->name, format->description, format->write != nullptr});
  return formats;
}

ServingTrace read_serving_trace(const std::filesystem::path& path, const ServingTraceOptions& options) {
  const auto type = std::filesystem::status(path).type();
  if (type == std::filesystem::file_type::fifo || type == std::filesystem::file_type::character)
    throw UserError(fmt::format("{}: error: a trace is read more than once; write it to a file first", path.string()));
  if (!options.format.empty()) return format_named(options.format).read(path, options);
  const TraceFormat& format = format_of(path);
  try {
    return format.read(path, options);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}\n{}: note: its content looks like the format {}; it was read as that", error.what(),
                                path.string(), format.name));
  }
}

std::string write_serving_trace(const ServingTrace& trace, const std::string& format) {
  const TraceFormat& found = format_named(format);
  if (found.write) return found.write(trace);
  std::vector<std::string> written;
  for (const TraceFormat* each : kFormats)
    if (each->write) written.emplace_back(each->name);
  throw UserError(fmt::format("traces of {} are read, but not written; written are {}", format, join(written)));
}

}  // namespace csdsim::host
