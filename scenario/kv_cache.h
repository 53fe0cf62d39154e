// Layout and size of the KV cache in flash.
#pragma once

#include <cstdint>

#include "ftl/core/kv_layout.h"
#include "scenario/scenario.h"

namespace csdsim::scenario {

/// Tokens of the longest sequence at its end. With prompts from a file only the output counts. 0 without generation.
std::uint64_t longest_sequence(const Scenario& s);

/// A sequence on the drive with most KV heads. SparF alone wants K component-major too.
ftl::KvShape kv_shape(const Scenario& s);

/// What the mapping policy of the scenario makes of it. Throws what the policy throws for a shape that does not fit a
/// page, UserError for a layout that cannot be.
ftl::KvLayout kv_layout(const Scenario& s, const ftl::KvMappingPolicy& policy);

/// Flash pages that the KV cache of the whole batch fills on the drive with most KV heads, at the end of generation:
/// full token groups of K and V and embedding windows of K.
std::uint64_t kv_cache_pages(const Scenario& s, const ftl::KvLayout& layout);

}  // namespace csdsim::scenario
