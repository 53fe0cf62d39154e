// Configuration of the KV namespace.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "base/units.h"
#include "ftl/core/backing_store.h"
#include "ftl/kv/kv_policy.h"
#include "ftl/kv/kv_types.h"

namespace csdsim::ftl {

struct KvFtlConfig {
  TailPolicy tail = TailPolicy::token_index;
  KvLayoutOptions layout;
  /// What carried reads of flash pages compare. The logical key catches every mapping error and costs nothing; the CRC
  /// also catches corrupt bytes; it takes about one nanosecond of host time per two bytes.
  PageCheck check = PageCheck::key;
  /// Tail policy `partial_program`: how often a window is written before it is full, at equal distances rounded down to
  /// whole token groups; at most once per group.
  std::uint32_t tail_rewrites = 1;
  Bytes codeword{};                   ///< what a read moves at least; divides a page. 0: the page
  std::uint32_t group_codewords = 1;  ///< codewords of a group of tokens; at least 1
  std::uint32_t read_reclaim = 0;     ///< reads of a block since its erase after which its pages move; 0: never
  SimTime refresh_age{};              ///< age of the oldest page of a block at which its pages move; 0: never
  /// Static wear levelling: the largest allowed difference between the erase counts of a plane's blocks, those of both
  /// namespaces. Above it, the pages of this namespace's least worn block move to the most worn free blocks. 0: no
  /// limit.
  std::uint32_t wear_spread = 0;
};

}  // namespace csdsim::ftl
