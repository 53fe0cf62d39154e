#include "host_runtime/core/carried/decoder_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

#include "base/error.h"
#include "host_runtime/core/carried/decoder_rows.h"
#include "host_runtime/core/carried/rows_to_host.h"

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
                         std::uint32_t output_tokens, std::uint32_t mini_batches, const host::SamplingOptions& sampling,
                         host::KvDivision division)
    : DecoderData(decoder, prompts, std::vector<std::uint32_t>(prompts.size(), output_tokens), mini_batches, sampling,
                  std::move(division)) {}

DecoderData::DecoderData(const host::Decoder& decoder, std::vector<std::vector<TokenId>> prompts,
                         const std::vector<std::uint32_t>& output_tokens, std::uint32_t mini_batches,
                         const host::SamplingOptions& sampling, host::KvDivision division)
    : decoder_(decoder),
      prompts_(std::move(prompts)),
      outputs_(output_tokens),
      sampling_(sampling),
      division_(std::move(division)),
      verified_(prompts_.size()) {
  host::check(sampling);
  const host::ModelConfig& model = decoder.config();
  if (output_tokens.size() != prompts_.size()) throw InternalError("not as many outputs as prompts");
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    if (prompts_[i].empty()) throw UserError(fmt::format("prompt {}: it is empty", i));
    for (const TokenId token : prompts_[i])
      if (token.value >= model.vocab)
        throw UserError(
            fmt::format("prompt {}: token id {} is outside the vocabulary of {}", i, token.value, model.vocab));
    const std::uint64_t context = prompts_[i].size() + output_tokens[i] - std::uint64_t{1};
    if (context > model.longest_context())
      throw UserError(fmt::format("prompt {}: {} prompt tokens and {} new ones need {} positions, the model has {}", i,
                                  prompts_[i].size(), output_tokens[i], context, model.longest_context()));
  }
  mini_batches_ = host::even_shares(static_cast<std::uint32_t>(prompts_.size()), mini_batches);
  generated_.resize(prompts_.size());
  accepted_.resize(prompts_.size());
  digest_.assign(prompts_.size(), 0xCBF29CE484222325ULL);
}

void DecoderData::set_features(RunFeatures features, const CheckpointSources& sources) {
  features_ = std::move(features);
  for (const auto& feature : features_)
    if (CarriedFeature* const carried = feature->carry(*this, sources)) carried_.push_back(carried);
  const auto proposer = std::ranges::find_if(carried_, &CarriedFeature::proposes);
  if (proposer != carried_.end()) proposer_ = *proposer;
}

CarriedFeature& DecoderData::of_feature(const Operation& op) const {
  CarriedFeature* const feature = serving(op);
  if (feature == nullptr) throw InternalError(fmt::format("{}: no feature of the run knows its data", user(op)));
  return *feature;
}

CarriedFeature* DecoderData::serving(const Operation& op) const {
  const auto found = std::ranges::find_if(carried_, [&](const CarriedFeature* of) { return of->serves(op); });
  return found == carried_.end() ? nullptr : *found;
}

std::uint64_t DecoderData::attention_digest() const {
  std::uint64_t all = 0xCBF29CE484222325ULL;
  for (const std::uint64_t d : digest_) all = (all ^ d) * 0x100000001B3ULL;
  return all;
}

std::vector<StepSequence> DecoderData::sequences_of(const Operation& op) const {
  if (op.tag.sequences) return *op.tag.sequences;
  const host::Share share = mini_batches_.at(op.tag.mini_batch.value);
  Sequences all;
  for (std::uint32_t s = share.first; s < share.first + share.count; ++s) {
    const auto prompt = static_cast<std::uint32_t>(prompts_[s].size());
    const bool prefill = op.tag.phase == Phase::prefill;
    all.push_back({SequenceId{s}, prefill ? 0 : prompt + op.tag.step, prefill ? prompt : 1});
  }
  return all;
}

host::Share DecoderData::rows_of(const Operation& op, std::uint32_t sequence) const {
  std::uint32_t row = 0;
  for (const StepSequence& s : sequences_of(op)) {
    if (s.sequence.value == sequence) return {row, s.tokens};
    row += s.tokens;
  }
  throw InternalError(fmt::format("{}: sequence {} takes no part in it", user(op), sequence));
}

std::size_t DecoderData::rows_of(const Operation& op) const {
  std::size_t rows = 0;
  for (const StepSequence& s : sequences_of(op)) rows += s.tokens;
  return rows;
}

std::vector<host::Share> DecoderData::rows_in(const Operation& op, const TensorName& new_kv) const {
  const bool together = std::ranges::any_of(carried_, &CarriedFeature::places_tokens);
  if (!division_.by_tokens() || together || op.tag.phase == Phase::decode)
    return {{0, static_cast<std::uint32_t>(rows_of(op))}};
  std::vector<host::Share> rows;
  std::uint32_t row = 0;
  for (const StepSequence& s : sequences_of(op)) {
    const host::Share held = division_.prompt_piece(new_kv.part, s.tokens);
    rows.push_back({row + held.first, held.count});
    row += s.tokens;
  }
  return rows;
}

std::shared_ptr<host::HiddenStates>& DecoderData::hidden(const Operation& op) {
  return tensors_.at<std::shared_ptr<host::HiddenStates>>(hidden_name(op), input_place(op, TensorClass::hidden),
                                                          user(op));
}

void DecoderData::load_queries(const Operation& op, std::size_t index, HeadRange heads, std::span<Half> q) {
  of_feature(op).load_queries(op, index, heads, q);
}
void DecoderData::store_scores(const Operation& op, std::size_t index, HeadRange heads, std::uint32_t first,
                               std::span<const float> scores) {
  of_feature(op).store_scores(op, index, heads, first, scores);
}
void DecoderData::store_rows(const Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                             HeadRange heads, std::span<const Half> k, std::span<const Half> v) {
  of_feature(op).store_rows(op, index, first, count, heads, k, v);
}
void DecoderData::load_blocks(const Operation& op, std::size_t index, std::span<std::byte> bytes) {
  if (moves_activations(op)) return load_activations(op, bytes);
  of_feature(op).load_blocks(op, index, bytes);
}
void DecoderData::store_blocks(const Operation& op, std::size_t index, std::span<const std::byte> bytes) {
  if (moves_activations(op)) return store_activations(op, bytes);
  of_feature(op).store_blocks(op, index, bytes);
}
void DecoderData::load_network_input(const Operation& op, std::uint32_t first, std::span<Half> x,
                                     std::span<Half> bias) {
  of_feature(op).load_network_input(op, first, x, bias);
}
void DecoderData::store_partial_sum(const Operation& op, std::span<const float> y) {
  of_feature(op).store_partial_sum(op, y);
}

void DecoderData::perform(const Operation& op) {
  if (CarriedFeature* const feature = serving(op)) return feature->perform(op);
  switch (op.kind) {
    case OpKind::embed:
      return embed(op);
    case OpKind::attention_inputs:
      return attention_inputs(op);
    case OpKind::attention:
      return op.tag.phase == Phase::prefill ? prefill_attention(op) : decode_attention(op);
    case OpKind::append_kv:
      quantise_new_kv(op);
      append_to_caches(op);
      return append_to_layer_inputs(op);
    case OpKind::gather_kv:
      return gather_tokens(op);
    case OpKind::free_kv:
      return free_in_caches(op);
    case OpKind::recompute_kv:
      return recompute_kv(op);
    case OpKind::merge_attention:
      return merge_attention(op);
    case OpKind::finish_layer:
      return decoder_.finish_layer(*op.tag.layer, *hidden(op), *attention_of(op));
    case OpKind::finish_attention:
      return finish_attention(op);
    case OpKind::sample:
      return sample(op);
    case OpKind::transfer:
      return op.tensors.tokens.empty() ? tensors_.transfer(op) : copy_tokens(op);
    default:
      throw InternalError(fmt::format("{} is no work of a processor that runs a decoder", user(op)));
  }
}

void DecoderData::finish_attention(const Operation& op) {
  decoder_.finish_attention(*op.tag.layer, *hidden(op), *attention_of(op));
}

void DecoderData::embed(const Operation& op) {
  std::vector<TokenId> tokens;
  std::vector<TokenIndex> positions;
  for (const StepSequence& s : sequences_of(op)) {
    const std::size_t sequence = s.sequence.value;
    if (op.tag.phase == Phase::prefill) {
      tokens.insert(tokens.end(), prompts_[sequence].begin(), prompts_[sequence].end());
    } else {
      tokens.push_back(generated_[sequence].back());
      std::ranges::copy(proposed_tokens(s.sequence), std::back_inserter(tokens));
    }
    for (std::uint32_t token = s.first_token; token < s.context(); ++token) positions.emplace_back(token);
  }
  tensors_.put(hidden_name(op), output_place(op, TensorClass::hidden),
               std::make_shared<host::HiddenStates>(decoder_.embed(tokens, positions)));
}

void DecoderData::attention_inputs(const Operation& op) {
  const auto inputs =
      std::make_shared<const host::AttentionInputs>(decoder_.attention_inputs(*op.tag.layer, *hidden(op)));
  const host::ModelConfig& model = decoder_.config();
  const bool prefill = op.tag.phase == Phase::prefill;
  const bool learns = std::ranges::any_of(carried_, &CarriedFeature::learns_prompts);
  const auto rows = std::make_shared<RowsToHost>(decoder_, *op.tag.layer, inputs, !prefill || learns);
  if (prefill)
    for (CarriedFeature* const feature : carried_)
      if (feature->learns_prompts()) feature->projected(op, rows->q(), rows->k(), rows->v());
  const auto put = [&](const TensorName& name, Place place, auto part) {
    if (rows->on_the_way())
      tensors_.put(name, place, AwaitedRows(std::async(std::launch::deferred, part)));
    else
      tensors_.put(name, place, part());
  };
  for (const SizedTensor& write : op.tensors.writes) {
    const HeadRange heads = write.name.heads;
    const Place place = output_place(op, write.name.what);
    if (write.name.what == TensorClass::new_kv) {
      put(write.name, place, [rows, heads, &model, shares = rows_in(op, write.name)] {
        NewKv kv;
        const std::size_t width = model.kv_width(), d = model.head_dim;
        for (const std::vector<Half>* all : {&rows->k(), &rows->v()})
          for (const host::Share share : shares)
            append_columns(std::span(*all).subspan(share.first * width, share.count * width), width,
                           heads.first.value * d, heads.count * d, kv);
        return kv;
      });
    } else if (write.name.what == TensorClass::layer_input) {
      keep_layer_input(op, write.name, layer_inputs_of(op, *hidden(op)));
    } else if (write.name.what == TensorClass::queries && prefill) {
      tensors_.put(write.name, place, inputs);
    } else if (write.name.what == TensorClass::queries) {
      put(write.name, place, [rows, heads, &model] {
        const std::size_t per_head = std::size_t{model.group_size()} * model.head_dim;
        std::vector<Half> part;
        append_columns(rows->q(), model.q_width(), heads.first.value * per_head, heads.count * per_head, part);
        return part;
      });
    }
  }
}

void DecoderData::prefill_attention(const Operation& op) {
  std::vector<std::uint32_t> lengths;
  for (const StepSequence& s : sequences_of(op)) lengths.push_back(s.tokens);
  const auto& inputs = tensors_.at<std::shared_ptr<const host::AttentionInputs>>(
      TensorName::of(TensorClass::queries, op.tag), input_place(op, TensorClass::queries), user(op));
  tensors_.put(TensorName::of(TensorClass::attention_output, op.tag), output_place(op, TensorClass::attention_output),
               std::make_shared<const host::Tensor>(decoder_.prefill_attention(*inputs, lengths)));
}

std::shared_ptr<const host::Tensor> DecoderData::attention_of(const Operation& op) {
  const Place place = input_place(op, TensorClass::attention_output);
  if (op.tag.phase == Phase::prefill) {
    return tensors_.at<std::shared_ptr<const host::Tensor>>(TensorName::of(TensorClass::attention_output, op.tag),
                                                            place, user(op));
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
  add_to_digests(op, all);
  return std::make_shared<const host::Tensor>(decoder_.from_host(all, width));
}

void DecoderData::add_to_digests(const Operation& op, std::span<const Half> outputs) {
  const std::size_t width = decoder_.config().q_width();
  for (const StepSequence& s : sequences_of(op)) {
    auto& of_tokens = verified_[s.sequence.value];
    of_tokens.resize(s.tokens);
    for (std::vector<Half>& of_token : of_tokens) {
      of_token.insert(of_token.end(), outputs.begin(), outputs.begin() + static_cast<std::ptrdiff_t>(width));
      outputs = outputs.subspan(width);
    }
  }
}

/// The next token of a sequence.
TokenId DecoderData::choose(std::uint32_t sequence, std::span<const float> logits) const {
  const std::size_t index = generated_[sequence].size();
  return chooser_ ? chooser_(sequence, index, logits) : host::sample(logits, sampling_, sequence, index);
}

/// The prompt of a sequence, and what it has generated.
std::uint32_t DecoderData::prompt_of(SequenceId sequence) const {
  return static_cast<std::uint32_t>(prompts_.at(sequence.value).size());
}

std::vector<TokenId> DecoderData::tokens_of(SequenceId of) const {
  const std::uint32_t sequence = of.value;
  std::vector<TokenId> tokens = prompts_[sequence];
  tokens.insert(tokens.end(), generated_[sequence].begin(), generated_[sequence].end());
  return tokens;
}

std::uint32_t DecoderData::generated(SequenceId sequence) const {
  return static_cast<std::uint32_t>(generated_[sequence.value].size());
}

std::uint32_t DecoderData::proposed(SequenceId sequence) const {
  return static_cast<std::uint32_t>(proposed_tokens(sequence).size());
}

std::span<const TokenId> DecoderData::proposed_tokens(SequenceId sequence) const {
  return proposer_ != nullptr ? proposer_->proposed(sequence) : std::span<const TokenId>{};
}

/// Chooses the token after the last one of a prompt. With proposed tokens, each further token is chosen as long as they
/// were right.
void DecoderData::sample(const Operation& op) {
  const Sequences sequences = sequences_of(op);
  const bool prefill = op.tag.phase == Phase::prefill;
  std::vector<std::uint32_t> rows;
  std::uint32_t end = 0;
  for (const StepSequence& s : sequences) {
    end += s.tokens;
    for (std::uint32_t row = prefill ? end - 1 : end - s.tokens; row < end; ++row) rows.push_back(row);
  }
  const std::vector<float> logits = decoder_.logits(*hidden(op), rows);
  const std::size_t vocab = decoder_.config().vocab;
  std::span<const float> left = logits;
  for (const StepSequence& s : sequences) {
    const std::uint32_t sequence = s.sequence.value;
    const std::span<const TokenId> proposed = proposed_tokens(s.sequence);
    const std::span<const float> of_sequence = left.first((1 + proposed.size()) * vocab);
    left = left.subspan(of_sequence.size());
    std::uint32_t chosen = 0;
    for (bool right = true; right; ++chosen) {
      const std::span<const float> of_token = of_sequence.subspan(chosen * vocab, vocab);
      generated_[sequence].push_back(choose(sequence, of_token));
      if (watcher_) watcher_(sequence, of_token, generated_[sequence].back());
      right = chosen < proposed.size() && generated_[sequence].back() == proposed[chosen];
    }
    auto& outputs = verified_[sequence];
    for (std::size_t token = 0; token < std::min<std::size_t>(chosen, outputs.size()); ++token)
      digest_[sequence] = digest_of(digest_[sequence], outputs[token]);
    outputs.clear();
    accepted_[sequence] = chosen - 1;
    if (proposer_ != nullptr) proposer_->chose(s.sequence, chosen, tokens_of(s.sequence));
  }
}

const NewKv& DecoderData::new_kv_of_drive(const Operation& op, NewKv& dequantised) const {
  const HeadRange heads = std::get<host::DriveWork>(op.work).heads;
  const auto name = std::ranges::find_if(op.tensors.reads, [&](const TensorName& read) {
    return read.what == TensorClass::new_kv && read.heads == heads;
  });
  if (name == op.tensors.reads.end())
    throw InternalError(fmt::format("{} names no new_kv of its heads that it reads", user(op)));
  if (kv_format_.quantised()) return dequantised = new_kv_of(op, *name);
  return tensors_.at<NewKv>(*name, input_place(op, TensorClass::new_kv), user(op));
}

void DecoderData::load_append(const Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                              HeadRange heads, std::span<Half> k, std::span<Half> v) {
  const auto& work = std::get<host::DriveWork>(op.work);
  NewKv dequantised;
  const NewKv& kv = new_kv_of_drive(op, dequantised);
  const std::size_t d = decoder_.config().head_dim;
  std::size_t row = first;
  for (std::size_t i = 0; i < index; ++i) row += work.sequences.at(i).tokens;
  const std::uint32_t head = heads.first.value - work.heads.first.value;
  gather_heads(keys(kv), work.heads.count, d, row, count, head, heads.count, k);
  gather_heads(values(kv), work.heads.count, d, row, count, head, heads.count, v);
}

}  // namespace csdsim::host
