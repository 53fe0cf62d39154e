#include "host_runtime/core/eval/rounded_kv.h"

#include <fmt/format.h>

#include "base/error.h"

namespace csdsim::host {

RoundedKv::RoundedKv(AttentionProvider& inner, const RowQuantisation& format, std::uint32_t head_dim)
    : inner_(inner), format_(format), head_dim_(head_dim) {
  if (format.group == 0 || head_dim % format.group != 0)
    throw UserError(
        fmt::format("K and V: groups of {} elements do not divide heads of {} elements", format.group, head_dim));
}

std::vector<Half> RoundedKv::rounded(std::span<const Half> rows) const {
  std::vector<Half> out(rows.size());
  std::vector<float> values(head_dim_);
  std::vector<std::byte> kept(format_.row(head_dim_, sizeof(Half)).value);
  for (std::size_t at = 0; at < rows.size(); at += head_dim_) {
    halves_to_floats(rows.subspan(at, head_dim_), values);
    format_.quantise(values, kept);
    dequantise_rows(format_, kept, head_dim_, std::span(out).subspan(at, head_dim_));
  }
  return out;
}

void RoundedKv::store(LayerId layer, std::span<const SequenceSlice> slices, std::span<const Half> k,
                      std::span<const Half> v) {
  inner_.store(layer, slices, rounded(k), rounded(v));
}

void RoundedKv::attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q,
                       std::span<const Half> k, std::span<const Half> v, std::span<Half> out) {
  inner_.attend(layer, sequences, q, rounded(k), rounded(v), out);
}

}  // namespace csdsim::host
