// Layout and size of the KV cache in flash.
#pragma once

#include <cstdint>

#include "ftl/kv/kv_layout.h"
#include "host_runtime/core/plan/kv_division.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Tokens of the longest sequence at its end. With prompts from a file only the output counts.
std::uint64_t longest_sequence(const scenario::Scenario& s);

/// The KV cache of the scenario, divided over its drives.
host::KvDivision kv_division(const scenario::Scenario& s);

/// A sequence on the first drive, which has the most of it. Whether K is kept component-major, too, is up to the
/// offload system.
ftl::KvShape kv_shape(const scenario::Scenario& s);

/// What the mapping policy of the scenario makes of it. Throws what the policy throws for a shape that does not fit a
/// page, UserError for a layout that cannot be.
ftl::KvLayout kv_layout(const scenario::Scenario& s, const ftl::KvMappingPolicy& policy);

/// Flash pages that the KV cache of the whole batch, or of as many of the longest requests as run together, fills on
/// the first drive, at the end of generation: full token groups of K and V and embedding windows of K.
std::uint64_t kv_cache_pages(const scenario::Scenario& s, const ftl::KvLayout& layout);

}  // namespace csdsim::experiment
