// Chosen rows of single heads in runs that carry data: which rows are where, and the method that chooses them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/fp16.h"
#include "host_runtime/core/attention/attention_choice.h"
#include "host_runtime/core/carried/carried_feature.h"
#include "host_runtime/core/carried/tensor_store.h"
#include "host_runtime/core/features/chosen_rows/chosen_rows.h"
#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

/// K, then V, of single tokens by sequence, KV head of the model and position.
struct RowsByHead {
  std::map<SequenceId, std::map<std::uint32_t, std::map<std::uint32_t, std::vector<Half>>>> rows;
};

/// The operations of plans with chosen rows. The method sees K and V of the rows that have come to the GPU and of no
/// others: attention to any other row is an InternalError.
class CarriedRows final : public CarriedFeature {
 public:
  /// `tensors` must outlive this.
  CarriedRows(ChosenRows rows, const ModelConfig& model, std::unique_ptr<ChoosingMethod> method, TensorStore& tensors);

  bool learns_prompts() const override { return true; }
  void projected(const Operation& op, std::span<const Half> q, std::span<const Half> k,
                 std::span<const Half> v) override;
  std::optional<Work> resolve(const Operation& op);
  bool serves(const Operation& op) const override;
  void perform(const Operation& op) override;
  /// What has been read is at its place now.
  void ended(const Operation& op) override;
  void load_file(const Operation& op, std::size_t index, Bytes at, std::span<std::byte> bytes) override;
  void store_file(const Operation& op, std::size_t index, Bytes at, std::span<const std::byte> bytes) override;

 private:
  /// A step of a sequence, of whose K and V only some rows are known.
  struct Step;

  void gather(const Operation& op) const;
  void join(const Operation& op) const;
  void store(const Operation& op);
  void select(const Operation& op);
  void attend(const Operation& op);
  Step step_of(const Operation& op, std::size_t row) const;
  /// Positions of the rows of a file operation.
  std::vector<std::uint32_t> positions(const Operation& op, const ChosenRows::Run& run) const;
  void keep(SequenceId sequence, LayerId layer);
  /// New k and v of an operation's tensor, or the rows of a prompt that are kept.
  RowsByHead new_rows(const Operation& op) const;
  std::vector<Half> row_of(std::span<const Half> k, std::span<const Half> v, std::size_t row, HeadRange heads,
                           std::uint32_t head) const;

  ChosenRows rows_;
  TensorStore& tensors_;
  ModelConfig model_;
  std::unique_ptr<ChoosingMethod> method_;
  std::map<OperationId, std::vector<ChosenRows::Run>> runs_;  ///< runs of rows that running file operations read
  std::map<OperationId, std::map<std::size_t, std::vector<Half>>> arriving_;
};

}  // namespace csdsim::host
