#include "experiment/mapping_policies/policy_workload.h"

#include <fmt/format.h>

#include <array>

#include "experiment/block_io/check_blocks.h"
#include "scenario/check.h"

namespace csdsim::experiment {

namespace {

/// Keys that have no effect in an ftl_policies workload, which times the flash alone.
constexpr std::array kWithoutEffect{"model",
                                    "system",
                                    "platform.gpu",
                                    "platform.host",
                                    "platform.root_complex",
                                    "platform.switch",
                                    "platform.device.count",
                                    "platform.device.fidelity",
                                    "platform.device.engine",
                                    "platform.device.nvme",
                                    "platform.device.link",
                                    "platform.device.write_buffer",
                                    "platform.device.energy",
                                    "platform.device.flash.reliability",
                                    "platform.device.flash.filter_location",
                                    "platform.device.ftl.lookup_time",
                                    "platform.device.ftl.firmware",
                                    "platform.device.ftl.over_provisioning",
                                    "platform.device.ftl.over_provisioning_of_user",
                                    "platform.device.ftl.read_reclaim",
                                    "simulation.sampling"};

}  // namespace

void PolicyWorkload::describe(ParamVisitor& v) {
  v.param("layers", layers, {1, 1024}, "Layers of every sequence.", assumed("enough that layers share blocks"));
  v.param("kv_heads", kv_heads, {1, 1024}, "KV heads per layer.",
          assumed("as many as the rows of a 4 KiB page at d = 128: the 16x case of InstInfer IV-C"));
  v.param("head_dim", head_dim, {1, 1024}, "Components of a head.", paper("OPT (arXiv 2205.01068): 128"));
  v.param("sequences", sequences, {1, 1'000'000}, "Total number of sequences.",
          assumed("enough for garbage collection"));
  v.param("live", live, {1, 65'536}, "Sequences at a time; the next one is created when one is freed.",
          assumed("they fill a small drive"));
  v.param("least_tokens", least_tokens, {1, 16'777'216}, "Final length of the shortest sequence, in tokens.",
          assumed("sequences end at different times"));
  v.param("most_tokens", most_tokens, {1, 16'777'216}, "Final length of the longest; lengths are uniform.",
          paper("OPT (arXiv 2205.01068): 2,048 positions"));
  v.param("prompt_fraction", prompt_fraction, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of a sequence that is one prefill; the rest comes token by token.",
          paper("InstInfer VI-A: as many tokens in as out"));
  v.param("attend_every", attend_every, {1, 16'777'216}, "Tokens of a sequence between two measured attends.",
          assumed("attends are alike from token to token"));
  v.param("ratio", ratio, {Ratio::of(1, 1024), Ratio{1, 1}}, "Compression ratio of the sparse attends: r/d and k/S.",
          paper("InstInfer VI-A: 1/8"));
}

void PolicyWorkload::check(scenario::Checker& c) {
  constexpr std::string_view kWhy = "has no effect in an ftl_policies workload, which times the flash alone";
  for (const char* const path : kWithoutEffect) {
    if (c.given(path)) c.error_at(path, fmt::format("{}: {}", path, kWhy));
  }
  scenario::Scenario& s = c.scenario();
  c.require(s.simulation.data == ftl::DataMode::timing, {"simulation.data", "workload.kind"},
            "simulation.data: an ftl_policies workload moves no data: use timing (csdsim test-policy compares data)");
  c.require(least_tokens <= most_tokens, {"workload.least_tokens", "workload.most_tokens"},
            fmt::format("workload.least_tokens: {} is more than most_tokens, {}", least_tokens, most_tokens));
  c.require(live <= sequences, {"workload.live", "workload.sequences"},
            fmt::format("workload.live: {} sequences at a time of {} in all", live, sequences));
  c.require(ftl::kv_mapping(s.platform.device.ftl.mapping) != nullptr,
            {"platform.device.ftl.mapping.kind", "workload.kind"},
            "platform.device.ftl.mapping.kind: page keeps no KV cache; name a mapping policy");
  check_factory_bad_blocks(c);
  scenario::check_selection(c);
}

void PolicyWorkload::prune(nlohmann::ordered_json& config, const scenario::Scenario&) const {
  for (const char* const unused : kWithoutEffect) scenario::erase_path(config, unused);
}

}  // namespace csdsim::experiment
