// Memory that is fetched before it is needed.
#pragma once

namespace csdsim {

/// Brings the cache line at `p` into the processor's cache. Never fails, whatever `p` points to.
///
/// The empty statement has a reason: GCC 12 takes a function that only prefetches for one without effect, and removes
/// the calls of it.
[[gnu::always_inline]] inline void prefetch_line(const void* p) {
  __builtin_prefetch(p);
  asm volatile("");
}

}  // namespace csdsim
