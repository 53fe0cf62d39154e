// One probe per parameter: a scenario in which it matters, and a value that changes the result.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/dump.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace parameter_probes {

using namespace csdsim;

/// What moving a parameter does.
enum class Effect : std::uint8_t {
  changes,  ///< the result
  refused,  ///< the scenario is not accepted or does not run: the parameter is a limit
  same,     ///< nothing, by contract: only the way to the result differs
};

struct Probe {
  std::string_view parameter;  ///< path; "path (kind)" for those of one kind of a choice
  std::string_view base;
  std::string_view value;
  std::vector<std::string> with = {};  ///< further assignments, on both sides
  Effect effect = Effect::changes;
};

inline constexpr std::string_view kDevice = R"(
  device:
    flash: {channels: 2, dies_per_channel: 2, planes_per_die: 2, blocks_per_plane: 32, pages_per_block: 32}
    dram: {capacity: 64 MiB}
)";

inline std::string scenario_text(std::string_view base) {
  if (base == "presets")
    return "csdsim: 1\nname: probe\nmodel: {preset: opt-1.3b}\n"
           "platform: {gpu: {preset: a6000}, host: {preset: xeon-5320}, device: {preset: instcsd-zynq7045}}\n"
           "workload: {kind: generation, input_tokens: 64, output_tokens: 6}\n"
           "simulation: {sampling: {layers: 2, steps: 2}}\n";
  if (base == "serving")
    return "csdsim: 1\nname: probe\nplatform:\n  gpu: {preset: a6000, memory: 6 MiB}\n  host: {preset: xeon-5320}" +
           std::string(kDevice) +
           "    ftl: {mapping: {kind: page}}\n"
           "model: {layers: 2, heads: 4, kv_heads: 2, head_dim: 64, hidden_size: 256, ffn_size: 512, vocab_size: 1000, "
           "max_positions: 2048}\n"
           "workload:\n"
           "  kind: serving\n"
           "  generate: {requests: 60, input_tokens: 150, output_tokens: 20, prefixes: 2, prefix_tokens: 128, "
           "block_tokens: 32, most_tokens: 1200, gap: 300 us, delay: 2 ms, turns: 4}\n"
           "  engine: {runtime_memory: 0 B}\n"
           "  tiers: {host: {capacity: 512 KiB}, drives: {capacity: 16 MiB}}\n";
  std::string text =
      "csdsim: 1\nname: probe\nplatform:\n  gpu: {preset: a6000}\n  host: {preset: xeon-5320}" + std::string(kDevice);
  if (base == "block")
    return text +
           "    ftl: {mapping: {kind: page}}\n"
           "workload: {kind: block_io, pattern: random_mixed, requests: 3000, working_set: 0.9}\n";
  if (base == "flows")
    return text +
           "    ftl: {mapping: {kind: page}}\n"
           "workload: {kind: block_io, requests: 3000, working_set: 0.9, flows: {patterns: [random_read, "
           "random_write]}}\n";
  if (base == "objects")
    return text +
           "    ftl: {mapping: {kind: page}, placement: {handles: 4}}\n"
           "workload: {kind: objects, writes: 3, request_size: 16 KiB, segment_size: 256 KiB, writers: {object_sizes: "
           "[4 KiB, 16 KiB], stores: [files, buckets], orders: [uniform, zipf]}}\n"
           "simulation: {data: wear}\n";
  if (base == "policies")
    return "csdsim: 1\nname: probe\nplatform:" + std::string(kDevice) +
           "workload: {kind: ftl_policies, layers: 1, kv_heads: 4, head_dim: 64, sequences: 3, live: 2, least_tokens: "
           "70,"
           " most_tokens: 200, attend_every: 32}\n";
  if (base == "trace")
    return text +
           "    ftl: {mapping: {kind: page}}\n"
           "workload: {kind: trace, format: msr, file: scenarios/traces/mail.msr.csv, requests: 500}\n";
  if (base == "carried")
    return text +
           "model: {path: models/opt-6m}\n"
           "system: {kind: instinfer-sparf}\n"
           "workload: {kind: generation, batch: 2, input_tokens: 40, output_tokens: 4}\n"
           "simulation: {data: carried}\n";
  const std::string system = base == "dense" || base == "requests" ? "instinfer-dense" : "instinfer-sparf";
  return text +
         "model: {layers: 2, heads: 4, kv_heads: 2, head_dim: 64, hidden_size: 256, ffn_size: 512, vocab_size: 1000, "
         "max_positions: 2048}\n"
         "system: {kind: " +
         system + "}\n" +
         (base == "requests" ? "workload: {kind: generation, requests: scenarios/serving_requests.csv, "
                               "first_requests: 5, batch: 2}\n"
                             : "workload: {kind: generation, batch: 4, input_tokens: 300, "
                               "output_tokens: 6}\n");
}

/// The names by which a probe may call a parameter: one a kind that has it.
inline std::vector<std::string> names_of(const config::ParamRow& row) {
  const std::string path = row.section.empty() ? row.name : row.section + "." + row.name;
  if (row.kinds.empty()) return {path};
  std::vector<std::string> names;
  for (const std::string& kind : row.kinds) names.push_back(path + " (" + kind + ")");
  return names;
}

inline const std::vector<Probe>& probes() {
  static const std::vector<Probe> all{
#include "parameter_probes.inc"
  };
  return all;
}

}  // namespace parameter_probes
