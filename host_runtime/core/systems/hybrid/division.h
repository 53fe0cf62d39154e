// Divides the tokens of a sequence among recomputation, GPU memory, host memory and drives, by rates.
#pragma once

#include <array>
#include <optional>

#include "host_runtime/core/machine/gpu_model.h"
#include "host_runtime/core/plan/searched_system.h"
#include "host_runtime/core/plan/sparf_budget.h"
#include "host_runtime/core/systems/hybrid/planner.h"

namespace csdsim::host {

inline constexpr std::array kEachPart{TokenPart::recomputed, TokenPart::kept, TokenPart::copied, TokenPart::drives};
inline std::size_t part_index(TokenPart part) { return static_cast<std::size_t>(part); }

/// Shares by TokenPart.
using Division = std::array<double, kTokenParts>;
/// Shares by TokenPart; those that are not given are solved.
using GivenShares = std::array<std::optional<Ratio>, kTokenParts>;

/// A run whose tokens are divided. Numbers of tokens are of a sequence, on average over the sequences.
struct DivisionInputs {
  ModelShape model;
  PlatformRates rates;
  GpuModel gpu = GpuModel(rates.gpu);
  std::uint32_t sequences = 1;
  double prompt = 0;
  double cached = 0;        ///< in the middle of the run
  double longest = 0;       ///< at the end of the run, when everything has to fit
  double newest = 0;        ///< in no part, in a step in the middle of the run
  std::uint32_t group = 1;  ///< newest tokens that leave together
  Place newest_at = Place::gpu();
  Place activations = Place::host();
  std::uint32_t kv_buffers = 2;
  Ratio weights_on_host{0, 1};
  std::optional<SparfBudget> sparf = {};  ///< budget of the drives; unset: dense attention
  RowQuantisation kv = {};                ///< format of K and V that are not recomputed
};

/// Seconds that each resource works for a layer in a decode step, all mini-batches together.
struct LayerTimes {
  double projections = 0;  ///< GPU: all but attention and recomputation
  double attention = 0;    ///< GPU: attention and recomputation
  double link = 0;         ///< from host memory, and from peers, to the GPU
  double drives = 0;       ///< a drive: attention
  double reading = 0;      ///< a drive: reads of activations
  double layer = 0;        ///< the slowest of them, where they wait for each other in sum
};

/// Work over rates. A mini-batch takes projections + max(attention, drives); a layer takes the longest of that, the
/// link, all work of the GPU and all work of a drive.
LayerTimes layer_times(const DivisionInputs& inputs, const Division& division);

/// The division of least layer_times().layer whose tokens fit into the memories, in steps of 1/4096: all sixteenths are
/// tried, then the neighbours of the best in ever smaller steps. Of equally fast ones, the one with less work for all.
/// Throws UserError if nothing fits, InternalError if the given shares are more than the whole.
Division solve_division(const DivisionInputs& inputs, const GivenShares& given);

}  // namespace csdsim::host
