// Requests that share beginnings, of the kinds that csdsim make-trace knows.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "host_runtime/core/serving/generate_trace.h"

namespace csdsim::host::test {

struct TraceSizes {
  std::uint32_t input_tokens = 0, output_tokens = 0;
  std::uint32_t prefixes = 0, prefix_tokens = 0;
  std::uint32_t most_tokens = 0;
};

/// A kind's defaults, with these sizes, in blocks of 32 tokens; `gap` and delay are the same.
inline ServingTrace generated_trace(std::string_view kind, std::uint64_t seed, std::uint32_t requests, SimTime gap,
                                    const TraceSizes& sizes) {
  for (const TraceKind& k : trace_kinds()) {
    if (k.name != kind) continue;
    TraceGeneration g = k.defaults;
    g.requests = requests;
    g.seed = seed;
    g.block_tokens = 32;
    g.input_tokens = sizes.input_tokens;
    g.output_tokens = sizes.output_tokens;
    g.prefixes = sizes.prefixes;
    g.prefix_tokens = sizes.prefix_tokens;
    g.most_tokens = sizes.most_tokens;
    g.gap = gap;
    g.delay = gap;
    return k.generate(g);
  }
  throw InternalError("no such trace");
}

}  // namespace csdsim::host::test
