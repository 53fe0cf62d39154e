#include "host_runtime/traces/trace_builder.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/error.h"

namespace csdsim::host {
namespace {

std::string behind(const std::optional<KvBlockId>& parent) {
  return parent ? fmt::format("behind {}", parent->value) : "at the start of a prompt";
}

}  // namespace

TraceBuilder::TraceBuilder(const std::filesystem::path& path, const ServingTraceOptions& options)
    : file_(path.string()), options_(options) {
  if (options.block_tokens == 0U) throw UserError(fmt::format("{}: error: KV blocks of 0 tokens", file_));
  trace_.name = path.filename().string();
}

void TraceBuilder::begin_request(std::uint64_t line) {
  TracedRequest& request = trace_.requests.emplace_back();
  request.line = line;
  request.first_block = trace_.blocks.size();
  request.first_dependency = trace_.dependencies.size();
}

void TraceBuilder::add_lengths(const LocatedValue& input, std::string_view input_name, const LocatedValue& output,
                               std::string_view output_name, std::uint32_t least_output) {
  TracedRequest& r = request();
  r.input_tokens = static_cast<std::uint32_t>(whole_number(input, input_name, 1, kMostTraceTokens));
  r.output_tokens = static_cast<std::uint32_t>(whole_number(output, output_name, least_output, kMostTraceTokens));
  if (options_.most_positions && r.input_tokens + r.output_tokens > *options_.most_positions)
    input.fail(fmt::format("{} tokens ({} in, {} out) exceed the {} positions of the model",
                           r.input_tokens + r.output_tokens, r.input_tokens, r.output_tokens,
                           *options_.most_positions));
}

void TraceBuilder::add_arrival(const LocatedValue& place, SimTime arrival) {
  if (last_arrival_ && arrival < *last_arrival_)
    place.fail("arrives before the request in the line above; sort the file by arrival");
  request().arrival = last_arrival_ = arrival;
}

void TraceBuilder::add_block(const LocatedValue& place, KvBlockId id) {
  TracedRequest& r = request();
  const std::optional<KvBlockId> parent = r.blocks == 0 ? std::nullopt : std::optional(trace_.blocks.back());
  if (const auto first = prefixes_.contradiction(id, parent, r.line))
    place.fail(fmt::format("block {} stands {} here, but {} in line {}; equal ids mean equal prefixes", id.value,
                           behind(parent), behind(first->parent), first->line));
  trace_.blocks.push_back(id);
  ++r.blocks;
}

void TraceBuilder::add_hash_ids(const std::optional<JsonValue>& ids, std::string_view name, const JsonValue& row) {
  if (trace_.requests.size() == 1 && ids) trace_.block_tokens = block_tokens_;
  if (ids.has_value() != trace_.block_tokens.has_value())
    ids ? ids->fail(fmt::format("{}: the requests above have none", name))
        : row.fail(fmt::format("no {}, which the requests above have", name));
  if (!ids) return;
  ids->for_each(
      name, [&](JsonValue id) { add_block(id.located(), {whole_number(id.located(), name, 0, ~std::uint64_t{0})}); });
  const TracedRequest& r = request();
  if (const std::uint32_t expected = (r.input_tokens + block_tokens_ - 1) / block_tokens_; r.blocks != expected)
    ids->fail(fmt::format("{}: {} ids for {} tokens, which fill {} blocks of {}", name, r.blocks, r.input_tokens,
                          expected, block_tokens_));
}

void TraceBuilder::add_dependency(const TraceDependency& dependency) {
  trace_.dependencies.push_back(dependency);
  ++request().dependencies;
}

std::optional<std::uint32_t> TraceBuilder::add_session(const std::string& name) {
  const std::uint32_t index = request_index();
  const auto [found, is_new] =
      sessions_.try_emplace(name, Session{static_cast<std::uint32_t>(sessions_.size()), index});
  Session& session = found->second;
  request().session = session.number;
  if (is_new) return std::nullopt;
  return std::exchange(session.last_request, index);
}

ServingTrace TraceBuilder::finish() {
  if (trace_.requests.empty()) throw UserError(fmt::format("{}: error: holds no request", file_));
  return std::move(trace_);
}

SimTime trace_time(const LocatedValue& value, std::string_view what, SimTime unit) {
  const double most = kLatestTraceSecond / unit.seconds();
  return SimTime{std::llround(real_number(value, what, 0, most) * static_cast<double>(unit.ps))};
}

}  // namespace csdsim::host
