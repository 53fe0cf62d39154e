#include "host_runtime/traces/trace_builder.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "base/text_file.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

std::string behind(const std::optional<std::uint64_t>& parent) {
  return parent ? fmt::format("behind {}", *parent) : "at the start of a prompt";
}

}  // namespace

TraceBuilder::TraceBuilder(const std::filesystem::path& path, const ServingTraceOptions& options, HashMeaning meaning,
                           std::uint32_t block_tokens)
    : file_(path.string()),
      options_(options),
      meaning_(meaning),
      block_tokens_(options.block_tokens.value_or(block_tokens)) {
  if (block_tokens_ == 0) throw UserError(fmt::format("{}: error: KV blocks of 0 tokens", file_));
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
  add_lengths(input, whole_number(input, input_name, 1, kMostTraceTokens),
              whole_number(output, output_name, least_output, kMostTraceTokens));
}

void TraceBuilder::add_lengths(const LocatedValue& place, std::uint64_t input, std::uint64_t output) {
  if (options_.most_positions && input + output > *options_.most_positions)
    place.fail(fmt::format("{} tokens ({} in, {} out) exceed the {} positions of the model", input + output, input,
                           output, *options_.most_positions));
  if (input > kMostTraceTokens || output > kMostTraceTokens)
    place.fail(fmt::format("{} tokens in and {} out, more than {}", input, output, kMostTraceTokens));
  request().prompt = static_cast<std::uint32_t>(input);
  request().output = static_cast<std::uint32_t>(output);
}

void TraceBuilder::add_arrival(const LocatedValue& place, SimTime arrival, std::uint32_t clock) {
  const auto [last, is_first] = clocks_.try_emplace(clock, arrival);
  if (arrival < last->second) place.fail("arrives before the request in the line above; sort the file by arrival");
  request().set_arrival(last->second = arrival);
}

void TraceBuilder::add_priority(const std::optional<LocatedValue>& priority) {
  if (priority) request().priority = static_cast<std::uint32_t>(whole_number(*priority, "priority", 0, 1'000'000));
}

void TraceBuilder::set_block_tokens(const LocatedValue& tokens, std::string_view name) {
  const std::uint64_t stated = whole_number(tokens, name, 1, kMostTraceTokens);
  if (options_.block_tokens && *options_.block_tokens != stated)
    tokens.fail(fmt::format("{}: the blocks have {} tokens, not {}", name, stated, *options_.block_tokens));
  if (trace_.block_tokens && *trace_.block_tokens != stated)
    tokens.fail(fmt::format("{}: blocks of {} tokens, but of {} before", name, stated, *trace_.block_tokens));
  block_tokens_ = static_cast<std::uint32_t>(stated);
}

void TraceBuilder::check_presence(bool has_ids, std::string_view name, const JsonValue& place) {
  if (trace_.requests.size() == 1 && has_ids) trace_.block_tokens = block_tokens_;
  if (has_ids == trace_.block_tokens.has_value()) return;
  place.fail(has_ids ? fmt::format("{}: the requests above have none", name)
                     : fmt::format("no {}, which the requests above have", name));
}

KvBlockId TraceBuilder::block_id(const LocatedValue& place, std::uint64_t id,
                                 const std::optional<std::uint64_t>& before,
                                 const std::optional<std::uint32_t>& scope) {
  if (meaning_ == HashMeaning::contents) {
    const KvBlockId parent = before ? trace_.blocks.back() : chain_root(scope ? *scope + 1 : 0);
    return chained_id(parent, std::array{static_cast<std::uint32_t>(id >> 32), static_cast<std::uint32_t>(id)});
  }
  const KvBlockId block{scope ? splitmix64(splitmix64(*scope) ^ id) : id};
  if (const auto first = prefixes_.contradiction(block, before, request().line))
    place.fail(fmt::format("block {} stands {} here, but {} in line {}; equal ids mean equal prefixes", id,
                           behind(before), behind(first->parent), first->line));
  return block;
}

void TraceBuilder::add_hash_ids(const std::optional<JsonValue>& ids, std::string_view name, const JsonValue& row,
                                const std::optional<std::uint32_t>& scope, bool whole_only) {
  check_presence(ids.has_value(), name, ids ? *ids : row);
  if (!ids) return;
  TracedRequest& r = request();
  std::optional<std::uint64_t> before;
  ids->for_each(name, [&](JsonValue each) {
    const std::uint64_t id = whole_number(each.located(), name, 0, ~std::uint64_t{0});
    trace_.blocks.push_back(block_id(each.located(), id, before, scope));
    before = id;
    ++r.blocks;
  });
  const std::uint32_t whole = r.prompt / block_tokens_;
  const std::uint32_t expected = whole + (r.prompt % block_tokens_ != 0 ? 1 : 0);
  if (r.blocks != expected && !(whole_only && r.blocks == whole))
    ids->fail(fmt::format("{}: {} ids for {} tokens, which fill {} blocks of {}", name, r.blocks, r.prompt, expected,
                          block_tokens_));
}

void TraceBuilder::add_blocks(std::span<const KvBlockId> blocks) {
  trace_.block_tokens = block_tokens_;
  trace_.blocks.insert(trace_.blocks.end(), blocks.begin(), blocks.end());
  request().blocks = static_cast<std::uint32_t>(blocks.size());
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

void TraceBuilder::add_times(const std::optional<std::string>& session, const std::optional<LocatedValue>& arrival,
                             std::string_view arrival_name, const std::optional<LocatedValue>& delay,
                             std::string_view delay_name, SimTime unit) {
  std::optional<std::uint32_t> before;
  if (session) before = add_session(*session);
  if (arrival) add_arrival(*arrival, trace_time(*arrival, arrival_name, unit));
  if (delay && !before)
    delay->fail(fmt::format("{}: there is no earlier request of the same session to count from", delay_name));
  if (before) add_dependency({.request = *before, .delay = delay ? trace_time(*delay, delay_name, unit) : SimTime{}});
}

ServingTrace TraceBuilder::finish(const std::string& note) {
  if (trace_.requests.empty()) throw UserError(fmt::format("{}: error: holds no request", file_));
  if (!note.empty() && options_.on_note) options_.on_note(note);
  return std::move(trace_);
}

SimTime trace_time(const LocatedValue& value, std::string_view what, SimTime unit) {
  const double most = kLatestTraceSecond / unit.seconds();
  return SimTime{std::llround(real_number(value, what, 0, most) * static_cast<double>(unit.ps))};
}

void for_each_record(const std::filesystem::path& path, const TraceBuilder& trace,
                     const std::function<void(JsonValue)>& record) {
  TextLines lines(path, kLongestTraceLine);
  JsonDocument document;
  std::optional<std::string_view> line = lines.next();
  if (line && line->find_last_not_of(" \t") == line->rfind('}')) {
    for (; line && !trace.full(); line = lines.next())
      record(document.read(lines.file(), *line, lines.line(), lines.torn_remark()));
    return;
  }
  const std::string text = read_text_file(path, kLargestTrace);
  document.read_each(path.string(), text, [&](JsonValue each) {
    if (!trace.full()) record(each);
  });
}

}  // namespace csdsim::host
