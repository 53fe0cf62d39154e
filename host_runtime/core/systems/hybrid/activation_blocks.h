// The layout of activations in the block namespaces of the drives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "host_runtime/core/plan/extent.h"
#include "host_runtime/core/plan/kv_division.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

/// Bytes of a read or write of activations, whole blocks: small, so that data cross the link while flash works on the
/// others. Source: assumed; a common limit of block requests.
inline Bytes activation_request(Bytes block_size) {
  constexpr std::uint64_t kRequest = 32 << 10;
  return block_size * std::max<std::uint64_t>(1, kRequest / block_size.value);
}

/// The drives divide the recomputed tokens of each prompt evenly; groups of new ones go to the drives in turn. A drive
/// has a range of blocks for each layer and mini-batch: its tokens of all prompts, then its groups, each of them of
/// whole blocks. So a step reads one extent of each drive.
class ActivationBlocks {
 public:
  /// `batches` are the sequences of each mini-batch.
  ActivationBlocks(const PlannerInputs& inputs, const KvDivision& division, std::vector<Share> batches);

  /// The tokens of a prompt on a drive.
  Share prompt(DriveIndex drive, std::uint32_t prompt_tokens) const;
  /// Groups that have become activations in `steps` decode steps, and the drive that has got the n-th of them.
  std::uint32_t groups(std::uint32_t steps) const;
  DriveIndex drive_of(std::uint32_t group) const { return DriveIndex{group % drives_}; }
  /// Tokens of a mini-batch on a drive after `steps` decode steps.
  std::uint64_t tokens(std::uint32_t mini_batch, DriveIndex drive, std::uint32_t steps) const;

  /// Blocks of all prompts of a mini-batch, of a group, and of everything after `steps` decode steps.
  Extent prompts(std::uint32_t layer, std::uint32_t mini_batch, DriveIndex drive) const;
  Extent group(std::uint32_t layer, std::uint32_t mini_batch, std::uint32_t group) const;
  Extent all(std::uint32_t layer, std::uint32_t mini_batch, DriveIndex drive, std::uint32_t steps) const;
  /// Blocks of all layers at the end of the run.
  std::uint64_t blocks(DriveIndex drive) const;

 private:
  std::uint64_t whole_blocks(std::uint64_t tokens) const;
  std::uint64_t prompt_tokens(std::uint32_t mini_batch, DriveIndex drive) const;
  std::uint32_t groups_on(DriveIndex drive, std::uint32_t of) const;
  std::uint64_t group_tokens(std::uint32_t mini_batch) const;
  /// Blocks of a layer at the end of the run, of mini-batches before this one.
  std::uint64_t before(std::uint32_t mini_batch, DriveIndex drive) const;
  std::uint64_t first(std::uint32_t layer, std::uint32_t mini_batch, DriveIndex drive) const;

  KvDivision division_;
  std::vector<std::uint32_t> prompts_;
  std::vector<Share> batches_;
  std::uint32_t drives_ = 1, layers_ = 0, steps_ = 0;
  Bytes row_, block_;
};

}  // namespace csdsim::host
