// A kind of experiment of your own in a shared library: how many tokens of a model a drive holds.
//
// csdsim loads it where a scenario says `plugins: [capacity.so]`; then `workload: {kind: capacity}` is a workload like
// any other, in list, describe, check, run and sweep.
#include <fmt/format.h>

#include "csd_model/exported_capacity.h"
#include "experiment/result.h"
#include "scenario/check.h"
#include "scenario/plugin.h"
#include "scenario/scenario.h"

namespace {

using namespace csdsim;

class Capacity final : public scenario::CopyableExperiment<Capacity> {
 public:
  static constexpr std::string_view kKind = "capacity";
  static constexpr std::string_view kDoc = "How many tokens of a model the drives hold.";

  void describe(ParamVisitor& v) override {
    v.param("fill", fill_, {Ratio::of(1, 100), Ratio{1, 1}}, "Share of the usable flash that keys and values may take.",
            assumed("all of it"));
  }
  void check(scenario::Checker& c) override { scenario::check_model(c); }
  void prune(nlohmann::ordered_json& config, const scenario::Scenario&) const override {
    for (const char* const unused : {"system", "simulation"}) scenario::erase_path(config, unused);
  }
  scenario::RunResult run(const scenario::Scenario& s, const scenario::RunOptions&) const override {
    const experiment::WallClock clock;
    scenario::RunResult result;
    result.document = experiment::result_frame(s);
    const std::uint64_t token = 2 * s.model.row_bytes().value * s.model.kv_heads * s.model.layers;
    const std::uint64_t usable =
        fill_.floor_of(csd_model::exported_capacity(s.platform.device).value * s.platform.device.count);
    result.document["metrics"] = {{"tokens", usable / token}, {"bytes_per_token", token}};
    result.document["wall"] = experiment::wall_figures(clock, 0);
    result.meaning = fmt::format("The drives hold {} tokens of {} bytes.", usable / token, token);
    return result;
  }

 private:
  Ratio fill_{1, 1};
};

}  // namespace

CSDSIM_PLUGIN(registries.experiments.add<Capacity>())
