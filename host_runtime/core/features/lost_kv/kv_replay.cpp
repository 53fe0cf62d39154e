#include "host_runtime/core/features/lost_kv/kv_replay.h"

#include <algorithm>
#include <memory>

#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/decoder/generation.h"

namespace csdsim::host {

namespace {

std::unique_ptr<HeadAttention> attention_of(const KvReplay::Choice& choice) {
  if (choice.method == Method::dense) return std::make_unique<DenseAttention>();
  return std::make_unique<SparqAttention>(
      SparqOptions{.components = choice.components, .tokens = choice.top_k, .local = choice.local});
}

}  // namespace

KvReplay::KvReplay(const Decoder& decoder, const Choices& choices, std::span<const Text> texts)
    : decoder_(decoder), choices_(choices), cache_(decoder.config(), KeyLayout::token_and_component_major) {
  std::vector<SequenceSlice> slices;
  std::vector<TokenId> tokens;
  for (const Text& text : texts) {
    create_sequence(text.sequence);
    slices.push_back({text.sequence, text.prompt});
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.begin() + text.prompt);
  }
  prefill(decoder_, *this, slices, tokens);
}

void KvReplay::advance(std::span<const Text> texts) {
  std::vector<SequenceId> sequences;
  for (const Text& text : texts) sequences.push_back(text.sequence);
  for (; texts.front().prompt + generated_ < texts.front().tokens.size(); ++generated_) {
    std::vector<TokenId> tokens;
    std::vector<TokenIndex> positions;
    for (const Text& text : texts) {
      positions.push_back(TokenIndex{static_cast<std::uint32_t>(text.prompt + generated_)});
      tokens.push_back(text.tokens.at(positions.back().value));
    }
    decode_step(decoder_, *this, sequences, tokens, positions);
  }
}

void KvReplay::copy(SequenceId sequence, LayerId layer, std::uint32_t first, std::uint32_t count, HeadRange heads,
                    std::span<Half> k, std::span<Half> v) const {
  const std::size_t d = decoder_.config().head_dim, rows = count * d;
  for (std::uint32_t h = 0; h < heads.count; ++h) {
    const KvView kv = cache_.view(sequence, layer, KvHead{heads.first.value + h});
    std::ranges::copy(kv.keys.subspan(first * d, rows), k.subspan(h * rows).begin());
    std::ranges::copy(kv.values.subspan(first * d, rows), v.subspan(h * rows).begin());
  }
}

void KvReplay::store(LayerId layer, std::span<const SequenceSlice> slices, std::span<const Half> k,
                     std::span<const Half> v) {
  const std::size_t width = decoder_.config().kv_width();
  std::size_t row = 0;
  for (const SequenceSlice& slice : slices) {
    cache_.append(slice.sequence, layer, k.subspan(row * width, slice.tokens * width),
                  v.subspan(row * width, slice.tokens * width));
    row += slice.tokens;
  }
}

void KvReplay::attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q,
                      std::span<const Half> k, std::span<const Half> v, std::span<Half> out) {
  const ModelConfig& model = decoder_.config();
  const std::size_t per_head = std::size_t{model.group_size()} * model.head_dim, width = model.kv_width();
  // Drives get q in fp16.
  std::vector<Half> sent(q.size());
  std::vector<float> wide(q.size()), of_head(per_head);
  floats_to_halves(q, sent);
  halves_to_floats(sent, wide);
  for (std::size_t row = 0; row < sequences.size(); ++row) {
    cache_.append(sequences[row], layer, k.subspan(row * width, width), v.subspan(row * width, width));
    const auto tokens = static_cast<std::uint32_t>(cache_.tokens(sequences[row], layer));
    const std::unique_ptr<HeadAttention> method = attention_of(choices_.at({sequences[row], tokens}));
    for (std::uint32_t head = 0; head < model.kv_heads; ++head) {
      const std::size_t at = (row * model.kv_heads + head) * per_head;
      method->attend(std::span<const float>(wide).subspan(at, per_head),
                     cache_.view(sequences[row], layer, KvHead{head}), of_head, nullptr);
      floats_to_halves(of_head, out.subspan(at, per_head));
    }
  }
}

}  // namespace csdsim::host
