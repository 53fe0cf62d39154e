// Mistakes that tests make on purpose in the state of the KV namespace.
#pragma once

#include "ftl/kv/sequence_table.h"

namespace csdsim::ftl {

/// Exchanges the map entries of two pages. Throws UserError if one is not mapped.
void swap_mapping(SequenceTable& table, const KvPageId& a, const KvPageId& b);
/// Loses the rows of a head that are in no token page. Throws UserError if there are none. Carried mode only.
void forget_tail(SequenceTable& table, const HeadKey& key);

}  // namespace csdsim::ftl
