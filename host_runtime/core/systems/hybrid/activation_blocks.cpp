#include "host_runtime/core/systems/hybrid/activation_blocks.h"

#include <utility>

namespace csdsim::host {

ActivationBlocks::ActivationBlocks(const PlannerInputs& inputs, const KvDivision& division, std::vector<Share> batches)
    : division_(division),
      prompts_(inputs.workload.prompts()),
      batches_(std::move(batches)),
      drives_(inputs.drives),
      layers_(inputs.model.layers),
      steps_(inputs.workload.decode_steps()),
      row_{std::uint64_t{inputs.model.width} * inputs.model.element_bytes},
      block_(inputs.block_size) {}

Share ActivationBlocks::prompt(DriveIndex drive, std::uint32_t prompt_tokens) const {
  return even_shares(division_.tokens(TokenPart::recomputed, prompt_tokens, 0), drives_).at(drive.value);
}

/// The same for all sequences: they give their groups to the same part.
std::uint32_t ActivationBlocks::groups(std::uint32_t steps) const {
  const std::uint32_t prompt = prompts_.front();
  return (division_.tokens(TokenPart::recomputed, prompt, steps) - division_.tokens(TokenPart::recomputed, prompt, 0)) /
         division_.group();
}

std::uint32_t ActivationBlocks::groups_on(DriveIndex drive, std::uint32_t of) const {
  return (of + drives_ - 1 - drive.value) / drives_;
}

std::uint64_t ActivationBlocks::prompt_tokens(std::uint32_t mini_batch, DriveIndex drive) const {
  const Share batch = batches_.at(mini_batch);
  std::uint64_t sum = 0;
  for (std::uint32_t s = batch.first; s < batch.first + batch.count; ++s) sum += prompt(drive, prompts_.at(s)).count;
  return sum;
}

std::uint64_t ActivationBlocks::group_tokens(std::uint32_t mini_batch) const {
  return std::uint64_t{batches_.at(mini_batch).count} * division_.group();
}

std::uint64_t ActivationBlocks::tokens(std::uint32_t mini_batch, DriveIndex drive, std::uint32_t steps) const {
  return prompt_tokens(mini_batch, drive) + groups_on(drive, groups(steps)) * group_tokens(mini_batch);
}

std::uint64_t ActivationBlocks::whole_blocks(std::uint64_t tokens) const {
  return ((row_ * tokens).value + block_.value - 1) / block_.value;
}

std::uint64_t ActivationBlocks::before(std::uint32_t mini_batch, DriveIndex drive) const {
  std::uint64_t sum = 0;
  for (std::uint32_t mb = 0; mb < mini_batch; ++mb)
    sum += whole_blocks(prompt_tokens(mb, drive)) + groups_on(drive, groups(steps_)) * whole_blocks(group_tokens(mb));
  return sum;
}

std::uint64_t ActivationBlocks::first(std::uint32_t layer, std::uint32_t mini_batch, DriveIndex drive) const {
  return layer * before(static_cast<std::uint32_t>(batches_.size()), drive) + before(mini_batch, drive);
}

Extent ActivationBlocks::prompts(std::uint32_t layer, std::uint32_t mini_batch, DriveIndex drive) const {
  return {first(layer, mini_batch, drive), whole_blocks(prompt_tokens(mini_batch, drive))};
}

Extent ActivationBlocks::group(std::uint32_t layer, std::uint32_t mini_batch, std::uint32_t group) const {
  const Extent prompts = this->prompts(layer, mini_batch, drive_of(group));
  const std::uint64_t blocks = whole_blocks(group_tokens(mini_batch));
  return {prompts.first + prompts.blocks + group / drives_ * blocks, blocks};
}

Extent ActivationBlocks::all(std::uint32_t layer, std::uint32_t mini_batch, DriveIndex drive,
                             std::uint32_t steps) const {
  Extent extent = prompts(layer, mini_batch, drive);
  extent.blocks += groups_on(drive, groups(steps)) * whole_blocks(group_tokens(mini_batch));
  return extent;
}

std::uint64_t ActivationBlocks::blocks(DriveIndex drive) const { return first(layers_, 0, drive); }

}  // namespace csdsim::host
