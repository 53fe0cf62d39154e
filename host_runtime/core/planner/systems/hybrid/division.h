// How to divide the tokens of a sequence among recomputation, GPU memory, host memory and drives.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "host_runtime/core/planner/system.h"
#include "host_runtime/core/planner/systems/hybrid/planner.h"

namespace csdsim::host {

/// What is known of a run before its tokens are divided.
struct DivisionInputs {
  ModelShape model;
  PlatformRates rates;
  std::uint32_t sequences = 1;
  double cached = 0;        ///< tokens of a sequence for which the division is made, on average over the sequences
  double longest = 0;       ///< tokens of a sequence that have to fit, on average over the sequences
  double prompt = 0;        ///< tokens of a prompt, on average
  std::uint32_t group = 1;  ///< of newest tokens
  NewestAt newest = NewestAt::gpu;
  std::uint32_t kv_buffers = 2;
  Ratio weights_on_host{0, 1};
};

/// Shares by TokenPart.
using Division = std::array<double, kTokenParts>;

/// What each resource has to do for a layer of all mini-batches in a decode step, in seconds.
struct LayerTimes {
  double projections = 0;  ///< the GPU's work on the layer but for attention; the merge of partial outputs included
  double attention = 0;    ///< the GPU's attention and recomputation
  double link = 0;         ///< from host memory to the GPU
  double drives = 0;       ///< attention in a drive, with its commands
  double layer = 0;        ///< of the whole layer, see layer_times()
};

/// The time of a layer in a decode step if the tokens are divided so. With one mini-batch it is the larger of
/// link and projections + max(attention, drives): the drives attend while the GPU recomputes and attends, but neither
/// while it projects. Copies run ahead, so that the link only has to carry its bytes. With more mini-batches, the GPU
/// and the drives work on different ones: the largest of link, GPU, drives and what one mini-batch takes alone.
LayerTimes layer_times(const DivisionInputs& inputs, const Division& division);

/// The division with the least layer_times().layer that fits into the memories, where `given` leaves it open: a search
/// over all open shares by nested golden sections, because the time is a maximum of sums that grow or fall linearly.
/// Of divisions that take equally long, it is the one with less work for all resources together. Throws UserError if
/// nothing fits. InternalError if the given shares are more than the whole.
Division solve_division(const DivisionInputs& inputs, const std::array<std::optional<double>, kTokenParts>& given);

}  // namespace csdsim::host
