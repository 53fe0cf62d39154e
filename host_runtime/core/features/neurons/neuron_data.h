// Feed-forward networks of carried runs whose weights are on drives.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/features/neurons/carried_neurons.h"

namespace csdsim::host {

/// The operations of FlashFeedForward:
/// - write_blocks writes all records of its layer; read_blocks makes the buffer of records that it writes.
/// - select_neurons chooses the neurons of the step; delete_records and insert_records change the rows in memory.
/// - feed_forward computes with the rows in memory or, if it reads buffers and no rows, with all records of the layer.
///   partial_feed_forward computes nothing: all is computed together, so that sums have one order.
///
/// Networks in drives (InDriveFeedForward): select_neurons also writes the network_input, in fp16; feed_forward of a
/// drive writes a partial_sum; merge_feed_forward adds all that it reads, in this order, then bias and residual.
class NeuronData final : public CarriedFeature {
 public:
  /// Both must outlive this.
  NeuronData(CarriedNeurons& neurons, DecoderData& data) : neurons_(neurons), data_(data), tensors_(data.tensors()) {}

  bool serves(const Operation& op) const override;
  void perform(const Operation& op) override;
  void ended(const Operation& op) override;
  void load_blocks(const Operation& op, std::size_t index, std::span<std::byte> bytes) override;
  void store_blocks(const Operation& op, std::size_t index, std::span<const std::byte> bytes) override;
  void load_network_input(const Operation& op, std::uint32_t first, std::span<Half> x, std::span<Half> bias) override;
  void store_partial_sum(const Operation& op, std::span<const float> y) override;

 private:
  void select_neurons(const Operation& op);
  void insert_records(const Operation& op);
  void feed_forward(const Operation& op);
  void merge_feed_forward(const Operation& op);
  NeuronRows& rows_in_memory(const Operation& op);
  const std::vector<Half>& network_input(const Operation& op);

  CarriedNeurons& neurons_;
  DecoderData& data_;
  TensorStore& tensors_;
  std::map<OperationId, ArrivedRecords> arriving_;  ///< records that running reads bring
};

}  // namespace csdsim::host
