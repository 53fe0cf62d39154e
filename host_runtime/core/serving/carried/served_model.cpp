#include "host_runtime/core/serving/carried/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/serving/engine/served_sequence.h"

namespace csdsim::host {

ServedModel::ServedModel(const Decoder& decoder, const ServingTrace& trace, const Layout& layout)
    : decoder_(decoder), trace_(trace), layout_(layout), answers_(trace.requests.size()) {
  const std::uint32_t layers = decoder.config().layers;
  if (layout.parts != 1 && layout.parts != layers) throw InternalError("parts of KV blocks that are no layers");
  const TraceTokens tokens(trace, decoder.config().vocab);
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    texts_.push_back(tokens.of(i));
    if (texts_.back().size() > decoder.config().longest_context())
      throw UserError(fmt::format("{}:{}: a request of {} tokens; the model has {} positions", trace.name,
                                  trace.requests[i].line, texts_.back().size() + 1,
                                  decoder.config().longest_context()));
  }
}

ServedModel::Block& ServedModel::block(std::uint32_t gpu, KvBlockSlot slot) {
  if (gpu >= gpus_.size()) gpus_.resize(gpu + std::size_t{1});
  if (slot >= gpus_[gpu].size()) gpus_[gpu].resize(slot + std::size_t{1});
  Block& block = gpus_[gpu][slot];
  block.resize(layer_size() * decoder_.config().layers);
  return block;
}

const ServedModel::Block& ServedModel::block(std::uint32_t gpu, KvBlockSlot slot) const {
  if (gpu >= gpus_.size() || slot >= gpus_[gpu].size() || gpus_[gpu][slot].empty())
    throw InternalError("a read of a KV block of a GPU that was never written");
  return gpus_[gpu][slot];
}

void ServedModel::take(std::uint32_t gpu, std::span<const KvBlockSlot> slots, std::uint32_t part,
                       std::span<std::byte> bytes) const {
  const std::size_t size = part_size() * sizeof(Half);
  for (std::size_t i = 0; i < slots.size(); ++i)
    std::memcpy(bytes.subspan(i * size, size).data(), block(gpu, slots[i]).data() + part_size() * part, size);
}

void ServedModel::put(std::uint32_t gpu, std::span<const KvBlockSlot> slots, std::uint32_t part,
                      std::span<const std::byte> bytes) {
  const std::size_t size = part_size() * sizeof(Half);
  for (std::size_t i = 0; i < slots.size(); ++i)
    std::memcpy(block(gpu, slots[i]).data() + part_size() * part, bytes.subspan(i * size, size).data(), size);
}

void ServedModel::swap_out(const ServedSequence& sequence, std::span<const KvBlockSlot> slots) {
  std::vector<Block>& swapped = swapped_[sequence.request.id.value];
  swapped.clear();
  for (const KvBlockSlot slot : slots) swapped.push_back(block(sequence.instance, slot));
}

void ServedModel::swap_in(const ServedSequence& sequence) {
  const std::vector<Block>& swapped = swapped_.at(sequence.request.id.value);
  for (std::size_t i = 0; i < swapped.size(); ++i) block(sequence.instance, sequence.slots[i]) = swapped[i];
  swapped_.erase(sequence.request.id.value);
}

TokenId ServedModel::token(std::size_t request, std::uint64_t position, const std::vector<DrawnToken>& answer) const {
  if (const auto known = texts_[request][position]) return *known;
  return answer.at(position - trace_.requests[request].prompt).token;
}

void ServedModel::advance(AttentionProvider& attention, SequenceId sequence, std::uint64_t first, std::uint64_t count,
                          bool draws, std::vector<DrawnToken>& answer) const {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::array tokens{token(sequence.value, first + i, answer)};
    const std::array positions{TokenIndex{static_cast<std::uint32_t>(first + i)}};
    const HiddenStates hidden = decode_hidden(decoder_, attention, std::array{sequence}, tokens, positions);
    if (!draws || i + 1 < count) continue;
    const std::vector<float> logits = decoder_.logits(hidden);
    const TokenId next = greedy(logits);
    answer.push_back({next, logits[next.value]});
  }
}

void ServedModel::compute(const ServedSequence& sequence, std::uint64_t tokens) {
  HostAttention attention(decoder_.config(), std::make_unique<DenseAttention>());
  const SequenceId id = sequence.request.id;
  attention.create_sequence(id);
  fetch(sequence, attention);
  advance(attention, id, sequence.computed, tokens, sequence.left() == tokens, answers_[id.value]);
  keep(sequence, tokens, attention);
}

void ServedModel::fetch(const ServedSequence& sequence, HostAttention& attention) const {
  const std::size_t row = decoder_.config().kv_width(), kind = layer_size() / 2;
  for (std::uint64_t first = 0; first < sequence.computed; first += layout_.block_tokens) {
    const Block& from = block(sequence.instance, sequence.slots[first / layout_.block_tokens]);
    const auto tokens =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(layout_.block_tokens, sequence.computed - first));
    const std::array slice{SequenceSlice{sequence.request.id, tokens}};
    for (std::uint32_t layer = 0; layer < decoder_.config().layers; ++layer) {
      const std::span<const Half> rows = std::span(from).subspan(layer * layer_size(), layer_size());
      attention.store(LayerId{layer}, slice, rows.first(tokens * row), rows.subspan(kind, tokens * row));
    }
  }
}

void ServedModel::keep(const ServedSequence& sequence, std::uint64_t tokens, const HostAttention& attention) {
  const ModelConfig& config = decoder_.config();
  for (std::uint64_t i = sequence.computed; i < sequence.computed + tokens; ++i) {
    Block& to = block(sequence.instance, sequence.slots[i / layout_.block_tokens]);
    for (std::uint32_t layer = 0; layer < config.layers; ++layer)
      for (std::uint32_t head = 0; head < config.kv_heads; ++head) {
        const KvView view = attention.cache().view(sequence.request.id, LayerId{layer}, KvHead{head});
        const std::size_t at =
            layer * layer_size() + (i % layout_.block_tokens) * config.kv_width() + std::size_t{head} * config.head_dim;
        const auto row = [&](std::span<const Half> rows) { return rows.subspan(i * config.head_dim, config.head_dim); };
        std::ranges::copy(row(view.keys), to.begin() + static_cast<std::ptrdiff_t>(at));
        std::ranges::copy(row(view.values), to.begin() + static_cast<std::ptrdiff_t>(at + layer_size() / 2));
      }
  }
}

DrawnAnswers ServedModel::compute_cold() const {
  DrawnAnswers answers(trace_.requests.size());
  for (std::size_t i = 0; i < answers.size(); ++i) {
    HostAttention attention(decoder_.config(), std::make_unique<DenseAttention>());
    const SequenceId id{static_cast<std::uint32_t>(i)};
    attention.create_sequence(id);
    const TracedRequest& r = trace_.requests[i];
    advance(attention, id, 0, r.prompt, true, answers[i]);
    for (std::uint32_t step = 1; step < r.output; ++step)
      advance(attention, id, r.prompt + step - 1, 1, true, answers[i]);
  }
  return answers;
}

}  // namespace csdsim::host
