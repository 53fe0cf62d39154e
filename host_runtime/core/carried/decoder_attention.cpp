// Decode attention on GPU and host: over the K and V kept there, over a part of the tokens, and the merge of parts.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/attention/partial_attention.h"
#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/carried/decoder_rows.h"
#include "host_runtime/core/plan/lost_rows.h"

namespace csdsim::host {

namespace {

bool reads(const Operation& op, const TensorName& name) {
  return std::ranges::find(op.tensors.reads, name) != op.tensors.reads.end();
}
bool writes(const Operation& op, const TensorName& name) {
  return std::ranges::find(op.tensors.writes, name, &SizedTensor::name) != op.tensors.writes.end();
}

/// The kv_cache tensors of `heads` that an operation reads or writes, ordered by part.
std::vector<TensorName> cache_names(const Operation& op, HeadRange heads) {
  std::vector<TensorName> names;
  const auto add = [&](const TensorName& name) {
    if (name.what == TensorClass::kv_cache && name.heads == heads) names.push_back(name);
  };
  std::ranges::for_each(op.tensors.reads, add);
  std::ranges::for_each(op.tensors.writes, add, &SizedTensor::name);
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  return names;
}

/// K and V of one head, concatenated over several caches.
struct Joined {
  std::vector<Half> keys, values;
  KvView view;

  explicit Joined(const std::vector<KvView>& parts) {
    for (const KvView& part : parts) {
      keys.insert(keys.end(), part.keys.begin(), part.keys.end());
      values.insert(values.end(), part.values.begin(), part.values.end());
      view.tokens += part.tokens;
      view.head_dim = part.head_dim;
    }
    view.keys = keys;
    view.values = values;
  }
};

/// What an earlier token of the same step attends to: without the `count` newest tokens.
KvView without_newest(KvView kv, std::size_t count) {
  kv.tokens -= count;
  kv.keys = kv.keys.first(kv.tokens * kv.head_dim);
  kv.values = kv.values.first(kv.tokens * kv.head_dim);
  return kv;
}

/// The result of one KV head in one row. `at` is its index among all heads of all rows: row * heads + head. `group` is
/// G, the number of query heads per KV head, and `d` the head dimension.
PartialAttention partial_of(const PartialRows& rows, std::size_t at, std::size_t group, std::size_t d) {
  PartialAttention part{std::vector<float>(group * d), std::vector<float>(group), std::vector<float>(group)};
  halves_to_floats(std::span(rows.out).subspan(at * group * d, group * d), part.out);
  for (std::size_t g = 0; g < group; ++g) {
    part.most[g] = rows.softmax.at((at * group + g) * 2);
    part.sum[g] = rows.softmax.at((at * group + g) * 2 + 1);
  }
  return part;
}

/// K and V of all tokens of a sequence in the cache of one layer, [token][head][d] each.
std::pair<std::vector<Half>, std::vector<Half>> token_rows(const HostKvCache& cache, SequenceId sequence,
                                                           std::uint32_t heads, std::size_t d) {
  std::pair<std::vector<Half>, std::vector<Half>> rows;
  const std::size_t tokens = cache.view(sequence, LayerId{0}, KvHead{0}).tokens;
  for (std::size_t token = 0; token < tokens; ++token)
    for (std::uint32_t head = 0; head < heads; ++head) {
      const KvView view = cache.view(sequence, LayerId{0}, KvHead{head});
      append_columns(view.keys.subspan(token * d, d), d, 0, d, rows.first);
      append_columns(view.values.subspan(token * d, d), d, 0, d, rows.second);
    }
  return rows;
}

/// Writes the result of one KV head; `at` as for partial_of().
void put_partial(const PartialAttention& part, std::size_t at, PartialRows& rows) {
  floats_to_halves(part.out, std::span(rows.out).subspan(at * part.out.size(), part.out.size()));
  for (std::size_t g = 0; g < part.most.size(); ++g) {
    rows.softmax[(at * part.most.size() + g) * 2] = part.most[g];
    rows.softmax[(at * part.most.size() + g) * 2 + 1] = part.sum[g];
  }
}

}  // namespace

HostKvCache DecoderData::empty_cache(const Operation& op, HeadRange heads) const {
  ModelConfig shape = decoder_.config();
  shape.layers = 1;
  shape.kv_heads = heads.count;
  HostKvCache made(shape, KeyLayout::token_major);
  for (const StepSequence& s : sequences_of(op)) made.create(s.sequence);
  return made;
}

HostKvCache& DecoderData::growing_cache(const Operation& op, const TensorName& name) {
  const Place place = output_place(op, TensorClass::kv_cache);
  using Cache = std::shared_ptr<HostKvCache>;
  if (!reads(op, name) && !tensors_.has(name))
    tensors_.put(name, place, std::make_shared<HostKvCache>(empty_cache(op, name.heads)));
  Cache& kept = tensors_.at<Cache>(name, place, user(op));
  if (kept.use_count() > 1) kept = std::make_shared<HostKvCache>(*kept);
  return *kept;
}

void DecoderData::append_to_cache(const Operation& op, const TensorName& name) {
  HostKvCache& kept = growing_cache(op, name);
  const std::size_t d = decoder_.config().head_dim, width = std::size_t{name.heads.count} * d;
  const auto source = std::ranges::find_if(op.tensors.reads, [&](const TensorName& read) {
    return read.what == TensorClass::new_kv && read.heads == name.heads;
  });
  const Sequences sequences = sequences_of(op);
  for (const StepSequence& s : sequences) {
    if (!kept.has(s.sequence)) kept.create(s.sequence);
    if (proposer_ != nullptr && op.tag.phase == Phase::decode) kept.truncate(s.sequence, LayerId{0}, s.first_token);
  }
  if (source != op.tensors.reads.end()) {
    const NewKv kv = new_kv_of(op, *source);
    const bool by_parts = division_.by_tokens() && op.tag.phase == Phase::prefill;
    const std::vector<Share> parts = by_parts ? rows_in(op, *source) : std::vector<Share>{};
    std::size_t row = 0;
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const std::size_t rows = by_parts ? parts[i].count : sequences[i].tokens;
      kept.append(sequences[i].sequence, LayerId{0}, keys(kv).subspan(row * width, rows * width),
                  values(kv).subspan(row * width, rows * width));
      row += rows;
    }
    return;
  }
  for (const TensorName& read : op.tensors.reads) {
    if (read.what != TensorClass::kv_cache || read.heads != name.heads || read == name) continue;
    const auto& others =
        *tensors_.at<std::shared_ptr<HostKvCache>>(read, input_place(op, TensorClass::kv_cache), user(op));
    for (const StepSequence& s : sequences) {
      const auto [k, v] = token_rows(others, s.sequence, name.heads.count, d);
      kept.append(s.sequence, LayerId{0}, k, v);
    }
  }
}

void DecoderData::gather_tokens(const Operation& op) {
  const TensorName from = op.tensors.reads.at(0), to = op.tensors.writes.at(0).name;
  const auto& kept = *tensors_.at<std::shared_ptr<HostKvCache>>(from, input_place(op, from.what), user(op));
  NewKv keys, values;
  for (const StepSequence& s : sequences_of(op)) {
    const auto [k, v] = token_rows(kept, s.sequence, from.heads.count, decoder_.config().head_dim);
    keys.insert(keys.end(), k.begin(), k.end());
    values.insert(values.end(), v.begin(), v.end());
  }
  keys.insert(keys.end(), values.begin(), values.end());
  if (kv_format_.quantised())
    tensors_.put(to, output_place(op, to.what), restored(kv_format_, keys, to.heads.count, decoder_.config().head_dim));
  else
    tensors_.put(to, output_place(op, to.what), std::move(keys));
}

void DecoderData::free_in_caches(const Operation& op) {
  for (const SizedTensor& write : op.tensors.writes) {
    HostKvCache& kept = growing_cache(op, write.name);
    for (const SequenceId sequence : std::get<SequencesWork>(op.work).sequences) kept.free(sequence);
  }
}

void DecoderData::append_to_caches(const Operation& op) {
  for (const SizedTensor& write : op.tensors.writes)
    if (write.name.what == TensorClass::kv_cache) append_to_cache(op, write.name);
}

void DecoderData::decode_attention(const Operation& op) {
  append_to_caches(op);
  for (const SizedTensor& write : op.tensors.writes)
    if (write.name.what == TensorClass::attention_output || write.name.what == TensorClass::partial_output)
      attend(op, write.name);
}

void DecoderData::attend(const Operation& op, const TensorName& output) {
  const ModelConfig& model = decoder_.config();
  const std::size_t group = model.group_size(), per_head = group * model.head_dim;
  const HeadRange heads = output.heads;
  std::vector<std::shared_ptr<HostKvCache>> caches;
  for (const TensorName& name : cache_names(op, heads))
    caches.push_back(tensors_.at<std::shared_ptr<HostKvCache>>(
        name, writes(op, name) ? output_place(op, name.what) : input_place(op, name.what), user(op)));
  if (caches.empty())
    throw InternalError(fmt::format("{} names no kv_cache to make {} from", user(op), tensor_name(output)));
  const auto& queries = tensors_.at<std::vector<Half>>(TensorName::of(TensorClass::queries, op.tag, heads),
                                                       input_place(op, TensorClass::queries), user(op));
  std::vector<float> q(queries.size());
  halves_to_floats(queries, q);
  const Sequences sequences = sequences_of(op);
  const bool partial = output.what == TensorClass::partial_output;
  PartialRows rows{{}, std::vector<Half>(queries.size()), {}};
  if (partial) {
    rows.softmax.resize(queries.size() / model.head_dim * 2);
    rows.rows.resize(rows_of(op));
    std::iota(rows.rows.begin(), rows.rows.end(), 0U);
  }
  std::vector<float> out(per_head);
  std::size_t first_row = 0;
  for (const StepSequence& s : sequences) {
    for (std::uint32_t h = 0; h < heads.count; ++h) {
      std::vector<KvView> views;
      for (const auto& cache : caches) views.push_back(cache->view(s.sequence, LayerId{0}, KvHead{h}));
      const Joined joined(views.size() > 1 ? views : std::vector<KvView>{});
      const KvView& whole = views.size() > 1 ? joined.view : views.front();
      for (std::uint32_t token = 0; token < s.tokens; ++token) {
        const KvView kv = without_newest(whole, s.tokens - 1 - token);
        const std::size_t at = (first_row + token) * heads.count + h;
        const std::span<const float> of_head = std::span<const float>(q).subspan(at * per_head, per_head);
        if (partial) {
          put_partial(attend_partially(of_head, kv), at, rows);
        } else {
          DenseAttention().attend(of_head, kv, out, nullptr);
          floats_to_halves(out, std::span(rows.out).subspan(at * per_head, per_head));
        }
      }
    }
    first_row += s.tokens;
  }
  const Place place = output_place(op, output.what);
  if (partial) {
    tensors_.put(output, place, std::move(rows));
  } else {
    tensors_.put(output, place, std::move(rows.out));
  }
}

void DecoderData::merge_attention(const Operation& op) {
  const ModelConfig& model = decoder_.config();
  const std::size_t group = model.group_size(), per_head = group * model.head_dim;
  const Place from = input_place(op, TensorClass::partial_output);
  for (const SizedTensor& write : op.tensors.writes) {
    if (write.name.what != TensorClass::attention_output) continue;
    const HeadRange heads = write.name.heads;
    std::vector<Half> rows(rows_of(op) * heads.count * per_head);
    for (std::size_t at = 0; at < rows.size() / per_head; ++at) {
      const std::size_t row = at / heads.count, head = heads.first.value + at % heads.count;
      std::vector<PartialAttention> parts;
      for (const TensorName& name : op.tensors.reads) {
        if (name.what != TensorClass::partial_output || head < name.heads.first.value ||
            head >= std::size_t{name.heads.first.value} + name.heads.count)
          continue;
        const auto& partial = tensors_.at<PartialRows>(name, from, user(op));
        const auto held = std::ranges::lower_bound(partial.rows, row);
        if (held == partial.rows.end() || *held != row) continue;
        const auto at_place = static_cast<std::size_t>(held - partial.rows.begin());
        parts.push_back(
            partial_of(partial, at_place * name.heads.count + head - name.heads.first.value, group, model.head_dim));
      }
      if (parts.empty()) throw InternalError(fmt::format("{} reads no partial output of KV head {}", user(op), head));
      floats_to_halves(merge(parts), std::span(rows).subspan(at * per_head, per_head));
    }
    tensors_.put(write.name, output_place(op, write.name.what), std::move(rows));
  }
}

void DecoderData::load_attend(const Operation& op, std::size_t index, HeadRange heads, std::span<Half> q,
                              std::span<Half> k, std::span<Half> v) {
  const auto& work = std::get<DriveWork>(op.work);
  const ModelConfig& model = decoder_.config();
  for (const auto& feature : features_)
    if (LostRows* const lost = feature->lost_rows()) lost->attending(op, index);
  const auto& queries = tensors_.at<std::vector<Half>>(TensorName::of(TensorClass::queries, op.tag, work.heads),
                                                       input_place(op, TensorClass::queries), user(op));
  const std::size_t row = rows_of(op, work.sequences.at(index).sequence.value).first;
  const std::size_t head = row * work.heads.count + (heads.first.value - work.heads.first.value);
  std::copy_n(queries.data() + head * model.group_size() * model.head_dim, q.size(), q.data());
  if (k.empty()) return;
  NewKv dequantised;
  const NewKv& kv = new_kv_of_drive(op, dequantised);
  std::copy_n(keys(kv).data() + head * model.head_dim, k.size(), k.data());
  std::copy_n(values(kv).data() + head * model.head_dim, v.size(), v.data());
}

void DecoderData::store_output(const Operation& op, std::size_t index, HeadRange heads, std::span<const Half> out) {
  const auto& work = std::get<DriveWork>(op.work);
  const ModelConfig& model = decoder_.config();
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

void DecoderData::store_partial(const Operation& op, std::size_t index, HeadRange heads, std::span<const Half> out,
                                std::span<const float> softmax) {
  const auto& work = std::get<DriveWork>(op.work);
  const ModelConfig& model = decoder_.config();
  const auto written = std::ranges::find_if(op.tensors.writes, [&](const SizedTensor& write) {
    return write.name.what == TensorClass::partial_output && write.name.heads == work.heads;
  });
  if (written == op.tensors.writes.end())
    throw InternalError(fmt::format("{} names no partial_output of its heads that it writes", user(op)));
  const Place place = output_place(op, TensorClass::partial_output);
  if (!tensors_.has(written->name, place)) {
    const std::size_t queries = work.sequences.size() * work.heads.count * model.group_size();
    PartialRows made{{}, std::vector<Half>(queries * model.head_dim), std::vector<float>(queries * 2)};
    for (const SequenceWork& s : work.sequences) made.rows.push_back(rows_of(op, s.sequence.value).first);
    tensors_.put(written->name, place, std::move(made));
  }
  auto& rows = tensors_.at<PartialRows>(written->name, place, user(op));
  const std::size_t query =
      (index * work.heads.count + heads.first.value - work.heads.first.value) * model.group_size();
  std::ranges::copy(out, rows.out.begin() + static_cast<std::ptrdiff_t>(query * model.head_dim));
  std::ranges::copy(softmax, rows.softmax.begin() + static_cast<std::ptrdiff_t>(query * 2));
}

}  // namespace csdsim::host
