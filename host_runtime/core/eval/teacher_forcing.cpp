#include "host_runtime/core/eval/teacher_forcing.h"

#include "base/error.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/decoder/token_sampling.h"

namespace csdsim::host {

/// Takes what a prefill hands over.
class Prefilled::Recorder final : public AttentionProvider {
 public:
  explicit Recorder(std::vector<Layer>& layers) : layers_(layers) {}
  void create_sequence(SequenceId) override {}
  void free_sequence(SequenceId) override {}
  void store(LayerId layer, std::span<const SequenceSlice>, std::span<const Half> k, std::span<const Half> v) override {
    layers_.at(layer.value).k.assign(k.begin(), k.end());
    layers_[layer.value].v.assign(v.begin(), v.end());
  }
  bool learns_from_prompt() const override { return true; }
  void learn(LayerId layer, std::span<const SequenceSlice>, std::span<const float> q) override {
    layers_.at(layer.value).q.assign(q.begin(), q.end());
  }
  void attend(LayerId, std::span<const SequenceId>, std::span<const float>, std::span<const Half>,
              std::span<const Half>, std::span<Half>) override {
    throw InternalError("a prefill does not decode");
  }

 private:
  std::vector<Layer>& layers_;
};

Prefilled::Prefilled(const Decoder& decoder, std::span<const std::span<const TokenId>> prompts)
    : layers_(decoder.config().layers) {
  std::vector<TokenId> flat;
  for (std::uint32_t i = 0; i < prompts.size(); ++i) {
    slices_.push_back({SequenceId{i}, static_cast<std::uint32_t>(prompts[i].size())});
    flat.insert(flat.end(), prompts[i].begin(), prompts[i].end());
  }
  Recorder recorder(layers_);
  prefill(decoder, recorder, slices_, flat);
}

void Prefilled::load(AttentionProvider& attention) const {
  for (const SequenceSlice& slice : slices_) attention.create_sequence(slice.sequence);
  for (std::uint32_t i = 0; i < layers_.size(); ++i) {
    attention.store(LayerId{i}, slices_, layers_[i].k, layers_[i].v);
    if (attention.learns_from_prompt()) attention.learn(LayerId{i}, slices_, layers_[i].q);
  }
}

Prediction prediction(std::span<const float> logits, TokenId token) {
  return {negative_log_likelihood(logits, token), greedy(logits)};
}

std::vector<std::vector<Prediction>> force(const Decoder& decoder, AttentionProvider& attention,
                                           const Prefilled& prompts,
                                           std::span<const std::span<const TokenId>> continuations,
                                           const NeuronChoice& neurons) {
  const std::span<const SequenceSlice> slices = prompts.slices();
  if (slices.size() != continuations.size()) throw InternalError("teacher forcing: a continuation a prompt is needed");
  std::vector<std::vector<Prediction>> predictions(slices.size());
  if (slices.empty()) return predictions;
  std::vector<SequenceId> sequences;
  for (const SequenceSlice& slice : slices) sequences.push_back(slice.sequence);
  prompts.load(attention);
  const std::size_t vocab = decoder.config().vocab;
  std::vector<TokenId> tokens(slices.size());
  std::vector<TokenIndex> positions(slices.size());
  for (std::uint32_t at = 0; at + 1 < continuations[0].size(); ++at) {
    for (std::size_t i = 0; i < slices.size(); ++i) {
      tokens[i] = continuations[i][at];
      positions[i] = TokenIndex{slices[i].tokens + at};
    }
    const std::vector<float> logits = decode_step(decoder, attention, sequences, tokens, positions, neurons);
    for (std::size_t i = 0; i < slices.size(); ++i) {
      predictions[i].push_back(prediction(std::span(logits).subspan(i * vocab, vocab), continuations[i][at + 1]));
    }
  }
  for (const SequenceId sequence : sequences) attention.free_sequence(sequence);
  return predictions;
}

}  // namespace csdsim::host
