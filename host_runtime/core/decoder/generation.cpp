#include "host_runtime/core/decoder/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace csdsim::host {

double negative_log_likelihood(std::span<const float> logits, TokenId token) {
  const double max = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - max);
  return std::log(sum) + max - double{logits[token.value]};
}

HiddenStates prefill(const Decoder& decoder, AttentionProvider& attention, std::span<const SequenceSlice> slices,
                     std::span<const TokenId> tokens) {
  std::vector<std::uint32_t> lengths;
  std::vector<TokenIndex> positions;
  for (const SequenceSlice& slice : slices) {
    lengths.push_back(slice.tokens);
    for (std::uint32_t i = 0; i < slice.tokens; ++i) positions.push_back(TokenIndex{i});
  }
  HiddenStates hidden = decoder.embed(tokens, positions);
  for (LayerId layer{0}; layer.value < decoder.config().layers; ++layer.value) {
    const AttentionInputs inputs = decoder.attention_inputs(layer, hidden);
    attention.store(layer, slices, decoder.keys_to_host(layer, inputs.k), decoder.values_to_host(layer, inputs.v));
    if (attention.learns_from_prompt()) attention.learn(layer, slices, decoder.to_host_float(inputs.q));
    decoder.finish_layer(layer, hidden, decoder.prefill_attention(inputs, lengths));
  }
  return hidden;
}

HiddenStates decode_hidden(const Decoder& decoder, AttentionProvider& attention, std::span<const SequenceId> sequences,
                           std::span<const TokenId> tokens, std::span<const TokenIndex> positions,
                           const NeuronChoice& neurons) {
  HiddenStates hidden = decoder.embed(tokens, positions);
  for (LayerId layer{0}; layer.value < decoder.config().layers; ++layer.value) {
    const AttentionInputs inputs = decoder.attention_inputs(layer, hidden);
    const LayerId next{layer.value + 1};
    if (attention.speculates() && next.value < decoder.config().layers) {
      const AttentionInputs ahead = decoder.attention_inputs(next, hidden);
      attention.speculate_rows(decoder, next, sequences, ahead.q);
    }
    decoder.finish_attention(layer, hidden, attention.attend_rows(decoder, layer, sequences, inputs));
    const Tensor entering = decoder.feed_forward_inputs(layer, hidden);
    const std::optional<NeuronMasks> masks = neurons ? neurons(layer, sequences, entering) : std::nullopt;
    decoder.feed_forward(layer, hidden, entering, masks ? &*masks : nullptr);
  }
  return hidden;
}

std::vector<float> decode_step(const Decoder& decoder, AttentionProvider& attention,
                               std::span<const SequenceId> sequences, std::span<const TokenId> tokens,
                               std::span<const TokenIndex> positions, const NeuronChoice& neurons) {
  return decoder.logits(decode_hidden(decoder, attention, sequences, tokens, positions, neurons));
}

std::vector<std::vector<TokenId>> generate(const Decoder& decoder, AttentionProvider& attention,
                                           const std::vector<std::vector<TokenId>>& prompts,
                                           const GenerationOptions& options, const NeuronChoice& neurons) {
  check(options.sampling);
  const ModelConfig& config = decoder.config();
  std::vector<SequenceSlice> slices;
  std::vector<TokenId> flat;
  std::vector<std::uint32_t> last_rows;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) throw UserError(fmt::format("prompt {} is empty: at least one token is needed", i));
    // The last new token is never fed, so it needs no position.
    const std::uint64_t context =
        std::uint64_t{prompts[i].size()} + options.max_new_tokens - (options.max_new_tokens > 0);
    if (context > config.longest_context()) {
      throw UserError(
          fmt::format("prompt {} has {} tokens; with {} new ones the context is longer than the model's {} "
                      "positions",
                      i, prompts[i].size(), options.max_new_tokens, config.longest_context()));
    }
    slices.push_back({SequenceId{static_cast<std::uint32_t>(i)}, static_cast<std::uint32_t>(prompts[i].size())});
    flat.insert(flat.end(), prompts[i].begin(), prompts[i].end());
    last_rows.push_back(static_cast<std::uint32_t>(flat.size() - 1));
  }
  std::vector<std::vector<TokenId>> results(prompts.size());
  if (prompts.empty() || options.max_new_tokens == 0) return results;

  for (const SequenceSlice& slice : slices) attention.create_sequence(slice.sequence);
  std::vector<float> logits = decoder.logits(prefill(decoder, attention, slices, flat), last_rows);
  std::vector<SequenceId> active;
  for (const SequenceSlice& slice : slices) active.push_back(slice.sequence);
  for (std::uint32_t step = 0; !active.empty(); ++step) {
    std::vector<SequenceId> next;
    std::vector<TokenId> tokens;
    std::vector<TokenIndex> positions;
    for (std::size_t row = 0; row < active.size(); ++row) {
      const std::uint32_t sequence = active[row].value;
      const TokenId token =
          sample(std::span(logits).subspan(row * config.vocab, config.vocab), options.sampling, sequence, step);
      results[sequence].push_back(token);
      if (step + 1 == options.max_new_tokens || token == options.stop) {
        attention.free_sequence(active[row]);
        continue;
      }
      next.push_back(active[row]);
      tokens.push_back(token);
      positions.push_back(TokenIndex{slices[sequence].tokens + step});
    }
    active = std::move(next);
    if (!active.empty()) logits = decode_step(decoder, attention, active, tokens, positions, neurons);
  }
  return results;
}

std::vector<std::vector<TokenId>> generate_on_host(const Decoder& decoder, std::unique_ptr<AttentionMethod> method,
                                                   const std::vector<std::vector<TokenId>>& prompts,
                                                   const GenerationOptions& options) {
  HostAttention attention(decoder.config(), std::move(method));
  return generate(decoder, attention, prompts, options);
}

std::uint32_t window_count(std::size_t tokens, const PerplexityOptions& options) {
  if (options.prefill < 1 || options.decode < 2) {
    throw UserError(
        fmt::format("prefill {} and decode {}: at least 1 and 2 tokens are needed", options.prefill, options.decode));
  }
  const std::size_t window = std::size_t{options.prefill} + options.decode;
  const std::size_t windows = options.windows > 0 ? options.windows : tokens / window;
  if (windows == 0 || windows > tokens / window) {
    const std::size_t asked = std::max<std::size_t>(windows, 1);
    throw UserError(fmt::format("the text has {} tokens; {} window(s) of {} + {} need {}", tokens, asked,
                                options.prefill, options.decode, asked * window));
  }
  return static_cast<std::uint32_t>(windows);
}

PerplexityResult perplexity(const Decoder& decoder, AttentionProvider& attention, std::span<const TokenId> text,
                            const PerplexityOptions& options) {
  const std::size_t window = std::size_t{options.prefill} + options.decode;
  const std::uint32_t windows = window_count(text.size(), options);
  double total = 0;
  PerplexityResult result;
  for (std::uint32_t w = 0; w < windows; ++w) {
    const std::span<const TokenId> tokens = text.subspan(w * window, window);
    const SequenceId sequence{w};
    attention.create_sequence(sequence);
    const SequenceSlice slice{sequence, options.prefill};
    prefill(decoder, attention, {&slice, 1}, tokens.first(options.prefill));
    for (std::uint32_t at = options.prefill; at + 1 < window; ++at) {
      const TokenIndex position{at};
      const std::vector<float> logits =
          decode_step(decoder, attention, {&sequence, 1}, tokens.subspan(at, 1), {&position, 1});
      total += negative_log_likelihood(logits, tokens[at + 1]);
      ++result.tokens_scored;
    }
    attention.free_sequence(sequence);
  }
  result.perplexity = std::exp(total / static_cast<double>(result.tokens_scored));
  return result;
}

}  // namespace csdsim::host
