// How to divide the tokens of a sequence among recomputation, GPU memory, host memory and drives.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "host_runtime/core/planner/sparf_budget.h"
#include "host_runtime/core/planner/system.h"
#include "host_runtime/core/planner/systems/hybrid/planner.h"

namespace csdsim::host {

/// What is known of a run before its tokens are divided.
struct DivisionInputs {
  ModelShape model;
  PlatformRates rates;
  std::uint32_t sequences = 1;
  // Tokens of a sequence, on average over the sequences.
  double cached = 0;        ///< in the parts, when the division is made
  double newest = 0;        ///< in no part yet, on average over the steps around
  double held = 0;          ///< in the parts, which have to fit
  double longest = 0;       ///< at the end of the run, for which the buffers have to fit
  double prompt = 0;        ///< of a prompt
  std::uint32_t group = 1;  ///< of newest tokens, which leave together
  NewestAt newest_at = NewestAt::gpu;
  StoredAt activations = StoredAt::host;
  std::uint32_t kv_buffers = 2;
  Ratio weights_on_host{0, 1};
  std::optional<SparfBudget> sparf = {};  ///< of the drives; unset: dense attention
  RowQuantisation kv = {};                ///< how K and V are kept that are not recomputed
  // Of a step of a known run. Unset: as if tokens had joined by the shares, to any drive.
  std::optional<double> fullest_drive = {};  ///< tokens of a sequence in the drive with most of them
  std::optional<double> drive_writes = {};   ///< share of the steps around in which a drive gets a group
};

/// Solved shares are multiples of it, but for one of them.
inline constexpr double kLeastShare = 1.0 / 4096;

/// Shares by TokenPart.
using Division = std::array<double, kTokenParts>;

/// What each resource has to do for a layer of all mini-batches in a decode step, in seconds.
struct LayerTimes {
  double projections = 0;  ///< the GPU's work on the layer but for attention; the merge of partial outputs included
  double attention = 0;    ///< the GPU's attention and recomputation
  double link = 0;         ///< from host memory to the GPU
  double drives = 0;       ///< attention in a drive, with its commands
  double writing = 0;      ///< the same in a step in which the drive gets a group of new tokens
  double reading = 0;      ///< of a drive: reads of activations and their way, with several mini-batches attention too
  double layer = 0;        ///< of the whole layer, see layer_times()
};

/// The time of a layer in a decode step if the tokens are divided so. With one mini-batch it is the larger of
/// link and projections + max(attention, drives): the drives attend while the GPU recomputes and attends, but neither
/// while it projects. Copies run ahead, so that the link only has to carry its bytes. With more mini-batches, the GPU
/// and the drives work on different ones: the largest of link, GPU, drives and what one mini-batch takes alone. Of the
/// steps, the share in which a drive gets a group of new tokens takes longer.
///
/// Activations in the drives share their flash, their internal links and the GPU's link with attention and copies. A
/// drive reads those of a later layer when it has attended to one, while the GPU projects, and attends to the next one
/// behind these reads (DriveAttention::queries_after). Queries and outputs of several drives cross the GPU's link one
/// after another, and outputs wait for a piece of the copies as often as the link is busy.
LayerTimes layer_times(const DivisionInputs& inputs, const Division& division);

/// `division` with `share` moved from part `from` to part `to`, by index of TokenPart. A part that has less gives all.
Division moved(const Division& division, std::size_t from, std::size_t to, double share);

/// Whether the memories hold all tokens that are to fit.
bool fits(const DivisionInputs& inputs, const Division& division);

/// The division with the least layer_times().layer that fits into the memories, where `given` leaves it open: a search
/// over all open shares by nested golden sections, because the time is about a maximum of sums that grow or fall
/// linearly, then by ever smaller exchanges between two parts, because pages are whole; once more from the best of all
/// thirty-seconds, because few pages make several valleys. Of divisions that take equally
/// long, it is the one with less work for all resources together. Throws UserError if nothing fits. InternalError if
/// the given shares are more than the whole.
Division solve_division(const DivisionInputs& inputs, const std::array<std::optional<double>, kTokenParts>& given);

/// The same when there are fewer tokens, and no part has more of them than later, when `later` divides
/// `later_cached` tokens: tokens never change their part.
Division solve_earlier_division(const DivisionInputs& inputs,
                                const std::array<std::optional<double>, kTokenParts>& given, const Division& later,
                                double later_cached);

}  // namespace csdsim::host
