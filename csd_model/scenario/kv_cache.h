// Size of the KV cache in flash, and the layout that follows from the page size.
#pragma once

#include <cstdint>

#include "csd_model/scenario/scenario.h"

namespace csdsim::scenario {

/// m, components an embedding page: as given, or what the KV FTL chooses (ftl::KvLayout::make). Precondition: rows fill
/// pages.
std::uint32_t embedding_group(const InstinferMapping& mapping, const ModelConfig& model, Bytes page,
                              std::uint64_t longest_sequence);

/// Tokens of the longest sequence at its end. With prompts from a file only the output counts. 0 without generation.
std::uint64_t longest_sequence(const Scenario& s);

/// Flash pages that the KV cache of the whole batch fills on the drive with most KV heads, at the end of generation:
/// full token groups of K and V and, for SparF, full embedding windows of K. Precondition: the scenario was checked up
/// to its layout, and the mapping is instinfer.
std::uint64_t kv_cache_pages(const Scenario& s);

}  // namespace csdsim::scenario
