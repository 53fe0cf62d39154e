// K and V of carried runs in files.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/carried/decoder_rows.h"

namespace csdsim::host {

namespace {

/// The kv_cache that a file operation writes.
const TensorName& cache_of(const Operation& op) {
  for (const SizedTensor& write : op.tensors.writes)
    if (write.name.what == TensorClass::kv_cache) return write.name;
  throw InternalError(fmt::format("{} moves no K and V", user(op)));
}

std::span<std::byte> bytes_of(std::vector<Half>& rows) { return std::as_writable_bytes(std::span(rows)); }

/// Rows that have K before V, as K of all rows before V of all.
NewKv token_by_token(std::span<const Half> rows, std::size_t width) {
  NewKv kv;
  append_columns(rows, 2 * width, 0, width, kv);
  append_columns(rows, 2 * width, width, width, kv);
  return kv;
}

std::size_t halves_in(const Operation& op, std::size_t index) {
  return std::get<FileWork>(op.work).ranges.at(index).size.value / sizeof(Half);
}

}  // namespace

std::vector<Half> DecoderData::file_rows(const Operation& op, std::size_t index) const {
  const TensorName& name = cache_of(op);
  const std::size_t width = std::size_t{name.heads.count} * decoder_.config().head_dim;
  const SequenceId sequence = sequences_of(op).at(index).sequence;
  std::vector<Half> out;
  if (std::ranges::find(op.tensors.reads, name) != op.tensors.reads.end()) {
    const auto& cache = tensors_.at<std::shared_ptr<HostKvCache>>(name, input_place(op, name.what), user(op));
    const std::size_t d = decoder_.config().head_dim, tokens = halves_in(op, index) / (2 * width);
    for (std::size_t t = 0; t < tokens; ++t)
      for (const bool of_values : {false, true})
        for (std::uint32_t h = 0; h < name.heads.count; ++h) {
          const KvView view = cache->view(sequence, LayerId{0}, KvHead{h});
          const auto row = (of_values ? view.values : view.keys).subspan(t * d, d);
          out.insert(out.end(), row.begin(), row.end());
        }
    return out;
  }
  const TensorName new_kv = TensorName::of(TensorClass::new_kv, op.tag, name.heads);
  const Place place = input_place(op, TensorClass::new_kv);
  const Share rows = rows_of(op, sequence.value);
  if (kv_format_.quantised()) {
    const auto& quantised = tensors_.at<QuantisedRows>(new_kv, place, user(op));
    const std::size_t row = quantised.bytes.size() / rows_of(op);
    out.resize(row * rows.count / sizeof(Half));
    std::memcpy(out.data(), quantised.bytes.data() + row * rows.first, row * rows.count);
    return out;
  }
  const auto& fresh = tensors_.at<NewKv>(new_kv, place, user(op));
  for (std::size_t t = rows.first; t < rows.first + rows.count; ++t)
    for (const std::span<const Half> part : {keys(fresh), values(fresh)}) {
      const auto row = part.subspan(t * width, width);
      out.insert(out.end(), row.begin(), row.end());
    }
  return out;
}

void DecoderData::load_file(const Operation& op, std::size_t index, Bytes at, std::span<std::byte> bytes) {
  if (CarriedFeature* const feature = serving(op)) return feature->load_file(op, index, at, bytes);
  auto& ranges = file_data_[op.id];
  const auto found = ranges.find(index);
  std::vector<Half>& rows = found != ranges.end() ? found->second : ranges[index] = file_rows(op, index);
  std::ranges::copy(bytes_of(rows).subspan(at.value, bytes.size()), bytes.begin());
}

void DecoderData::store_file(const Operation& op, std::size_t index, Bytes at, std::span<const std::byte> bytes) {
  if (CarriedFeature* const feature = serving(op)) return feature->store_file(op, index, at, bytes);
  std::vector<Half>& rows = file_data_[op.id][index];
  rows.resize(halves_in(op, index));
  std::ranges::copy(bytes, bytes_of(rows).begin() + static_cast<std::ptrdiff_t>(at.value));
}

void DecoderData::keep_what_was_read(const Operation& op) {
  const TensorName& name = cache_of(op);
  const std::size_t width = std::size_t{name.heads.count} * decoder_.config().head_dim;
  const auto cache = std::make_shared<HostKvCache>(empty_cache(op, name.heads));
  for (const auto& [index, rows] : file_data_[op.id]) {
    const NewKv kv = kv_format_.quantised() ? dequantised(kv_format_, std::as_bytes(std::span(rows)), name.heads.count,
                                                          decoder_.config().head_dim)
                                            : token_by_token(rows, width);
    cache->append(sequences_of(op).at(index).sequence, LayerId{0}, keys(kv), values(kv));
  }
  tensors_.put(name, output_place(op, TensorClass::kv_cache), cache);
}

void DecoderData::ended(const Operation& op) {
  if (CarriedFeature* const feature = serving(op))
    feature->ended(op);
  else if (op.kind == OpKind::read_file)
    keep_what_was_read(op);
  file_data_.erase(op.id);
  tensors_.drop(op);
}

}  // namespace csdsim::host
