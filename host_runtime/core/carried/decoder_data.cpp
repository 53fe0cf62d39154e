#include "host_runtime/core/carried/decoder_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "host_runtime/core/carried/decoder_rows.h"

namespace csdsim::host {

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

TensorName hidden_name(const Operation& op) {
  OpTag tag = op.tag;
  tag.layer.reset();
  return TensorName::of(TensorClass::hidden, tag);
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

host::Share DecoderData::rows_of(const Operation& op, std::uint32_t sequence) const {
  const std::uint32_t first = mini_batches_.at(op.tag.mini_batch.value).sequences.first;
  if (op.tag.phase == Phase::decode) return {sequence - first, 1};
  std::uint32_t row = 0;
  for (std::uint32_t s = first; s < sequence; ++s) row += static_cast<std::uint32_t>(prompts_[s].size());
  return {row, static_cast<std::uint32_t>(prompts_[sequence].size())};
}

std::size_t DecoderData::rows_of(const Operation& op) const {
  const host::Share sequences = mini_batches_.at(op.tag.mini_batch.value).sequences;
  const host::Share last = rows_of(op, sequences.first + sequences.count - 1);
  return last.first + last.count;
}

std::shared_ptr<host::HiddenStates>& DecoderData::hidden(const Operation& op) {
  return tensors_.at<std::shared_ptr<host::HiddenStates>>(hidden_name(op), input_place(op, TensorClass::hidden),
                                                          user(op));
}

void DecoderData::perform(const Operation& op) {
  MiniBatch& mb = mini_batch(op);
  switch (op.kind) {
    case OpKind::embed:
      return embed(op, mb);
    case OpKind::attention_inputs:
      return attention_inputs(op);
    case OpKind::attention:
      return op.tag.phase == Phase::prefill ? prefill_attention(op, mb) : decode_attention(op, mb);
    case OpKind::append_kv:
      append_to_caches(op);
      update_value_means(op);
      join_rows(op);
      return append_to_layer_inputs(op);
    case OpKind::select_tokens:
      return select_tokens(op);
    case OpKind::recompute_kv:
      return recompute_kv(op);
    case OpKind::merge_attention:
      return merge_attention(op);
    case OpKind::finish_layer:
      return finish_layer(op, mb);
    case OpKind::sample:
      return sample(op, mb);
    case OpKind::transfer:
      return tensors_.transfer(op);
    default:
      throw InternalError(fmt::format("{} is no work of a processor that runs a decoder", user(op)));
  }
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
  tensors_.put(hidden_name(op), output_place(op, TensorClass::hidden),
               std::make_shared<host::HiddenStates>(decoder_.embed(tokens, positions)));
}

void DecoderData::attention_inputs(const Operation& op) {
  const auto inputs =
      std::make_shared<const host::AttentionInputs>(decoder_.attention_inputs(*op.tag.layer, *hidden(op)));
  const host::ModelConfig& model = decoder_.config();
  const std::vector<Half> k = decoder_.to_host(inputs->k);
  const std::vector<Half> v = decoder_.to_host(inputs->v);
  std::vector<Half> q;
  for (const SizedTensor& write : op.tensors.writes) {
    const HeadRange heads = write.name.heads;
    const Place place = output_place(op, write.name.what);
    if (write.name.what == TensorClass::new_kv) {
      NewKv kv;
      kv.reserve(2 * rows_of(op) * heads.count * model.head_dim);
      for (const std::vector<Half>* rows : {&k, &v})
        append_columns(*rows, model.kv_width(), heads.first.value * model.head_dim, heads.count * model.head_dim, kv);
      tensors_.put(write.name, place, std::move(kv));
    } else if (write.name.what == TensorClass::layer_input) {
      keep_layer_input(op, write.name, layer_inputs_of(op, *hidden(op)));
    } else if (write.name.what == TensorClass::queries && op.tag.phase == Phase::prefill) {
      tensors_.put(write.name, place, inputs);
    } else if (write.name.what == TensorClass::queries) {
      if (q.empty()) q = decoder_.to_host(inputs->q);
      const std::size_t per_head = std::size_t{model.group_size()} * model.head_dim;
      std::vector<Half> part;
      append_columns(q, model.q_width(), heads.first.value * per_head, heads.count * per_head, part);
      tensors_.put(write.name, place, std::move(part));
    }
  }
}

void DecoderData::prefill_attention(const Operation& op, const MiniBatch& mb) {
  const auto& inputs = tensors_.at<std::shared_ptr<const host::AttentionInputs>>(
      TensorName::of(TensorClass::queries, op.tag), input_place(op, TensorClass::queries), user(op));
  tensors_.put(TensorName::of(TensorClass::attention_output, op.tag), output_place(op, TensorClass::attention_output),
               std::make_shared<const host::Tensor>(decoder_.prefill_attention(*inputs, mb.lengths)));
}

void DecoderData::finish_layer(const Operation& op, const MiniBatch& mb) {
  std::shared_ptr<host::HiddenStates>& states = hidden(op);
  const Place place = input_place(op, TensorClass::attention_output);
  if (op.tag.phase == Phase::prefill) {
    const auto& attention = tensors_.at<std::shared_ptr<const host::Tensor>>(
        TensorName::of(TensorClass::attention_output, op.tag), place, user(op));
    return decoder_.finish_layer(*op.tag.layer, *states, *attention);
  }
  const host::ModelConfig& model = decoder_.config();
  const std::size_t width = model.q_width();
  const std::size_t per_head = std::size_t{model.group_size()} * model.head_dim;
  std::vector<Half> all(rows_of(op) * width);
  std::size_t found = 0;
  for (const TensorName& name : op.tensors.reads) {
    if (name.what != TensorClass::attention_output) continue;
    const auto& part = tensors_.at<std::vector<Half>>(name, place, user(op));
    const std::size_t columns = name.heads.count * per_head;
    for (std::size_t row = 0; row < rows_of(op); ++row)
      std::copy_n(part.data() + row * columns, columns, all.data() + row * width + name.heads.first.value * per_head);
    found += part.size();
  }
  if (found != all.size())
    throw InternalError(fmt::format("{} reads attention outputs of {} heads of {}", user(op),
                                    found / (rows_of(op) * model.head_dim), model.heads));
  for (std::size_t row = 0; row < mb.sequences.count; ++row) {
    std::uint64_t& digest = digest_[mb.sequences.first + row];
    digest = digest_of(digest, std::span(all).subspan(row * width, width));
  }
  decoder_.finish_layer(*op.tag.layer, *states, decoder_.from_host(all, width));
}

void DecoderData::sample(const Operation& op, const MiniBatch& mb) {
  std::vector<std::uint32_t> rows;
  for (std::size_t i = 0; i < mb.lengths.size(); ++i) rows.push_back(mb.first_row[i] + mb.lengths[i] - 1);
  const std::vector<float> logits = decoder_.logits(*hidden(op), rows);
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
  const auto& work = std::get<host::DriveWork>(op.work);
  const auto& kv = tensors_.at<NewKv>(TensorName::of(TensorClass::new_kv, op.tag, work.heads),
                                      input_place(op, TensorClass::new_kv), user(op));
  const std::size_t d = decoder_.config().head_dim;
  const std::size_t row = rows_of(op, work.sequences.at(index).sequence.value).first + first;
  const std::uint32_t head = heads.first.value - work.heads.first.value;
  gather_heads(keys(kv), work.heads.count, d, row, count, head, heads.count, k);
  gather_heads(values(kv), work.heads.count, d, row, count, head, heads.count, v);
}

void DecoderData::load_attend(const Operation& op, std::size_t index, HeadRange heads, std::span<Half> q,
                              std::span<Half> k, std::span<Half> v) {
  const auto& work = std::get<host::DriveWork>(op.work);
  const host::ModelConfig& model = decoder_.config();
  const auto& queries = tensors_.at<std::vector<Half>>(TensorName::of(TensorClass::queries, op.tag, work.heads),
                                                       input_place(op, TensorClass::queries), user(op));
  const std::size_t row = rows_of(op, work.sequences.at(index).sequence.value).first;
  const std::size_t head = row * work.heads.count + (heads.first.value - work.heads.first.value);
  std::copy_n(queries.data() + head * model.group_size() * model.head_dim, q.size(), q.data());
  if (k.empty()) return;
  const auto& kv = tensors_.at<NewKv>(TensorName::of(TensorClass::new_kv, op.tag, work.heads),
                                      input_place(op, TensorClass::new_kv), user(op));
  std::copy_n(keys(kv).data() + head * model.head_dim, k.size(), k.data());
  std::copy_n(values(kv).data() + head * model.head_dim, v.size(), v.data());
}

void DecoderData::store_output(const Operation& op, std::size_t index, HeadRange heads, std::span<const Half> out) {
  const auto& work = std::get<host::DriveWork>(op.work);
  const host::ModelConfig& model = decoder_.config();
  const std::size_t per_head = std::size_t{model.group_size()} * model.head_dim;
  const TensorName name = TensorName::of(TensorClass::attention_output, op.tag, work.heads);
  const Place place = output_place(op, TensorClass::attention_output);
  if (!tensors_.has(name, place))
    tensors_.put(name, place, std::vector<Half>(rows_of(op) * work.heads.count * per_head));
  auto& all = tensors_.at<std::vector<Half>>(name, place, user(op));
  const std::size_t row = rows_of(op, work.sequences.at(index).sequence.value).first;
  const std::size_t head = row * work.heads.count + (heads.first.value - work.heads.first.value);
  std::copy(out.begin(), out.end(), all.begin() + static_cast<std::ptrdiff_t>(head * per_head));
}

}  // namespace csdsim::host
