// Sparse attention over rows of K and V that were read from files: which rows, where they come from, the result.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "host_runtime/core/carried/decoder_data.h"

namespace csdsim::host {

/// The operations of plans with HeadRows in files:
/// - select_tokens on the host chooses components by q, on the GPU tokens by the components that it reads.
/// - read_file reads the chosen rows (resolve()) into a fetched_kv. append_kv that writes a fetched_kv joins it with
///   the rows of the newest tokens, from a kv_cache; one that writes a workspace updates the means of V there.
/// - attention that reads fetched_kv is SparQ's, with the bits of SparqAttention.
/// - write_file writes rows of the kv_cache that it reads, or if it reads none, of new_kv.
class CarriedHeadRows final : public CarriedFeature {
 public:
  /// `data` must outlive this.
  explicit CarriedHeadRows(DecoderData& data) : data_(data), tensors_(data.tensors()) {}

  std::optional<Work> resolve(const Operation& op) const;
  bool serves(const Operation& op) const override;
  void perform(const Operation& op) override;
  void ended(const Operation& op) override;
  void load_file(const Operation& op, std::size_t index, Bytes at, std::span<std::byte> bytes) override;
  void store_file(const Operation& op, std::size_t index, Bytes at, std::span<const std::byte> bytes) override;

 private:
  std::vector<float> wide_queries(const Operation& op, HeadRange heads) const;
  void select_tokens(const Operation& op);
  void keep(const Operation& op);
  void join(const Operation& op);
  void update_value_means(const Operation& op);
  void attend(const Operation& op);
  std::vector<Half> rows_to_write(const Operation& op, std::size_t index) const;

  DecoderData& data_;
  TensorStore& tensors_;
  /// Rows of file operations that are running, by range: what they write, and what they have read so far.
  std::map<OperationId, std::map<std::size_t, std::vector<Half>>> moving_;
};

}  // namespace csdsim::host
