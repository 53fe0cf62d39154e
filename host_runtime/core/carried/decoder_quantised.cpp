// K and V of carried runs with few bits per element.
#include <algorithm>

#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/carried/decoder_rows.h"

namespace csdsim::host {

namespace {

/// Bytes of a row of one head.
std::size_t row_bytes(const RowQuantisation& format, std::size_t d) { return format.row(d, sizeof(Half)).value; }

/// `write(values, to)` makes the row of a head.
template <class Write>
QuantisedRows quantised_rows(const RowQuantisation& format, const NewKv& kv, std::size_t heads, std::size_t d,
                             const Write& write) {
  const std::size_t rows = kv.size() / (2 * heads * d), bytes = row_bytes(format, d);
  QuantisedRows made{std::vector<std::byte>(2 * rows * heads * bytes)};
  std::span<std::byte> to = made.bytes;
  for (std::size_t row = 0; row < rows; ++row)
    for (const std::span<const Half> part : {keys(kv), host::values(kv)})
      for (std::size_t head = 0; head < heads; ++head, to = to.subspan(bytes))
        write(part.subspan((row * heads + head) * d, d), to.first(bytes));
  return made;
}

QuantisedRows quantised(const RowQuantisation& format, const NewKv& kv, std::size_t heads, std::size_t d) {
  std::vector<float> values(d);
  return quantised_rows(format, kv, heads, d, [&](std::span<const Half> row, std::span<std::byte> to) {
    halves_to_floats(row, values);
    format.quantise(values, to);
  });
}

}  // namespace

QuantisedRows restored(const RowQuantisation& format, const NewKv& kv, std::size_t heads, std::size_t d) {
  return quantised_rows(format, kv, heads, d,
                        [&](std::span<const Half> row, std::span<std::byte> to) { format.restore(row, to); });
}

NewKv dequantised(const RowQuantisation& format, std::span<const std::byte> from, std::size_t heads, std::size_t d) {
  const std::size_t bytes = row_bytes(format, d), rows = from.size() / (2 * heads * bytes);
  NewKv kv(2 * rows * heads * d);
  for (std::size_t row = 0; row < rows; ++row)
    for (const std::size_t part : {0, 1})
      for (std::size_t head = 0; head < heads; ++head, from = from.subspan(bytes))
        dequantise_rows(format, from.first(bytes), d,
                        std::span(kv).subspan(((part * rows + row) * heads + head) * d, d));
  return kv;
}

void DecoderData::quantise_new_kv(const Operation& op) {
  for (const SizedTensor& write : op.tensors.writes) {
    if (write.name.what != TensorClass::new_kv) continue;
    const auto& kv = tensors_.at<NewKv>(write.name, input_place(op, TensorClass::new_kv), user(op));
    tensors_.put(write.name, output_place(op, TensorClass::new_kv),
                 quantised(kv_format_, kv, write.name.heads.count, decoder_.config().head_dim));
  }
}

NewKv DecoderData::new_kv_of(const Operation& op, const TensorName& name) const {
  const Place place = input_place(op, TensorClass::new_kv);
  if (!kv_format_.quantised()) return tensors_.at<NewKv>(name, place, user(op));
  return dequantised(kv_format_, tensors_.at<QuantisedRows>(name, place, user(op)).bytes, name.heads.count,
                     decoder_.config().head_dim);
}

}  // namespace csdsim::host
