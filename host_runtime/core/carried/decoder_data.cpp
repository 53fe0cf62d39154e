#include "host_runtime/core/carried/decoder_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace csdsim::host {

using host::HeadRange;
using host::Operation;
using host::OpKind;
using host::Phase;
using host::TokenId;

namespace {

/// FNV-1a over 16-bit words.
std::uint64_t digest_of(std::uint64_t digest, std::span<const Half> values) {
  for (const Half value : values) digest = (digest ^ value) * 0x100000001B3ULL;
  return digest;
}

/// Copies heads [first, first + count) of rows [row, row + rows) of a [row][heads][d] tensor to [head][row][d].
void gather_heads(std::span<const Half> tensor, std::size_t heads_in_row, std::size_t d, std::size_t row,
                  std::size_t rows, std::size_t first, std::size_t count, std::span<Half> to) {
  Half* out = to.data();
  for (std::size_t h = first; h < first + count; ++h)
    for (std::size_t r = row; r < row + rows; ++r)
      out = std::copy_n(tensor.data() + (r * heads_in_row + h) * d, d, out);
}

}  // namespace

DecoderData::DecoderData(const host::Decoder& decoder, std::vector<std::vector<TokenId>> prompts,
                         std::uint32_t output_tokens, std::uint32_t mini_batches, const host::SamplingOptions& sampling)
    : decoder_(decoder), prompts_(std::move(prompts)), sampling_(sampling) {
  host::check(sampling);
  const host::ModelConfig& model = decoder.config();
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    if (prompts_[i].empty()) throw UserError(fmt::format("prompt {}: it is empty", i));
    for (const TokenId token : prompts_[i])
      if (token.value >= model.vocab)
        throw UserError(
            fmt::format("prompt {}: token id {} is outside the vocabulary of {}", i, token.value, model.vocab));
    const std::uint64_t context = prompts_[i].size() + output_tokens - std::uint64_t{1};
    if (context > model.max_positions)
      throw UserError(fmt::format("prompt {}: {} prompt tokens and {} new ones need {} positions, the model has {}", i,
                                  prompts_[i].size(), output_tokens, context, model.max_positions));
  }
  for (const host::Share share : host::even_shares(static_cast<std::uint32_t>(prompts_.size()), mini_batches))
    mini_batches_.emplace_back().sequences = share;
  generated_.resize(prompts_.size());
  digest_.assign(prompts_.size(), 0xCBF29CE484222325ULL);
}

std::uint64_t DecoderData::attention_digest() const {
  std::uint64_t all = 0xCBF29CE484222325ULL;
  for (const std::uint64_t d : digest_) all = (all ^ d) * 0x100000001B3ULL;
  return all;
}

std::size_t DecoderData::row_of(const MiniBatch& mb, const Operation& op, std::size_t index) const {
  const std::uint32_t sequence = std::get<host::DriveWork>(op.work).sequences.at(index).sequence.value;
  return mb.first_row.at(sequence - mb.sequences.first);
}

void DecoderData::perform(const Operation& op) {
  MiniBatch& mb = mini_batch(op);
  switch (op.kind) {
    case OpKind::embed:
      return embed(op, mb);
    case OpKind::attention_inputs:
      return attention_inputs(op, mb);
    case OpKind::attention:
      mb.attention = decoder_.prefill_attention(mb.inputs, mb.lengths);
      return;
    case OpKind::finish_layer:
      return finish_layer(op, mb);
    case OpKind::sample:
      return sample(mb);
    case OpKind::transfer:
      return;  // what travels is handed over where it arrives
    case OpKind::append_kv:
    case OpKind::attend:
      break;
  }
  throw InternalError(fmt::format("{} is work of a drive", host::operation_name(op.kind, op.tag)));
}

void DecoderData::embed(const Operation& op, MiniBatch& mb) {
  std::vector<TokenId> tokens;
  std::vector<TokenIndex> positions;
  mb.lengths.clear();
  mb.first_row.clear();
  for (std::uint32_t s = mb.sequences.first; s < mb.sequences.first + mb.sequences.count; ++s) {
    mb.first_row.push_back(static_cast<std::uint32_t>(tokens.size()));
    if (op.tag.phase == Phase::prefill) {
      tokens.insert(tokens.end(), prompts_[s].begin(), prompts_[s].end());
      for (std::uint32_t p = 0; p < prompts_[s].size(); ++p) positions.emplace_back(p);
      mb.lengths.push_back(static_cast<std::uint32_t>(prompts_[s].size()));
    } else {
      tokens.push_back(generated_[s].back());
      positions.emplace_back(static_cast<std::uint32_t>(prompts_[s].size() + op.tag.step));
      mb.lengths.push_back(1);
    }
  }
  mb.hidden = decoder_.embed(tokens, positions);
}

void DecoderData::attention_inputs(const Operation& op, MiniBatch& mb) {
  mb.inputs = decoder_.attention_inputs(*op.tag.layer, mb.hidden);
  std::vector<Half> k = decoder_.to_host(mb.inputs.k);
  std::vector<Half> v = decoder_.to_host(mb.inputs.v);
  if (op.tag.phase == Phase::prefill) {
    const std::uint64_t elements = k.size();
    shipments_[{op.tag.mini_batch.value, op.tag.layer->value}] = {std::move(k), std::move(v), elements};
    return;
  }
  mb.q = decoder_.to_host(mb.inputs.q);
  mb.k = std::move(k);
  mb.v = std::move(v);
  mb.out.assign(mb.q.size(), Half{0});
}

void DecoderData::finish_layer(const Operation& op, MiniBatch& mb) {
  if (op.tag.phase == Phase::prefill) return decoder_.finish_layer(*op.tag.layer, mb.hidden, mb.attention);
  const std::size_t width = decoder_.config().q_width();
  for (std::size_t row = 0; row < mb.lengths.size(); ++row) {
    std::uint64_t& digest = digest_[mb.sequences.first + row];
    digest = digest_of(digest, std::span(mb.out).subspan(row * width, width));
  }
  decoder_.finish_layer(*op.tag.layer, mb.hidden, decoder_.from_host(mb.out, width));
}

void DecoderData::sample(MiniBatch& mb) {
  std::vector<std::uint32_t> rows;
  for (std::size_t i = 0; i < mb.lengths.size(); ++i) rows.push_back(mb.first_row[i] + mb.lengths[i] - 1);
  const std::vector<float> logits = decoder_.logits(mb.hidden, rows);
  const std::size_t vocab = decoder_.config().vocab;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::uint32_t s = mb.sequences.first + static_cast<std::uint32_t>(i);
    const std::span<const float> of_sequence = std::span(logits).subspan(i * vocab, vocab);
    const std::size_t index = generated_[s].size();
    generated_[s].push_back(chooser_ ? chooser_(s, index, of_sequence)
                                     : host::sample(of_sequence, sampling_, s, index));
  }
}

void DecoderData::load_append(const Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                              HeadRange heads, std::span<Half> k, std::span<Half> v) {
  const std::pair key{op.tag.mini_batch.value, op.tag.layer->value};
  Shipment& shipment = shipments_.at(key);
  const host::ModelConfig& model = decoder_.config();
  const std::size_t row = row_of(mini_batch(op), op, index) + first;
  gather_heads(shipment.k, model.kv_heads, model.head_dim, row, count, heads.first.value, heads.count, k);
  gather_heads(shipment.v, model.kv_heads, model.head_dim, row, count, heads.first.value, heads.count, v);
  shipment.elements_left -= k.size();
  if (shipment.elements_left == 0) shipments_.erase(key);
}

void DecoderData::load_attend(const Operation& op, std::size_t index, HeadRange heads, std::span<Half> q,
                              std::span<Half> k, std::span<Half> v) {
  const MiniBatch& mb = mini_batch(op);
  const host::ModelConfig& model = decoder_.config();
  const std::size_t row = row_of(mb, op, index);
  const std::size_t d = model.head_dim;
  const std::size_t kv = row * model.kv_width() + heads.first.value * d;
  std::copy_n(mb.q.data() + row * model.q_width() + heads.first.value * model.group_size() * d, q.size(), q.data());
  std::copy_n(mb.k.data() + kv, k.size(), k.data());
  std::copy_n(mb.v.data() + kv, v.size(), v.data());
}

void DecoderData::store_output(const Operation& op, std::size_t index, HeadRange heads, std::span<const Half> out) {
  MiniBatch& mb = mini_batch(op);
  const host::ModelConfig& model = decoder_.config();
  const std::size_t at =
      row_of(mb, op, index) * model.q_width() + std::size_t{heads.first.value} * model.group_size() * model.head_dim;
  std::copy(out.begin(), out.end(), mb.out.begin() + static_cast<std::ptrdiff_t>(at));
}

}  // namespace csdsim::host
