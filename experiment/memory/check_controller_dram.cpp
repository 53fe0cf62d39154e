#include "experiment/memory/check_controller_dram.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace csdsim::experiment {

void check_controller_dram(const csd_model::DriveConfig& drive, const ftl::KvMappingPolicy& policy,
                           const ftl::KvShape& shape, const ftl::KvLayout& layout, const host::BatchLengths& workload,
                           const host::KvDivision& division, std::uint32_t layers) {
  const ftl::KvSequenceInfo sequence{SequenceId{0}, shape, layout};
  const std::uint64_t heads = shape.kv_heads;
  const std::uint64_t tiles = (heads + layout.page_heads - 1) / layout.page_heads;
  std::uint64_t most = 0;
  for (std::uint32_t part = 0; part < division.token_parts(); ++part) {
    std::vector<std::uint32_t> written(workload.size());  // groups
    for (std::uint32_t step = 0; step < workload.output_tokens; ++step) {
      std::uint64_t bytes = 0;
      for (std::size_t s = 0; s < written.size(); ++s) {
        const std::uint32_t tokens = division.tokens(host::DriveIndex{part}, workload.requests[s].prompt, step);
        written[s] += policy.groups_to_write(sequence, tokens, written[s]);
        const std::uint64_t held = tokens - std::uint64_t{written[s]} * layout.group_tokens;
        bytes += heads * (2 * held * layout.row().value + sizeof(float) * layout.head_dim) +
                 tiles * policy.table_bytes(sequence, layout.pages(tokens).total()).value;
        if (drive.kv.tail == ftl::TailPolicy::dram) bytes += heads * layout.component_tail(tokens).value;
      }
      most = std::max(most, bytes);
    }
  }
  most *= layers;
  if (most > drive.dram.value)
    throw UserError(fmt::format(
        "platform.device.dram.capacity: the tails and maps of {} sequences need up to {:.2f} GiB of "
        "controller DRAM a "
        "drive, it has {:.2f} GiB; give it more, use tail: token_index, or fewer sequences",
        workload.size(), static_cast<double>(most) * 0x1p-30, static_cast<double>(drive.dram.value) * 0x1p-30));
}

}  // namespace csdsim::experiment
