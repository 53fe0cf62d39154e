// Makes a trace of what a reader finds in a file, and checks what all formats have in common.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json_document.h"
#include "host_runtime/traces/prefix_check.h"
#include "host_runtime/traces/read_trace.h"

namespace csdsim::host {

/// What the ids of KV blocks in a file name.
enum class HashMeaning : std::uint8_t {
  prefix,   ///< a block and all before it: an id stands behind the same ids wherever it stands
  contents  ///< the tokens of a block alone: equal prefixes have equal ids in all their blocks
};

class TraceBuilder {
 public:
  /// `block_tokens` is the size of the blocks where neither options nor file say otherwise. Throws UserError for 0.
  TraceBuilder(const std::filesystem::path& path, const ServingTraceOptions& options, HashMeaning meaning,
               std::uint32_t block_tokens);

  /// Whether all requests are there that were asked for.
  bool full() const { return options_.first_requests && trace_.requests.size() >= *options_.first_requests; }
  const ServingTraceOptions& options() const { return options_; }

  /// Begins a request; the functions below add to it.
  void begin_request(std::uint64_t line);
  /// Throws UserError, located, for numbers out of range and for more tokens than the model takes.
  void add_lengths(const LocatedValue& input, std::string_view input_name, const LocatedValue& output,
                   std::string_view output_name, std::uint32_t least_output = 1);
  void add_lengths(const LocatedValue& place, std::uint64_t input, std::uint64_t output);
  /// Throws UserError, located, for an arrival before that of the request above of the same clock.
  void add_arrival(const LocatedValue& place, SimTime arrival, std::uint32_t clock = 0);
  /// The size of blocks that a file states. Throws UserError, located, if it is none, or if another one was asked for.
  void set_block_tokens(const LocatedValue& tokens, std::string_view name);
  std::uint32_t block_tokens() const { return block_tokens_; }
  /// Adds the blocks of the prompt by an array of ids of a scope; ids of different scopes never mean the same. Throws
  /// UserError, located, if there are not as many as the prompt fills, if one of them contradicts HashMeaning::prefix,
  /// and if other requests of the file have ids and this one has none, or the other way round. `row` is the place of
  /// ids that are missing. `whole_only`: the array may leave out a block that is partly filled.
  void add_hash_ids(const std::optional<JsonValue>& ids, std::string_view name, const JsonValue& row,
                    const std::optional<std::uint32_t>& scope = {}, bool whole_only = false);
  /// Adds the blocks of the prompt as they are.
  void add_blocks(std::span<const KvBlockId> blocks);
  void add_dependency(const TraceDependency& dependency);
  /// Puts the request into a session, and returns the request of it before, if there is one.
  std::optional<std::uint32_t> add_session(const std::string& name);
  /// Times of a request that may belong to a session, whose requests wait for one another. Throws UserError, located,
  /// for a delay without an earlier request of the session.
  void add_times(const std::optional<std::string>& session, const std::optional<LocatedValue>& arrival,
                 std::string_view arrival_name, const std::optional<LocatedValue>& delay, std::string_view delay_name,
                 SimTime unit);

  /// The priority of a request, if it has one. Throws UserError, located, unless it is a whole number up to 1,000,000.
  void add_priority(const std::optional<LocatedValue>& priority);

  TracedRequest& request() { return trace_.requests.back(); }
  std::uint32_t request_index() const { return static_cast<std::uint32_t>(trace_.requests.size() - 1); }

  /// Ends the trace, with a note about it where there is one. Throws UserError for a trace without a request.
  ServingTrace finish(const std::string& note = "");

 private:
  struct Session {
    std::uint32_t number = 0;
    std::uint32_t last_request = 0;
  };

  void check_presence(bool has_ids, std::string_view name, const JsonValue& place);
  KvBlockId block_id(const LocatedValue& place, std::uint64_t id, const std::optional<std::uint64_t>& before,
                     const std::optional<std::uint32_t>& scope);

  std::string file_;
  const ServingTraceOptions& options_;
  HashMeaning meaning_;
  std::uint32_t block_tokens_;
  ServingTrace trace_;
  PrefixCheck prefixes_;
  std::map<std::uint32_t, SimTime> clocks_;  ///< last arrivals
  std::unordered_map<std::string, Session> sessions_;
};

/// A time in units of `unit`. Throws UserError, located, unless it is from 0 to 9,000,000 s.
SimTime trace_time(const LocatedValue& value, std::string_view what, SimTime unit);

/// Calls `record` with each record of a file until the trace is full: each line, or each element of one JSON array, or
/// the one value that is the file.
void for_each_record(const std::filesystem::path& path, const TraceBuilder& trace,
                     const std::function<void(JsonValue)>& record);

}  // namespace csdsim::host
