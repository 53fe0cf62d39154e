#include "host_runtime/core/features/neurons/flash_feed_forward.h"

#include <algorithm>
#include <utility>

namespace csdsim::host {

namespace flash_tensors {

TensorName records(LayerId layer) { return TensorName::kept(TensorClass::records, layer); }
TensorName buffer(std::uint32_t index, std::uint32_t part) {
  return TensorName::kept(TensorClass::records, {}, {}, {}, 1 + part * FlashFeedForward::kBuffers + index);
}
TensorName rest() { return TensorName::kept(TensorClass::records, {}); }

}  // namespace flash_tensors

FlashFeedForward::FlashFeedForward(const FlashWeights& weights, const PlannerInputs& inputs)
    : weights_(weights), through_host_(inputs.through_host), buffer_user_(kBuffers), latest_read_(weights.drives()) {}

SizedTensor FlashFeedForward::buffer(std::uint32_t index, std::uint32_t part) const {
  return {flash_tensors::buffer(index, part), weights_.layer_buffer()};
}

SizedTensor FlashFeedForward::rest() const {
  return {flash_tensors::rest(), std::max(weights_.layer_rest(), weights_.tables())};
}

SizedTensor FlashFeedForward::matrix(LayerId layer) const {
  return {flash_tensors::records(layer), weights_.row() * weights_.memory_rows()};
}

std::vector<PlacedTensor> FlashFeedForward::resident() const {
  std::vector<PlacedTensor> tensors;
  const auto buffer_at = [&](Place place) {
    for (std::uint32_t part = 0; part < weights_.parts(); ++part)
      for (std::uint32_t i = 0; i < buffers(); ++i)
        tensors.push_back({buffer(i, part).name, place, buffer(i, part).bytes});
    if (rest().bytes.value > 0) tensors.push_back({rest().name, place, rest().bytes});
  };
  buffer_at(Place::gpu());
  if (through_host_) buffer_at(Place::host());
  if (weights_.predicts())
    tensors.push_back({TensorName::kept(TensorClass::weights, {}, {}, {}, 1), Place::gpu(), weights_.predictors()});
  for (std::uint32_t layer = 0; layer < weights_.model().layers; ++layer) {
    const TensorName records = flash_tensors::records(LayerId{layer});
    for (std::uint32_t part = 0; part < weights_.parts(); ++part)
      tensors.push_back({records, Place::drive_blocks(weights_.drive_of(LayerId{layer}, part)),
                         weights_.row() * weights_.neurons_of(part) + weights_.layer_rest()});
    if (weights_.memory_rows() > 0) tensors.push_back({records, Place::gpu(), matrix(LayerId{layer}).bytes});
  }
  if (weights_.tables().value > 0)
    tensors.push_back({flash_tensors::rest(), Place::drive_blocks(DriveIndex{0}), weights_.tables()});
  return tensors;
}

std::vector<PlannedBlocks> FlashFeedForward::blocks() const {
  std::vector<PlannedBlocks> blocks;
  for (std::uint32_t drive = 0; drive < weights_.drives(); ++drive)
    if (const std::uint64_t count = weights_.blocks(DriveIndex{drive}); count > 0)
      blocks.push_back({DriveIndex{drive}, count});
  return blocks;
}

OperationId FlashFeedForward::read(OperationSink& sink, const OpTag& tag, DriveIndex drive, std::vector<Extent> extents,
                                   const TensorName& from, const SizedTensor& buffer, Ids deps) {
  const FlashOptions& options = weights_.options();
  const Bytes block = weights_.directory().format().block_size;
  Bytes bytes;
  for (const Extent& extent : extents) bytes += block * extent.blocks;
  BlockWork work{.extents = std::move(extents),
                 .payload = LinkPayload::weights,
                 .memory = read_memory(),
                 .outstanding = options.threads,
                 .chunk = options.chunk,
                 .block_size = block};
  std::optional<OperationId>& latest = latest_read_.at(drive.value);
  if (latest) deps.push_back(*latest);
  const OperationId arrived = sink.add(OpKind::read_blocks, Resource::drive_blocks(drive), tag, std::move(work),
                                       std::move(deps), {.reads = {from}, .writes = {buffer}});
  latest = arrived;
  if (!through_host_) return arrived;
  return sink.add(OpKind::transfer, {ResourceKind::host_to_gpu, 0}, tag, LinkWork{bytes, LinkPayload::weights},
                  {arrived}, {.reads = {buffer.name}, .writes = {buffer}});
}

std::vector<OperationId> FlashFeedForward::before(OperationSink& sink, const OpTag& tag, const Ids& after) {
  const Bytes bytes = tag.layer ? weights_.layer_rest() : weights_.head();
  if (bytes.value == 0) return {};
  const Extent extent = tag.layer ? weights_.rest_of(*tag.layer) : weights_.head_blocks();
  const DriveIndex drive = tag.layer ? weights_.drive_of(*tag.layer) : DriveIndex{0};
  // What was there before must have been used. Without overlap, nothing is computed meanwhile.
  const bool ahead = weights_.options().overlap_flash && rest_user_;
  Ids deps = ahead ? Ids{} : after;
  if (rest_user_) deps.push_back(*rest_user_);
  const TensorName from = tag.layer ? flash_tensors::records(*tag.layer) : flash_tensors::rest();
  const OperationId arrived = read(sink, tag, drive, {extent}, from, rest(), std::move(deps));
  // The head is used by the sample, which the first layer of the next step follows in any case.
  if (!tag.layer) rest_user_.reset();
  return {arrived};
}

std::vector<OperationId> FlashFeedForward::before_embedding(OperationSink& sink, const OpTag& tag, std::uint64_t tokens,
                                                            const Ids& after) {
  std::vector<Extent> rows = weights_.looked_up(tokens);
  if (rows.empty()) return {};
  return {read(sink, tag, DriveIndex{0}, std::move(rows), flash_tensors::rest(), rest(), after)};
}

OperationId FlashFeedForward::finish(OperationSink& sink, LayerEnd end) {
  const OperationId attended = sink.add(OpKind::finish_attention, end.gpu, end.tag,
                                        weights_.model().finish_attention(end.tokens), end.ready, std::move(end.uses));
  if (weights_.layer_rest().value > 0) rest_user_ = attended;
  return weights_.predicts() && end.tag.phase == Phase::decode ? compute_predicted(sink, end, attended)
                                                               : compute_all(sink, end, attended);
}

OperationId FlashFeedForward::compute_all(OperationSink& sink, const LayerEnd& end, OperationId attended) {
  const LayerId layer = *end.tag.layer;
  TensorUses uses{.reads = {end.hidden.name}, .writes = {end.hidden}};
  Ids ready{attended};
  const std::uint32_t index = next_buffer_;
  for (std::uint32_t part = 0; part < weights_.parts(); ++part) {
    std::vector<Extent> extents = weights_.all_records(layer, part);
    if (extents.empty()) continue;
    Ids deps;
    if (!weights_.options().overlap_flash) deps.push_back(attended);
    if (buffer_user_[index]) deps.push_back(*buffer_user_[index]);
    const SizedTensor to = buffer(index, part);
    ready.push_back(read(sink, end.tag, weights_.drive_of(layer, part), std::move(extents),
                         flash_tensors::records(layer), to, std::move(deps)));
    uses.reads.push_back(to.name);
  }
  const OperationId finished =
      sink.add(OpKind::feed_forward, end.gpu, end.tag, weights_.feed_forward(end.tokens, weights_.model().ffn),
               std::move(ready), std::move(uses));
  buffer_user_[index] = finished;
  next_buffer_ = (index + 1) % buffers();
  return finished;
}

OperationId FlashFeedForward::compute_predicted(OperationSink& sink, const LayerEnd& end, OperationId attended) {
  const LayerId layer = *end.tag.layer;
  const FlashOptions& options = weights_.options();
  const SizedTensor kept = matrix(layer), arriving = buffer(0);
  const OperationId selected = sink.add(OpKind::select_neurons, end.gpu, end.tag,
                                        weights_.model().predict_neurons(end.tokens, weights_.predictor_rank(layer)),
                                        {attended}, {.reads = {end.hidden.name}});
  Ids deps{selected};
  if (buffer_user_[0]) deps.push_back(*buffer_user_[0]);
  const OperationId arrived =
      read(sink, end.tag, weights_.drive_of(layer), {}, flash_tensors::records(layer), arriving, std::move(deps));
  const ComputeWork copies{.op = OperatorClass::elementwise};
  const OperationId deleted = sink.add(OpKind::delete_records, end.gpu, end.tag, copies,
                                       {options.overlap_memory || options.overlap_flash ? selected : arrived},
                                       {.reads = {kept.name}, .writes = {kept}});
  Ids computed{deleted};
  if (options.overlap_flash)
    computed = {sink.add(OpKind::partial_feed_forward, end.gpu, end.tag, weights_.feed_forward(end.tokens, 0),
                         {deleted}, {.reads = {end.hidden.name, kept.name}})};
  Ids ready = computed;
  ready.push_back(arrived);
  const OperationId inserted = sink.add(OpKind::insert_records, end.gpu, end.tag, copies, std::move(ready),
                                        {.reads = {arriving.name, kept.name}, .writes = {kept}});
  const OperationId finished = sink.add(OpKind::feed_forward, end.gpu, end.tag, weights_.feed_forward(end.tokens, 0),
                                        {inserted}, {.reads = {end.hidden.name, kept.name}, .writes = {end.hidden}});
  buffer_user_[0] = inserted;
  return finished;
}

}  // namespace csdsim::host
