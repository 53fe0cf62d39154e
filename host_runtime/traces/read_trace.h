// Reads traces of serving systems in the formats in which people have them. One file per format.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "host_runtime/core/serving/serving_trace.h"

namespace csdsim::host {

/// More than any model takes.
inline constexpr std::uint32_t kMostTraceTokens = 16'777'216;
/// Simulated time is in picoseconds.
inline constexpr double kLatestTraceSecond = 9e6;

struct ServingTraceOptions {
  std::string format = {};                           ///< a name of serving_trace_formats(); empty: by the content
  std::optional<std::uint64_t> first_requests = {};  ///< reads no more than these
  /// Tokens per block where the file does not state them. Default: that of the format.
  std::optional<std::uint32_t> block_tokens = {};
  /// Most tokens of a prompt and its answer together.
  std::optional<std::uint32_t> most_positions = {};
  /// Called with what the user should know about the file: "FILE:LINE: note: ...".
  std::function<void(const std::string&)> on_note = {};
  /// Makes tokens of texts.
  std::function<std::vector<std::uint32_t>(std::string_view)> tokenize = {};
};

struct ServingTraceFormat {
  std::string_view name;
  std::string_view description;
  bool written = false;  ///< by write_serving_trace()
};
std::vector<ServingTraceFormat> serving_trace_formats();

/// Reads a trace. Throws UserError "FILE:LINE:COLUMN: error: ..." for what the format does not allow: unknown, missing
/// or repeated fields, lengths out of range or beyond the model, times that run backwards, hashes whose number is not
/// ceil(input / block_tokens) or that stand behind different prefixes. UserError for a file without a request.
ServingTrace read_serving_trace(const std::filesystem::path& path, const ServingTraceOptions& options = {});

/// The text of a file of this format. Throws UserError for a format that is not known or not written, and for requests
/// that it cannot say: without an arrival, or waiting for others than the one before in their session.
std::string write_serving_trace(const ServingTrace& trace, const std::string& format);

}  // namespace csdsim::host
