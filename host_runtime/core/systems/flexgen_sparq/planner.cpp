#include "host_runtime/core/systems/flexgen_sparq/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "host_runtime/core/features/head_rows/head_rows.h"

namespace csdsim::host {

namespace {

using Kind = HeadRows::Kind;

constexpr std::uint64_t kIndexBytes = 4;  // bytes of the index of a chosen component or token
constexpr std::uint64_t kMeanBytes = 4;   // bytes of an element of a mean value, fp32

// Parts of a tensor name. Files keep kv_cache parts 0 and 1 (by HeadRows::Kind), host memory part 2.
constexpr std::uint32_t kNewestRows = 2;

constexpr std::uint32_t number(Kind kind) { return static_cast<std::uint32_t>(kind); }

/// Tokens of the file that are read, at most: the newest l tokens are attended to, and some of them are not in the
/// file.
std::uint64_t read_tokens(const HeadRows::Sequence& of) {
  if (!of.sparse()) return of.stored;
  const std::uint32_t outside = std::min(of.local, of.context - of.stored);
  return std::min(of.top_k - outside, of.stored);
}

}  // namespace

SparqPlanner::SparqPlanner(const PlannerInputs& inputs, const SparqFiles& sparq, const WeightPlacement& weights)
    : LayerPlanner(inputs, {HeadRange{KvHead{0}, inputs.model.kv_heads}}, weights),
      sparq_(sparq),
      budget_(sparq.budget, inputs.model.head_dim) {
  if (sparq_.kv_buffers == 0) throw UserError("system: kv_buffers is 0, must be at least 1");
  if (sparq_.written_tokens == 0) throw UserError("system: written_tokens is 0, must be at least 1");
  stored_.assign(mini_batches(), std::vector<Ids>(model().layers));
}

HeadRows SparqPlanner::rows_before(const Part& part, Kind kind) const {
  HeadRows rows{.kind = kind,
                .heads = heads(),
                .head_dim = model().head_dim,
                .element_bytes = model().element_bytes,
                .components = budget_.components()};
  std::uint64_t before = 0;
  const bool decode = part.tag.phase == Phase::decode;
  for (const StepSequence& s : part.sequences) {
    const std::uint32_t tokens = decode ? s.first_token : s.tokens;
    const std::uint32_t room = inputs().workload.length_of(s.sequence.value);
    rows.sequences.push_back({.sequence = s.sequence,
                              .tokens_before = before,
                              .room = room,
                              .stored = written(tokens),
                              .context = tokens + 1,
                              .top_k = budget_.top_k(tokens + 1),
                              .local = budget_.local(tokens + 1)});
    before += room;
  }
  return rows;
}

HeadRows SparqPlanner::rows_written(const Part& part, Kind kind) const {
  HeadRows rows = rows_before(part, kind);
  for (HeadRows::Sequence& of : rows.sequences) {
    const bool prefill = part.tag.phase == Phase::prefill;
    of.first = prefill ? 0 : of.stored;
    of.stored = written(prefill ? of.context - 1 : of.context);
  }
  return rows;
}

std::string SparqPlanner::file_name(const Part& part, Kind kind) {
  return fmt::format("{} of layer {}, mini-batch {}", kind == Kind::tokens ? "K and V" : "K by component", part.layer(),
                     part.mini_batch());
}

SizedTensor SparqPlanner::in_file(const Part& part, Kind kind, const HeadRows& rows) const {
  std::uint64_t tokens = 0;
  for (const HeadRows::Sequence& of : rows.sequences) tokens += of.stored;
  return {TensorName::kept(TensorClass::kv_cache, part.tag.layer, part.tag.mini_batch, heads(), number(kind)),
          bytes_of(tokens * model().head_dim * (kind == Kind::tokens ? 2 : 1))};
}

SizedTensor SparqPlanner::newest(const Part& part) const {
  const HeadRows rows = rows_before(part, Kind::tokens);
  std::uint64_t tokens = 0;
  for (const HeadRows::Sequence& of : rows.sequences)
    tokens += (part.tag.phase == Phase::decode ? of.context : of.context - 1) - of.stored;
  return {TensorName::kept(TensorClass::kv_cache, part.tag.layer, part.tag.mini_batch, heads(), kNewestRows),
          bytes_of(tokens * 2 * model().head_dim)};
}

SizedTensor SparqPlanner::value_means(const Part& part) const {
  return {TensorName::kept(TensorClass::workspace, part.tag.layer, part.tag.mini_batch, heads()),
          Bytes{part.sequences.size() * kMeanBytes * model().head_dim * model().kv_heads}};
}

SizedTensor SparqPlanner::choice(const Part& part, Kind kind) const {
  const HeadRows rows = rows_before(part, kind);
  std::uint64_t indices = 0;
  for (const HeadRows::Sequence& of : rows.sequences)
    if (of.sparse()) indices += kind == Kind::tokens ? of.top_k : rows.components;
  return {choice_name(part.tag, rows), Bytes{indices * kIndexBytes * model().kv_heads}};
}

SizedTensor SparqPlanner::read_part(const Part& part, const HeadRows& rows) const {
  std::uint64_t elements = 0;
  for (const HeadRows::Sequence& of : rows.sequences) {
    if (rows.kind == Kind::tokens) elements += read_tokens(of) * 2 * rows.head_dim;
    if (rows.kind == Kind::components && of.sparse()) elements += std::uint64_t{rows.components} * of.stored;
  }
  return {TensorName::of(TensorClass::fetched_kv, part.tag, heads(), 2 * number(rows.kind)), bytes_of(elements)};
}

SizedTensor SparqPlanner::all_parts(const Part& part, const HeadRows& rows) const {
  std::uint64_t elements = 0;
  for (const HeadRows::Sequence& of : rows.sequences) {
    if (rows.kind == Kind::tokens) elements += std::uint64_t{of.top_k} * 2 * rows.head_dim;
    if (rows.kind == Kind::components && of.sparse()) elements += std::uint64_t{rows.components} * of.context;
  }
  return {TensorName::of(TensorClass::fetched_kv, part.tag, heads(), 2 * number(rows.kind) + 1), bytes_of(elements)};
}

std::vector<PlacedTensor> SparqPlanner::resident() const {
  std::vector<PlacedTensor> tensors = LayerPlanner::resident();
  for (std::uint32_t layer = 0; layer < model().layers; ++layer)
    for (std::uint32_t mb = 0; mb < mini_batches(); ++mb) {
      const Part part = first_part(layer, mb);
      const SizedTensor means = value_means(part);
      tensors.push_back({means.name, gpu_memory(part.tag), means.bytes});
      if (inputs().span.prefill) continue;
      for (const Kind kind : {Kind::tokens, Kind::components}) {
        const SizedTensor kept = in_file(part, kind, rows_before(part, kind));
        tensors.push_back({kept.name, Place::file(DriveIndex{files_of(layer).index}), kept.bytes});
      }
      const SizedTensor kept = newest(part);
      tensors.push_back({kept.name, Place::host(), kept.bytes - bytes_of(2 * model().head_dim * part.tokens)});
    }
  return tensors;
}

std::vector<PlannedFile> SparqPlanner::layer_files(std::uint32_t layer) const {
  std::vector<PlannedFile> files;
  for (std::uint32_t mb = 0; mb < mini_batches(); ++mb)
    for (const Kind kind : {Kind::components, Kind::tokens}) {
      const Part part = first_part(layer, mb);
      const HeadRows rows = rows_before(part, kind);
      const std::uint64_t elements = model().head_dim * (kind == Kind::tokens ? 2ULL : 1ULL);
      PlannedFile file{.drive = DriveIndex{files_of(layer).index}, .name = file_name(part, kind), .size = {}};
      for (const HeadRows::Sequence& of : rows.sequences) {
        const FileRange room{bytes_of(of.tokens_before * elements), bytes_of(of.room * elements)};
        file.size = room.offset + room.size;
        if (inputs().span.prefill || of.stored == 0) continue;
        // Rows of components are so short that they leave out no blocks.
        if (kind == Kind::components) {
          file.written.push_back(room);
          continue;
        }
        for (std::uint32_t head = 0; head < heads().count; ++head)
          for (const KvKind part_of : {KvKind::key, KvKind::value})
            file.written.push_back(token_range(rows, of, head, part_of, 0, of.stored));
      }
      files.push_back(std::move(file));
    }
  return files;
}

LayerPlanner::Ids SparqPlanner::room_for(const Part& part) const {
  if (part.layer() < sparq_.kv_buffers) return {};
  return stored_[part.mini_batch()][part.layer() - sparq_.kv_buffers];
}

Bytes SparqPlanner::prefill_workspace(const Part& part) const {
  return sparq_.stores_attention_weights ? attention_weights(part) : Bytes{};
}

OperationId SparqPlanner::update_means(OperationSink& sink, const Part& part, OperationId projected) {
  const SizedTensor means = value_means(part), kv = new_kv(part, heads());
  return sink.add(OpKind::append_kv, gpu(part.tag), part.tag,
                  ComputeWork{.op = OperatorClass::elementwise, .activations = {kv.bytes.value / 2}}, {projected},
                  {.reads = {kv.name}, .writes = {means}});
}

void SparqPlanner::keep(OperationSink& sink, const Part& part, OperationId projected) {
  const SizedTensor kv = new_kv(part, heads()), kept = newest(part);
  const OperationId mean = update_means(sink, part, projected);
  const OperationId moved = transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {mean}, {kv});
  // The transfer has written K and V to where they stay, so that keeping them takes no time.
  const OperationId there = sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, {moved},
                                     {.reads = {kv.name}, .writes = {kept}});
  stored(part) = write(sink, part, kv, there);
}

LayerPlanner::Ids SparqPlanner::write(OperationSink& sink, const Part& part, const SizedTensor& source,
                                      OperationId there) {
  const HeadRows tokens = rows_written(part, Kind::tokens), components = rows_written(part, Kind::components);
  std::uint64_t count = 0;
  for (const HeadRows::Sequence& of : tokens.sequences) count += of.stored - of.first;
  const bool fresh = source.name.what == TensorClass::new_kv;
  TensorUses uses{.reads = {source.name}};
  if (fresh) uses.drops = {{source.name, Place::host()}};
  if (count == 0) {
    if (!fresh) return {there};
    return {sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, {there}, uses)};
  }
  const auto add = [&](const HeadRows& rows, Ids after, TensorUses of) {
    FileWork work{.file = file_name(part, rows.kind), .ranges = written_ranges(rows), .payload = LinkPayload::kv};
    work.rows = rows;
    of.writes = {in_file(part, rows.kind, rows)};
    return sink.add(OpKind::write_file, files_of(part.layer()), part.tag, std::move(work), std::move(after),
                    std::move(of));
  };
  const OperationId by_token = add(tokens, {there}, {.reads = {source.name}});
  const OperationId transposed =
      sink.add(OpKind::append_kv, Resource::host(), part.tag,
               ComputeWork{.op = OperatorClass::elementwise, .activations = bytes_of(2 * model().head_dim * count)},
               {there}, {.reads = {source.name}});
  return {add(components, {transposed, by_token}, std::move(uses))};
}

OperationId SparqPlanner::fetch(OperationSink& sink, const Part& part, const HeadRows& rows, OperationId chosen) {
  const SizedTensor read = read_part(part, rows), all = all_parts(part, rows);
  FileWork work{.file = file_name(part, rows.kind), .payload = LinkPayload::kv};
  work.rows = rows;
  Ids before = stored(part);
  before.push_back(chosen);
  TensorUses from_file{.writes = {read}};
  // Before so many tokens are there, the file is empty.
  if (const SizedTensor kept = in_file(part, rows.kind, rows); kept.bytes.value > 0) from_file.reads = {kept.name};
  const OperationId fetched = sink.add(OpKind::read_file, files_of(part.layer()), part.tag, std::move(work),
                                       std::move(before), std::move(from_file));
  const SizedTensor choices = choice(part, rows.kind);
  TensorUses uses{.reads = {read.name, newest(part).name}, .writes = {all}, .drops = {{read.name, Place::host()}}};
  if (choices.bytes.value > 0) {
    uses.reads.push_back(choices.name);
    uses.drops.push_back({choices.name, Place::host()});
  }
  const OperationId joined =
      sink.add(OpKind::append_kv, Resource::host(), part.tag,
               ComputeWork{.op = OperatorClass::elementwise, .activations = (all.bytes - read.bytes) * 2}, {fetched},
               std::move(uses));
  return transfer(sink, ResourceKind::host_to_gpu, part.tag, LinkPayload::kv, {joined}, {all});
}

LayerPlanner::Outputs SparqPlanner::attend(OperationSink& sink, const Part& part, OperationId projected) {
  const HeadRows tokens = rows_before(part, Kind::tokens), components = rows_before(part, Kind::components);
  const SizedTensor q = queries(part, heads()), kv = new_kv(part, heads()), output = attention_output(part, heads());
  const OperationId mean = update_means(sink, part, projected);
  const OperationId moved =
      transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {projected}, {q, kv}, true);
  const OperationId there =
      sink.add(OpKind::append_kv, Resource::host(), part.tag, ComputeWork{.launches = 0}, {moved},
               {.reads = {kv.name}, .writes = {newest(part)}, .drops = {{kv.name, Place::host()}}});
  const SizedTensor of_q = choice(part, Kind::components), of_scores = choice(part, Kind::tokens);
  const OperationId chosen =
      sink.add(OpKind::select_tokens, Resource::host(), part.tag,
               ComputeWork{.op = OperatorClass::elementwise, .activations = q.bytes}, {there},
               {.reads = {q.name},
                .writes = of_q.bytes.value > 0 ? std::vector<SizedTensor>{of_q} : std::vector<SizedTensor>{},
                .drops = {{q.name, Place::host()}}});
  TensorUses uses{.reads = {q.name, kv.name, value_means(part).name},
                  .writes = {output},
                  .drops = {{q.name, gpu_memory(part.tag)}, {kv.name, gpu_memory(part.tag)}}};
  OperationId rows_known = chosen;
  if (of_scores.bytes.value > 0) {
    const SizedTensor scored = all_parts(part, components);
    const OperationId copied = fetch(sink, part, components, chosen);
    const std::uint64_t group = model().heads / model().kv_heads;
    const OperationId best = sink.add(OpKind::select_tokens, gpu(part.tag), part.tag,
                                      ComputeWork{.op = OperatorClass::attention,
                                                  .flops = 2 * group * scored.bytes.value / model().element_bytes,
                                                  .activations = scored.bytes,
                                                  .launches = 2},
                                      {copied}, {.reads = {q.name, scored.name}, .writes = {of_scores}});
    rows_known = transfer(sink, ResourceKind::gpu_to_host, part.tag, LinkPayload::kv, {best}, {of_scores});
    uses.reads.push_back(scored.name);  // its scores weigh the mean value
    uses.drops.push_back({scored.name, gpu_memory(part.tag)});
  }
  const OperationId copied = fetch(sink, part, tokens, rows_known);
  const TensorName attended = all_parts(part, tokens).name;
  uses.reads.push_back(attended);
  uses.drops.push_back({attended, gpu_memory(part.tag)});
  std::uint64_t count = 0;
  for (const HeadRows::Sequence& of : tokens.sequences) count += of.top_k;
  const OperationId attention =
      sink.add(OpKind::attention, gpu(part.tag), part.tag, model().decode_attention(part.sequences.size(), count),
               {copied, mean}, std::move(uses));
  const HeadRows after = rows_written(part, Kind::tokens);
  const bool full = std::ranges::any_of(after.sequences, [](const auto& of) { return of.stored > of.first; });
  // The old rows may be read while new ones are written; the next step needs both.
  if (full) stored(part) = write(sink, part, newest(part), copied);
  return {.ready = {attention}, .tensors = {output.name}};
}

}  // namespace csdsim::host
