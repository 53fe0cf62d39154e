// Scores and fetches, which read a drive's KV cache without attending, and the commands on whole sequences.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "host_runtime/sysc/drive_kv_backend.h"
#include "host_runtime/sysc/kv_sections.h"

namespace csdsim::host {

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
    std::size_t count;  ///< of scores
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

}  // namespace csdsim::host
