// Layout of the KV cache in the drives of a generation run.
#pragma once

#include <memory>

#include "experiment/generation/generation_run.h"
#include "ftl/kv/kv_policy.h"
#include "host_runtime/core/plan/kv_division.h"

namespace csdsim::experiment {

struct KvFormat {
  explicit KvFormat(const GenerationSetup& setup);

  bool in_drives;        ///< the system keeps K and V in drives; if not, policy is null and layout is empty
  bool component_major;  ///< K is kept component-major, too
  std::unique_ptr<ftl::KvMappingPolicy> policy;  ///< policy of a drive, to ask what it would do
  host::ShardBy shard;                           ///< what the drives divide
  host::KvDivision division;                     ///< what each drive holds; of one drive if K and V are elsewhere
  ftl::KvShape shape;                            ///< shape of a sequence on the first drive, which has the most of it
  ftl::KvLayout layout;
  host::KvGrouping grouping;
};

/// True if everything that steps before `step` have used of files is in the page cache, so that nothing ever left it.
bool page_cache_holds_all(const GenerationSetup& setup, std::uint32_t step);

/// KvFormat::division alone.
host::KvDivision kv_division(const GenerationSetup& setup);

}  // namespace csdsim::experiment
