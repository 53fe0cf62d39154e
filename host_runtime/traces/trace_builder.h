// Makes a trace of what a reader finds in a file, and checks what all formats have in common.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json_document.h"
#include "host_runtime/traces/prefix_check.h"
#include "host_runtime/traces/read_trace.h"

namespace csdsim::host {

class TraceBuilder {
 public:
  /// Throws UserError for blocks of 0 tokens.
  TraceBuilder(const std::filesystem::path& path, const ServingTraceOptions& options);

  /// Whether all requests are there that were asked for.
  bool full() const { return options_.first_requests && trace_.requests.size() >= *options_.first_requests; }
  const ServingTraceOptions& options() const { return options_; }

  /// Begins a request; the functions below add to it.
  void begin_request(std::uint64_t line);
  /// Reads the lengths. Throws UserError, located, for numbers out of range, and for more tokens than the model takes.
  void add_lengths(const LocatedValue& input, std::string_view input_name, const LocatedValue& output,
                   std::string_view output_name, std::uint32_t least_output = 1);
  /// Throws UserError, located, for an arrival before the one of the request above.
  void add_arrival(const LocatedValue& place, SimTime arrival);
  /// The size of the blocks, if the file has any.
  void set_block_tokens(std::uint32_t tokens) { block_tokens_ = tokens; }
  /// Adds the blocks of the prompt by an array of ids. Throws UserError, located, if there are not as many as the
  /// prompt fills, if one of them stands behind another block elsewhere, and if other requests of the file have ids and
  /// this one has none, or the other way round. `row` is the place for ids that are missing.
  void add_hash_ids(const std::optional<JsonValue>& ids, std::string_view name, const JsonValue& row);
  void add_dependency(const TraceDependency& dependency);
  /// Puts the request into a session, and returns the request of it before, if there is one.
  std::optional<std::uint32_t> add_session(const std::string& name);

  TracedRequest& request() { return trace_.requests.back(); }
  std::uint32_t request_index() const { return static_cast<std::uint32_t>(trace_.requests.size() - 1); }

  /// Throws UserError for a trace without a request.
  ServingTrace finish();

 private:
  struct Session {
    std::uint32_t number = 0;
    std::uint32_t last_request = 0;
  };

  void add_block(const LocatedValue& place, KvBlockId id);

  std::string file_;
  const ServingTraceOptions& options_;
  ServingTrace trace_;
  std::uint32_t block_tokens_ = 0;
  PrefixCheck prefixes_;
  std::optional<SimTime> last_arrival_;
  std::unordered_map<std::string, Session> sessions_;
};

/// A time in units of `unit`, such as 1,000 ms. Throws UserError, located, unless it is from 0 to 9,000,000 s.
SimTime trace_time(const LocatedValue& value, std::string_view what, SimTime unit);

}  // namespace csdsim::host
