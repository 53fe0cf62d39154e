// Plain loops over a decoder and an attention provider, without simulated time: generation, and the measure of quality.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "host_runtime/core/attention/attention_provider.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/decoder/token_sampling.h"

namespace csdsim::host {

/// Dense prefill of whole sequences that were created in `attention`, which receives their K and V.
/// `tokens` holds the sequences one after another; `slices` gives the sequence and length of each. Returns the hidden
/// states after the last layer. UserError as Decoder::embed().
HiddenStates prefill(const Decoder& decoder, AttentionProvider& attention, std::span<const SequenceSlice> slices,
                     std::span<const TokenId> tokens);

/// Chooses the neurons of a decode step: masks for the rows of `inputs`, which are feed_forward_inputs() of the layer,
/// one row per sequence. Nothing: the whole feed-forward block.
using NeuronChoice = std::function<std::optional<NeuronMasks>(LayerId layer, std::span<const SequenceId> sequences,
                                                              const Tensor& inputs)>;

/// What enters the output projection of a decode step: token i continues sequence i at position i. Whoever needs no
/// logits of a step leaves them out.
HiddenStates decode_hidden(const Decoder& decoder, AttentionProvider& attention, std::span<const SequenceId> sequences,
                           std::span<const TokenId> tokens, std::span<const TokenIndex> positions,
                           const NeuronChoice& neurons = {});

/// One decode step: token i continues sequence i at position i. Returns the logits, [sequences][vocab].
std::vector<float> decode_step(const Decoder& decoder, AttentionProvider& attention,
                               std::span<const SequenceId> sequences, std::span<const TokenId> tokens,
                               std::span<const TokenIndex> positions, const NeuronChoice& neurons = {});

struct GenerationOptions {
  std::uint32_t max_new_tokens = 16;
  SamplingOptions sampling;     ///< stream = index of the prompt, step = index of the new token
  std::optional<TokenId> stop;  ///< a sequence ends after this token
};

/// New tokens of every prompt. Prompts may differ in length; all sequences decode as one batch. UserError for an empty
/// prompt and for a context that would not fit the model. `neurons` choose in decode steps.
std::vector<std::vector<TokenId>> generate(const Decoder& decoder, AttentionProvider& attention,
                                           const std::vector<std::vector<TokenId>>& prompts,
                                           const GenerationOptions& options, const NeuronChoice& neurons = {});

/// generate() with attention on the host.
std::vector<std::vector<TokenId>> generate_on_host(const Decoder& decoder, std::unique_ptr<AttentionMethod> method,
                                                   const std::vector<std::vector<TokenId>>& prompts,
                                                   const GenerationOptions& options);

/// -log softmax(logits)[token], natural logarithm.
double negative_log_likelihood(std::span<const float> logits, TokenId token);

struct PerplexityOptions {
  std::uint32_t prefill = 512;  ///< tokens of a window that are prefilled densely; at least 1
  std::uint32_t decode = 256;   ///< tokens of a window that are then fed one by one; at least 2
  std::uint32_t windows = 0;    ///< windows from the start of the text; 0: as many as fit
};

struct PerplexityResult {
  double perplexity = 0;  ///< exp of the mean negative log-likelihood, natural logarithm
  std::uint64_t tokens_scored = 0;
};

/// Windows that the options make of a text of `tokens` tokens. UserError if the text is too short or the options are
/// impossible.
std::uint32_t window_count(std::size_t tokens, const PerplexityOptions& options);

/// Perplexity by teacher forcing through the decode path. Windows follow one another without overlap; the score counts
/// the predictions of the tokens after the first one fed in decode, in every window. UserError if the text is too
/// short.
PerplexityResult perplexity(const Decoder& decoder, AttentionProvider& attention, std::span<const TokenId> text,
                            const PerplexityOptions& options);

}  // namespace csdsim::host
