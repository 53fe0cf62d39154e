// A plan that splits the tokens of every head: prompts in a drive, new tokens at a processor, partial attention in both
// places, merged on the GPU.
#pragma once

#include <vector>

#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::test {

inline std::vector<std::vector<host::TokenId>> split_prompts() {
  using T = host::TokenId;
  std::vector<T> longer;
  for (std::uint32_t i = 0; i < 37; ++i) longer.push_back(T{40 + 13 * i});
  return {longer, {T{44}, T{3}}, {T{5}}};
}
inline constexpr std::uint32_t kSplitNewTokens = 8;

class SplitDecoding final : public host::Planner {
 public:
  /// New tokens stay at `home`, gpu or host.
  SplitDecoding(const host::ModelShape& model, host::PlaceKind home) : model_(model), home_{home, 0} {}

  bool next_step(host::OperationSink& sink) override {
    if (step_ == kSplitNewTokens) return false;
    rows_ = 0;
    for (const auto& prompt : split_prompts()) rows_ += step_ == 0 ? prompt.size() : 1;
    tag_ = {.phase = step_ == 0 ? host::Phase::prefill : host::Phase::decode, .step = step_ == 0 ? 0 : step_ - 1};
    const host::SizedTensor hidden = sized(host::TensorClass::hidden, {}, model_.width * model_.element_bytes);
    add(sink, host::OpKind::embed, host::Resource::gpu(), model_.embed(rows_), {.writes = {hidden}});
    for (std::uint32_t layer = 0; layer < model_.layers; ++layer) {
      tag_.layer = LayerId{layer};
      if (step_ == 0) {
        prefill(sink, hidden);
      } else {
        decode(sink, hidden);
      }
    }
    tag_.layer.reset();
    add(sink, host::OpKind::sample, host::Resource::gpu(), model_.sample(split_prompts().size()),
        {.reads = {hidden.name}, .drops = {{hidden.name, host::Place::gpu()}}});
    ++step_;
    return true;
  }

 private:
  using Kind = host::TensorClass;
  static constexpr host::Resource kDrive = host::Resource::drive(host::DriveIndex{0});

  host::SizedTensor sized(Kind what, HeadRange heads, std::uint64_t bytes_per_row, std::uint32_t part = 0) const {
    return {host::TensorName::of(what, tag_, heads, part), Bytes{bytes_per_row * rows_}};
  }
  host::SizedTensor cache(std::uint32_t part, std::uint64_t tokens) const {
    return {host::TensorName::kept(Kind::kv_cache, tag_.layer, tag_.mini_batch, all(), part),
            model_.kv_bytes_per_token_and_layer() * tokens};
  }
  HeadRange all() const { return {KvHead{0}, model_.kv_heads}; }
  static std::uint64_t prompt_tokens() {
    std::uint64_t sum = 0;
    for (const auto& prompt : split_prompts()) sum += prompt.size();
    return sum;
  }
  void add(host::OperationSink& sink, host::OpKind kind, host::Resource resource, host::Work work,
           host::TensorUses uses) {
    last_ = {sink.add(kind, resource, tag_, std::move(work), last_, std::move(uses))};
  }
  void move(host::OperationSink& sink, host::ResourceKind link, const std::vector<host::SizedTensor>& tensors,
            bool drop) {
    if (home_.kind == host::PlaceKind::gpu) return;
    host::LinkWork work;
    host::TensorUses uses{.writes = tensors};
    const host::Place from = link == host::ResourceKind::gpu_to_host ? host::Place::gpu() : host::Place::host();
    for (const host::SizedTensor& t : tensors) {
      work.bytes += t.bytes;
      uses.reads.push_back(t.name);
      if (drop) uses.drops.push_back({t.name, from});
    }
    add(sink, host::OpKind::transfer, {link, 0}, work, std::move(uses));
  }

  void prefill(host::OperationSink& sink, const host::SizedTensor& hidden) {
    const host::SizedTensor q = sized(Kind::queries, {}, model_.query_bytes(all()).value);
    const host::SizedTensor kv = sized(Kind::new_kv, all(), model_.kv_bytes_per_token_and_layer().value);
    const host::SizedTensor out = sized(Kind::attention_output, {}, model_.query_bytes(all()).value);
    add(sink, host::OpKind::attention_inputs, host::Resource::gpu(), model_.attention_inputs(rows_),
        {.reads = {hidden.name}, .writes = {q, kv}});
    add(sink, host::OpKind::attention, host::Resource::gpu(), host::ComputeWork{},
        {.reads = {q.name}, .writes = {out}, .drops = {{q.name, host::Place::gpu()}}});
    host::DriveWork append{.heads = all(), .to_drive = kv.bytes};
    for (std::uint32_t s = 0; s < split_prompts().size(); ++s)
      append.sequences.push_back(
          {.sequence = SequenceId{s}, .first_token = {}, .tokens = std::uint32_t(split_prompts()[s].size())});
    add(sink, host::OpKind::append_kv, kDrive, append,
        {.reads = {kv.name}, .writes = {cache(0, prompt_tokens())}, .drops = {{kv.name, host::Place::gpu()}}});
    finish(sink, hidden, out);
  }

  void decode(host::OperationSink& sink, const host::SizedTensor& hidden) {
    const host::Place gpu = host::Place::gpu();
    const host::SizedTensor q = sized(Kind::queries, all(), model_.query_bytes(all()).value);
    const host::SizedTensor kv = sized(Kind::new_kv, all(), model_.kv_bytes_per_token_and_layer().value);
    const host::SizedTensor in_drive = sized(Kind::partial_output, all(), model_.partial_bytes(all()).value, 0);
    const host::SizedTensor here = sized(Kind::partial_output, all(), model_.partial_bytes(all()).value, 1);
    const host::SizedTensor out = sized(Kind::attention_output, all(), model_.query_bytes(all()).value);
    const host::SizedTensor grown = cache(1, std::uint64_t{step_} * split_prompts().size());
    add(sink, host::OpKind::attention_inputs, host::Resource::gpu(), model_.attention_inputs(rows_),
        {.reads = {hidden.name}, .writes = {q, kv}});
    host::DriveWork attend{.heads = all(), .to_drive = q.bytes, .from_drive = in_drive.bytes, .partial = true};
    for (std::uint32_t s = 0; s < split_prompts().size(); ++s)
      attend.sequences.push_back(
          {.sequence = SequenceId{s}, .first_token = TokenIndex{std::uint32_t(split_prompts()[s].size())}});
    add(sink, host::OpKind::attend, kDrive, attend,
        {.reads = {q.name, cache(0, prompt_tokens()).name}, .writes = {in_drive}});
    move(sink, host::ResourceKind::gpu_to_host, {q, kv}, true);
    host::TensorUses uses{
        .reads = {q.name, kv.name}, .writes = {here, grown}, .drops = {{q.name, home_}, {kv.name, home_}}};
    if (step_ > 1) uses.reads.push_back(grown.name);
    add(sink, host::OpKind::attention,
        home_.kind == host::PlaceKind::gpu ? host::Resource::gpu() : host::Resource::host(), host::ComputeWork{},
        std::move(uses));
    move(sink, host::ResourceKind::host_to_gpu, {here}, true);
    add(sink, host::OpKind::merge_attention, host::Resource::gpu(), model_.merge_attention(rows_, 2),
        {.reads = {in_drive.name, here.name}, .writes = {out}, .drops = {{in_drive.name, gpu}, {here.name, gpu}}});
    finish(sink, hidden, out);
  }

  void finish(host::OperationSink& sink, const host::SizedTensor& hidden, const host::SizedTensor& out) {
    add(sink, host::OpKind::finish_layer, host::Resource::gpu(), model_.finish_layer(rows_),
        {.reads = {out.name, hidden.name}, .writes = {hidden}, .drops = {{out.name, host::Place::gpu()}}});
  }

  host::ModelShape model_;
  host::Place home_;
  std::uint32_t step_ = 0;
  host::OpTag tag_;
  std::uint64_t rows_ = 0;
  std::vector<host::OperationId> last_;
};

}  // namespace csdsim::test
