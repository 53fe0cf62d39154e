#include "host_runtime/sysc/drive_kv_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/plan/planner.h"
#include "host_runtime/sysc/kv_sections.h"
#include "nfc/sysc/sim_time.h"
#include "nvme_if/spec/attend_method.h"

namespace csdsim::host {

namespace {

nvme::KvAttend attend_command(const Operation& op, const DriveKvBackend::Shape& shape, std::size_t n,
                              std::uint32_t total_heads) {
  const auto& work = std::get<DriveWork>(op.work);
  return {.layer = *op.tag.layer,
          .n = static_cast<std::uint16_t>(n),
          .method = nvme::attend_method(work.method, work.partial),
          .group = static_cast<std::uint8_t>(shape.group),
          .head_dim = static_cast<std::uint16_t>(shape.head_dim),
          .total_heads = total_heads,
          .row_words = shape.kv.quantised() ? shape.row_words() : std::uint16_t{0}};
}

/// Work that depends on data may turn out to be nothing.
bool has_no_sequences(const Work& work) {
  return std::visit(
      [](const auto& of) {
        if constexpr (requires { of.sequences; })
          return of.sequences.empty();
        else
          return false;
      },
      work);
}

}  // namespace

DriveKvBackend::DriveKvBackend(DriveCommands& commands, const Shape& shape, OperationData* data)
    : commands_(commands),
      shape_(shape),
      data_(data),
      division_(shape.shard, shape.kv_heads, commands.platform().drives()) {}

KvHead DriveKvBackend::in_drive(const Running& running, KvHead head) const {
  return KvHead{head.value - division_.heads(DriveIndex{running->drive()}).first.value};
}

std::uint64_t DriveKvBackend::mdts(const Running& running) {
  return commands_.platform().driver(running->drive()).mdts().value;
}

nvme::AttendDescriptor DriveKvBackend::descriptor(const Running& running, SequenceId sequence, HeadRange heads) const {
  return {.sequence = sequence.value,
          .first_head = static_cast<std::uint16_t>(in_drive(running, heads.first).value),
          .head_count = static_cast<std::uint16_t>(heads.count)};
}

std::optional<SimTime> DriveKvBackend::start(const Operation& op, SimTime now) {
  const auto refuse = [&] {
    throw InternalError(fmt::format("{} is not an operation of the KV namespace of {}", operation_name(op.kind, op.tag),
                                    resource_name(op.resource)));
  };
  if (op.resource.kind != ResourceKind::drive_kv) refuse();
  if (has_no_sequences(op.work)) return SimTime{};
  const Running running = commands_.begin_batch(op, now);
  switch (op.kind) {
    case OpKind::append_kv:
      start_append(op, running);
      break;
    case OpKind::attend:
      start_attend(op, running);
      break;
    case OpKind::score_kv:
      start_score(op, running);
      break;
    case OpKind::fetch_kv:
      start_fetch(op, running);
      break;
    case OpKind::create_kv:
    case OpKind::fork_kv:
    case OpKind::free_kv:
      start_sequences(op, running);
      break;
    default:
      refuse();
  }
  commands_.end_batch(running);
  return std::nullopt;
}

void DriveKvBackend::start_append(const Operation& op, const Running& running) {
  const auto& work = std::get<DriveWork>(op.work);
  const std::uint64_t most = mdts(running);
  const std::uint64_t token_bytes = std::uint64_t{shape_.row_words()} * 4;  // K and V of one head
  for (std::size_t index = 0; index < work.sequences.size(); ++index) {
    // Append whole heads if one fits in a command: full windows then come in one command and need no read-back.
    const std::uint64_t tokens_fit = std::min<std::uint64_t>(most / token_bytes, 0xFFFF);
    const auto token_step =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(work.sequences[index].tokens, tokens_fit));
    const auto step = static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(most / (token_bytes * token_step), 1, head_step(work.heads)));
    for (std::uint32_t head = 0; head < work.heads.count; head += step)
      append_part(op, running, index, {KvHead{work.heads.first.value + head}, std::min(step, work.heads.count - head)},
                  token_step);
  }
}

void DriveKvBackend::append_part(const Operation& op, const Running& running, std::size_t index, HeadRange heads,
                                 std::uint32_t token_step) {
  const auto& work = std::get<DriveWork>(op.work);
  const SequenceWork& s = work.sequences[index];
  // The drive requires the tokens of a head in order, which a single queue preserves.
  const nvme::QueueId queue = commands_.next_queue(running->drive());
  for (std::uint32_t token = 0; token < s.tokens; token += token_step) {
    const std::uint32_t count = std::min(token_step, s.tokens - token);
    const nvme::KvAppend command{.sequence = s.sequence,
                                 .layer = *op.tag.layer,
                                 .first_token = TokenIndex{s.first_token.value + token},
                                 .token_count = static_cast<std::uint16_t>(count),
                                 .first_head = in_drive(running, heads.first),
                                 .head_count = static_cast<std::uint16_t>(heads.count)};
    const DriveCommands::Buffer buffer =
        commands_.allocate(work.memory, nvme::append_size(command, shape_.row_words()));
    if (data_ != nullptr) {
      const std::size_t elements = std::size_t{heads.count} * count * shape_.head_dim;
      std::vector<Half> k(elements), v(elements);
      data_->load_append(op, index, token, count, heads, k, v);
      write_rows(k, buffer.bytes);
      write_rows(v, buffer.bytes + nvme::append_size(command, shape_.row_words()).value / 2);
    }
    commands_.submit(running, queue, nvme::encode(kKvNamespace, command, shape_.row_words()), buffer,
                     fmt::format("appending to sequence {} layer {}", s.sequence.value, op.tag.layer->value),
                     [this, buffer] { commands_.release(buffer); });
  }
}

void DriveKvBackend::write_rows(std::span<const Half> rows, std::byte* to) const {
  if (!shape_.kv.quantised()) {
    if (!rows.empty()) std::memcpy(to, rows.data(), rows.size_bytes());
    return;
  }
  const std::size_t d = shape_.head_dim, row = std::size_t{shape_.row_words()} * sizeof(Half);
  for (; !rows.empty(); rows = rows.subspan(d), to += row) shape_.kv.restore(rows.first(d), {to, row});
}

std::vector<std::vector<DriveKvBackend::Part>> DriveKvBackend::cut(
    const Operation& op, std::size_t sequences, HeadRange heads, std::uint32_t head_step,
    const std::function<bool(const std::vector<Part>&, std::uint32_t)>& fits) const {
  const auto one_fits = [&](std::size_t index) { return fits({{index, {heads.first, head_step}}}, head_step); };
  for (std::size_t index = 0; index < sequences; ++index) {
    while (head_step > 1 && !one_fits(index)) head_step = (head_step + 1) / 2;
    if (!one_fits(index))
      throw UserError(fmt::format("{}: one head of a sequence exceeds the drive's largest transfer (mdts)",
                                  operation_name(op.kind, op.tag)));
  }
  const std::size_t most_parts =
      shape_.granularity == nvme::Granularity::layer_mini_batch ? 0xFFFF : 1;  // 16-bit count, or one descriptor
  std::vector<std::vector<Part>> commands;
  std::vector<Part> parts;
  std::uint32_t heads_in_parts = 0;
  for (std::size_t index = 0; index < sequences; ++index)
    for (std::uint32_t head = 0; head < heads.count; head += head_step) {
      const HeadRange some{KvHead{heads.first.value + head}, std::min(head_step, heads.count - head)};
      parts.push_back({index, some});
      if (parts.size() > 1 && (parts.size() > most_parts || !fits(parts, heads_in_parts + some.count))) {
        parts.pop_back();
        commands.push_back(std::exchange(parts, {{index, some}}));
        heads_in_parts = 0;
      }
      heads_in_parts += some.count;
    }
  if (!parts.empty()) commands.push_back(std::move(parts));
  return commands;
}

void DriveKvBackend::start_attend(const Operation& op, const Running& running) {
  const auto& work = std::get<DriveWork>(op.work);
  const std::uint64_t most = mdts(running);
  const auto fits = [&](const std::vector<Part>& parts, std::uint32_t heads) {
    return nvme::attend_layout(attend_command(op, shape_, parts.size(), heads)).size.value <= most;
  };
  for (const auto& parts : cut(op, work.sequences.size(), work.heads, head_step(work.heads), fits))
    submit_attend(op, running, parts);
}

void DriveKvBackend::submit_attend(const Operation& op, const Running& running, const std::vector<Part>& parts) {
  const auto& work = std::get<DriveWork>(op.work);
  std::uint32_t total_heads = 0;
  for (const Part& part : parts) total_heads += part.heads.count;
  const nvme::KvAttend command = attend_command(op, shape_, parts.size(), total_heads);
  const nvme::AttendLayout layout = nvme::attend_layout(command);
  const auto attempt =
      std::make_shared<Attempt>(Attempt{op, running, command, commands_.allocate(work.memory, layout.size), {}, parts});
  std::byte* const base = attempt->buffer.bytes;

  const std::size_t d = shape_.head_dim;
  const bool sparf = work.method == Method::sparf;
  std::size_t head_offset = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    const SequenceWork& s = work.sequences[part.index];
    nvme::AttendDescriptor descriptor = this->descriptor(running, s.sequence, part.heads);
    descriptor.token = s.context() - 1;
    if (s.tokens > 0) descriptor.flags |= nvme::attend_flag::append;
    if (lost_ != nullptr && lost_->left_out()) descriptor.flags |= nvme::attend_flag::drop_lost;
    if (sparf) {
      descriptor.r = static_cast<std::uint16_t>(work.components);
      descriptor.k = s.top_k;
      descriptor.l = s.local;
    }
    std::memcpy(base + i * sizeof(descriptor), &descriptor, sizeof(descriptor));
    attempt->descriptors.push_back(descriptor);
    if (data_ != nullptr) {
      const std::size_t count = part.heads.count * d, first = head_offset * shape_.row_words() * sizeof(Half);
      std::vector<Half> k(s.tokens > 0 ? count : 0), v(k.size());
      std::byte* const q = base + layout.q.value + head_offset * d * shape_.group * sizeof(Half);
      data_->load_attend(op, part.index, part.heads, halves(q, count * shape_.group), k, v);
      write_rows(k, base + layout.k.value + first);
      write_rows(v, base + layout.v.value + first);
    }
    head_offset += part.heads.count;
  }

  send(attempt);
}

void DriveKvBackend::send(const AttemptPtr& attempt) {
  DriveCommands::Lost lost;
  if (lost_ != nullptr && !lost_->left_out()) lost = [this, attempt](std::uint32_t pages) { recover(attempt, pages); };
  const auto done = [this, attempt] {
    if (data_ != nullptr)
      store_outputs(attempt->op, attempt->buffer.bytes, nvme::attend_layout(attempt->command), attempt->parts);
    commands_.release(attempt->buffer);
  };
  commands_.submit(attempt->running, commands_.next_queue(attempt->running->drive()),
                   nvme::encode(kKvNamespace, attempt->command), attempt->buffer,
                   operation_name(attempt->op.kind, attempt->op.tag), done, lost);
}

void DriveKvBackend::store_outputs(const Operation& op, std::byte* buffer, const nvme::AttendLayout& layout,
                                   const std::vector<Part>& parts) {
  const bool partial = std::get<DriveWork>(op.work).partial;
  std::byte* out = buffer + layout.out.value;
  std::byte* softmax = buffer + layout.softmax.value;
  for (const Part& part : parts) {
    const std::size_t queries = std::size_t{part.heads.count} * shape_.group;
    const std::span<const Half> rows = halves(out, queries * shape_.head_dim);
    if (partial) {
      data_->store_partial(op, part.index, part.heads, rows, floats(softmax, queries * 2));
    } else {
      data_->store_output(op, part.index, part.heads, rows);
    }
    out += rows.size_bytes();
    softmax += queries * 2 * sizeof(float);
  }
}

namespace {

/// Most tokens of a page: a page holds a power of two of them.
constexpr std::uint32_t kPageTokens = 256;

nvme::KvScore score_command(const Operation& op, const DriveKvBackend::Shape& shape, std::size_t n, std::uint32_t heads,
                            std::uint64_t scores) {
  const auto& work = std::get<ScoreWork>(op.work);
  return {.layer = *op.tag.layer,
          .n = static_cast<std::uint16_t>(n),
          .group = static_cast<std::uint8_t>(shape.group),
          .head_dim = static_cast<std::uint16_t>(shape.head_dim),
          .total_heads = heads,
          .total_scores = static_cast<std::uint32_t>(scores),
          .precision = work.precision,
          .aggregate = work.aggregate};
}

}  // namespace

std::vector<DriveKvBackend::ScoredRange> DriveKvBackend::scored_ranges(const Operation& op, std::uint32_t heads,
                                                                       std::uint64_t most) const {
  const auto& work = std::get<ScoreWork>(op.work);
  const std::uint64_t before = nvme::score_layout(score_command(op, shape_, 1, heads, 0)).size.value;
  // Scores end on a multiple of the alignment, and a cut at a multiple of 256 tokens is one between pages.
  std::uint64_t fit = most < before ? 0 : (most - before) / nvme::kKvSectionAlignment * nvme::kKvSectionAlignment;
  fit /= sizeof(float) * work.lists(heads);
  if (fit > kPageTokens) fit -= fit % kPageTokens;
  if (fit == 0)
    throw UserError(
        fmt::format("{}: the scores of one token and its queries exceed the drive's largest transfer (mdts)",
                    operation_name(op.kind, op.tag)));
  std::vector<ScoredRange> ranges;
  for (std::size_t index = 0; index < work.sequences.size(); ++index) {
    const ScoreWork::Sequence& s = work.sequences[index];
    for (std::uint32_t first = s.first; first < s.context;) {
      // The first cut of a range that begins within a page ends between pages, too.
      const std::uint64_t end = fit > kPageTokens ? (first + fit) / kPageTokens * kPageTokens : first + fit;
      const auto tokens = static_cast<std::uint32_t>(std::min<std::uint64_t>(end, s.context) - first);
      ranges.push_back({index, first, tokens});
      first += tokens;
    }
  }
  return ranges;
}

void DriveKvBackend::start_score(const Operation& op, const Running& running) {
  const auto& work = std::get<ScoreWork>(op.work);
  const std::uint64_t most = mdts(running);
  // One list over all heads needs them in one descriptor, also where a command attends to one head.
  const bool together = work.aggregate != ScoreAggregate::per_head;
  const std::uint32_t step = together ? work.heads.count : head_step(work.heads);
  const std::vector<ScoredRange> ranges = scored_ranges(op, together ? step : 1, most);
  const auto fits = [&](const std::vector<Part>& parts, std::uint32_t heads) {
    std::uint64_t scores = 0;
    for (const Part& part : parts) scores += std::uint64_t{work.lists(part.heads.count)} * ranges[part.index].tokens;
    return scores * sizeof(float) <= most &&
           nvme::score_layout(score_command(op, shape_, parts.size(), heads, scores)).size.value <= most;
  };
  for (const auto& parts : cut(op, ranges.size(), work.heads, step, fits)) submit_score(op, running, ranges, parts);
}

void DriveKvBackend::submit_score(const Operation& op, const Running& running, const std::vector<ScoredRange>& ranges,
                                  const std::vector<Part>& parts) {
  const auto& work = std::get<ScoreWork>(op.work);
  struct Lists {
    std::size_t index;
    HeadRange heads;
    std::uint32_t first;
    std::size_t count;  ///< number of scores
  };
  std::vector<Lists> lists;
  std::uint32_t heads = 0;
  std::uint64_t scores = 0;
  for (const Part& part : parts) {
    const ScoredRange& range = ranges[part.index];
    lists.push_back({range.index, part.heads, range.first, std::size_t{work.lists(part.heads.count)} * range.tokens});
    heads += part.heads.count;
    scores += lists.back().count;
  }
  const nvme::KvScore command = score_command(op, shape_, parts.size(), heads, scores);
  const nvme::ScoreLayout layout = nvme::score_layout(command);
  const DriveCommands::Buffer buffer = commands_.allocate(work.memory, layout.size);
  std::byte* q = buffer.bytes + layout.q.value;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const ScoredRange& range = ranges[parts[i].index];
    nvme::AttendDescriptor descriptor = this->descriptor(running, work.sequences[range.index].sequence, parts[i].heads);
    descriptor.first_token = range.first;
    descriptor.token = range.first + range.tokens - 1;
    std::memcpy(buffer.bytes + i * sizeof(descriptor), &descriptor, sizeof(descriptor));
    const std::size_t count = std::size_t{parts[i].heads.count} * shape_.group * shape_.head_dim;
    if (data_ != nullptr) data_->load_queries(op, range.index, parts[i].heads, halves(q, count));
    q += count * sizeof(Half);
  }
  commands_.submit(running, commands_.next_queue(running->drive()), nvme::encode(kKvNamespace, command), buffer,
                   operation_name(op.kind, op.tag), [this, &op, buffer, layout, lists] {
                     std::byte* at = buffer.bytes + layout.scores.value;
                     for (const Lists& part : lists) {
                       if (data_ != nullptr)
                         data_->store_scores(op, part.index, part.heads, part.first, floats(at, part.count));
                       at += part.count * sizeof(float);
                     }
                     commands_.release(buffer);
                   });
}

void DriveKvBackend::start_fetch(const Operation& op, const Running& running) {
  const auto& work = std::get<FetchWork>(op.work);
  const std::uint64_t most = mdts(running);
  const std::uint64_t row = std::uint64_t{shape_.head_dim} * 4;  // K and V of one token and head
  const std::uint64_t fixed = 4 * nvme::kKvSectionAlignment;     // the descriptor and padding for alignment
  for (std::size_t index = 0; index < work.sequences.size(); ++index) {
    const auto tokens = static_cast<std::uint32_t>(work.sequences[index].tokens.size());
    if (tokens == 0) continue;
    const std::uint64_t fit = most < fixed ? 0 : (most - fixed) / (row + sizeof(std::uint32_t));
    if (fit == 0)
      throw UserError(fmt::format("{}: one row of K and V exceeds the drive's largest transfer (mdts)",
                                  operation_name(op.kind, op.tag)));
    const auto token_step = static_cast<std::uint32_t>(std::min<std::uint64_t>(tokens, fit));
    const auto step = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(
        (most - fixed - token_step * sizeof(std::uint32_t)) / (row * token_step), 1, head_step(work.heads)));
    for (std::uint32_t head = 0; head < work.heads.count; head += step)
      for (std::uint32_t first = 0; first < tokens; first += token_step)
        submit_fetch(op, running, index,
                     {KvHead{work.heads.first.value + head}, std::min(step, work.heads.count - head)}, first,
                     std::min(token_step, tokens - first));
  }
}

void DriveKvBackend::submit_fetch(const Operation& op, const Running& running, std::size_t index, HeadRange heads,
                                  std::uint32_t first, std::uint32_t count) {
  const auto& work = std::get<FetchWork>(op.work);
  const FetchWork::Sequence& s = work.sequences[index];
  const nvme::KvFetch command{.layer = *op.tag.layer,
                              .head_dim = static_cast<std::uint16_t>(shape_.head_dim),
                              .token_count = count,
                              .head_count = static_cast<std::uint16_t>(heads.count)};
  const nvme::FetchLayout layout = nvme::fetch_layout(command);
  const DriveCommands::Buffer buffer = commands_.allocate(work.memory, layout.size);
  const nvme::AttendDescriptor descriptor = this->descriptor(running, s.sequence, heads);
  std::memcpy(buffer.bytes, &descriptor, sizeof(descriptor));
  for (std::uint32_t t = 0; t < count; ++t)
    std::memcpy(buffer.bytes + layout.tokens.value + t * sizeof(std::uint32_t), &s.tokens[first + t].value,
                sizeof(std::uint32_t));
  const std::size_t elements = std::size_t{heads.count} * count * shape_.head_dim;
  commands_.submit(running, commands_.next_queue(running->drive()), nvme::encode(kKvNamespace, command), buffer,
                   operation_name(op.kind, op.tag), [this, &op, buffer, layout, index, heads, first, count, elements] {
                     if (data_ != nullptr)
                       data_->store_rows(op, index, first, count, heads,
                                         halves(buffer.bytes + layout.k.value, elements),
                                         halves(buffer.bytes + layout.v.value, elements));
                     commands_.release(buffer);
                   });
}

nvme::SubmissionEntry DriveKvBackend::create_command(std::uint32_t drive, SequenceId sequence) const {
  std::uint16_t flags = nvme::format_flags(shape_.kv, static_cast<std::uint16_t>(shape_.head_dim));
  if (!shape_.component_major) flags |= nvme::create_flag::token_major;
  return nvme::encode(kKvNamespace,
                      nvme::KvCreate{.sequence = sequence,
                                     .layers = static_cast<std::uint16_t>(shape_.layers),
                                     .kv_heads = static_cast<std::uint16_t>(division_.heads(DriveIndex{drive}).count),
                                     .head_dim = static_cast<std::uint16_t>(shape_.head_dim),
                                     .flags = flags,
                                     .max_tokens = shape_.max_tokens});
}

void DriveKvBackend::start_sequences(const Operation& op, const Running& running) {
  const auto& work = std::get<SequencesWork>(op.work);
  for (const SequenceId sequence : work.sequences) {
    nvme::SubmissionEntry command = create_command(running->drive(), sequence);
    if (op.kind == OpKind::fork_kv) command = nvme::encode(kKvNamespace, nvme::KvFork{work.parent, sequence});
    if (op.kind == OpKind::free_kv) command = nvme::encode(kKvNamespace, nvme::KvFree{sequence});
    commands_.submit(running, commands_.next_queue(running->drive()), command, {},
                     fmt::format("{}, sequence {}", operation_name(op.kind, op.tag), sequence.value), [] {});
  }
}

void DriveKvBackend::for_all_sequences(std::uint32_t count, const std::string& what,
                                       const std::function<nvme::SubmissionEntry(std::uint32_t, SequenceId)>& encode,
                                       std::function<void()> done) {
  const std::uint32_t drives = commands_.platform().drives();
  const auto left = std::make_shared<std::uint64_t>(std::uint64_t{count} * drives);
  for (std::uint32_t drive = 0; drive < drives; ++drive)
    for (std::uint32_t sequence = 0; sequence < count; ++sequence)
      commands_.submit(drive, commands_.next_queue(drive), encode(drive, SequenceId{sequence}), {},
                       fmt::format("{} {}", what, sequence), [left, done] {
                         if (--*left == 0) done();
                       });
}

void DriveKvBackend::create_sequences(std::uint32_t count, std::function<void()> done) {
  for_all_sequences(
      count, "creating sequence",
      [this](std::uint32_t drive, SequenceId sequence) { return create_command(drive, sequence); }, std::move(done));
}

void DriveKvBackend::free_sequences(std::uint32_t count, std::function<void()> done) {
  for_all_sequences(
      count, "freeing sequence",
      [](std::uint32_t, SequenceId sequence) { return nvme::encode(kKvNamespace, nvme::KvFree{.sequence = sequence}); },
      std::move(done));
}

namespace {

/// Failures of one attend after which the drive is not trusted any more.
constexpr std::uint32_t kMostFailures = 64;

}  // namespace

std::vector<DriveKvBackend::UnreadRows> DriveKvBackend::unread_rows(const Attempt& attempt, std::uint32_t pages) const {
  const std::uint32_t first_head = division_.heads(DriveIndex{attempt.running->drive()}).first.value;
  std::vector<UnreadRows> rows;
  const std::size_t records = std::min<std::size_t>(pages, attempt.descriptors.size());
  for (std::size_t i = 0; i < records; ++i) {
    nvme::KvLossRecord record;
    std::memcpy(&record, attempt.buffer.bytes + i * sizeof record, sizeof record);
    rows.push_back({SequenceId{record.sequence},
                    {KvHead{first_head + record.first_head}, record.head_count},
                    record.first_token,
                    record.tokens});
  }
  // Pages of K and V of the same tokens are two records of the same rows.
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  return rows;
}

void DriveKvBackend::recover(const AttemptPtr& attempt, std::uint32_t pages) {
  if (++attempt->failures > kMostFailures)
    return commands_.report_lost(*attempt->running, operation_name(attempt->op.kind, attempt->op.tag),
                                 attempt->buffer.bytes, pages);
  commands_.hold(attempt->running);
  const std::vector<UnreadRows> lost = unread_rows(*attempt, pages);
  std::map<SequenceId, std::set<std::uint32_t>> tokens;
  std::uint64_t count = 0;
  for (const UnreadRows& rows : lost) {
    for (std::uint32_t t = rows.first; t < rows.first + rows.tokens; ++t) tokens[rows.sequence].insert(t);
    count += std::uint64_t{rows.tokens} * rows.heads.count;
  }
  const SimTime now = sim_time_now();
  SimTime there = now;
  for (const auto& [sequence, of_sequence] : tokens)
    there =
        std::max(there, on_gpu_(attempt->op, lost_->work(attempt->op, static_cast<std::uint32_t>(of_sequence.size()),
                                                         *of_sequence.rbegin() + 1)));
  lost_->computed(count, there - now);
  attempt->running->waits_for_gpu(there - now);
  commands_.at(there, [this, attempt, lost] { rewrite(attempt, lost); });
}

void DriveKvBackend::rewrite(const AttemptPtr& attempt, const std::vector<UnreadRows>& lost) {
  const auto& work = std::get<DriveWork>(attempt->op.work);
  const LayerId layer = *attempt->op.tag.layer;
  const auto head_dim = static_cast<std::uint16_t>(shape_.head_dim);
  const auto left = std::make_shared<std::size_t>(lost.size());
  for (const UnreadRows& rows : lost) {
    const nvme::KvRewrite command{{.sequence = rows.sequence,
                                   .layer = layer,
                                   .first_token = TokenIndex{rows.first},
                                   .token_count = static_cast<std::uint16_t>(rows.tokens),
                                   .first_head = in_drive(attempt->running, rows.heads.first),
                                   .head_count = static_cast<std::uint16_t>(rows.heads.count)}};
    const Bytes size = nvme::append_size(command, head_dim);
    lost_->written(size);
    const DriveCommands::Buffer buffer = commands_.allocate(work.memory, size);
    if (data_ != nullptr) {
      const std::size_t elements = size.value / (2 * sizeof(Half));
      lost_->load(attempt->op, rows.sequence, rows.first, rows.tokens, rows.heads, halves(buffer.bytes, elements),
                  halves(buffer.bytes + elements * sizeof(Half), elements));
    }
    commands_.submit(attempt->running, commands_.next_queue(attempt->running->drive()),
                     nvme::encode(kKvNamespace, command, head_dim), buffer,
                     fmt::format("writing tokens {} to {} of sequence {}, layer {} again", rows.first,
                                 rows.first + rows.tokens - 1, rows.sequence.value, layer.value),
                     [this, attempt, buffer, left] {
                       commands_.release(buffer);
                       if (--*left == 0) send_again(attempt);
                     });
  }
}

/// Records of losses took the place of the descriptors. The new token is in the drive already.
void DriveKvBackend::send_again(const AttemptPtr& attempt) {
  for (nvme::AttendDescriptor& d : attempt->descriptors)
    d.flags &= static_cast<std::uint16_t>(~nvme::attend_flag::append);
  std::memcpy(attempt->buffer.bytes, attempt->descriptors.data(),
              attempt->descriptors.size() * sizeof(nvme::AttendDescriptor));
  send(attempt);
  commands_.end_command(attempt->running);
}

}  // namespace csdsim::host
