#include "scenario/scenario.h"

#include <algorithm>
#include <limits>

namespace csdsim::scenario {

namespace {

std::vector<std::string> comparable(const Registries& registries) {
  std::vector<std::string> names{std::string(kHostComparison)};
  for (const std::string& system : registries.systems.names()) names.push_back(system);
  return names;
}

}  // namespace

Scenario::Scenario(const std::shared_ptr<const Registries>& registries)
    : system(std::shared_ptr<const host::SystemKinds>(registries, &registries->systems)),
      workload(std::shared_ptr<const ExperimentKinds>(registries, &registries->experiments)) {
  simulation.comparable = comparable(*registries);
}

void describe(ParamVisitor& v, ClusteredSelectionConfig& c) {
  v.param(
      "token_page_fraction", c.token_page_fraction, {Ratio::of(1, 1024), Ratio{1, 1}},
      "Share of the token pages that the selected tokens lie in.",
      paper(
          "InstInfer IV-C, VI-C: implied at 1/8 and 16 tokens a page; opt-6m measures 0.46, uniform picks touch 0.88"));
}

void describe(ParamVisitor& v, RecordedSelectionConfig& c) {
  v.param("file", c.file, "What csdsim eval --record wrote, at the run's budget: r/d and k/S have to agree.",
          measured("selections of a trained checkpoint; models/opt-6m has some"));
}

void describe(ParamVisitor& v, SamplingConfig& c) {
  v.param("layers", c.layers, {2, 1024}, "Layers that are simulated for all: two show the time from layer to layer.",
          assumed("layers are alike"));
  v.param("steps", c.steps, {2, 1'048'576}, "Decode steps that are simulated for all.",
          assumed("costs are smooth in length"));
}

void describe(ParamVisitor& v, SimulationConfig& c) {
  v.param("data", c.data, "Whether pages hold real bytes.", assumed("timing needs no checkpoint"));
  v.names("compare", c.compare, c.comparable, {0, 16},
          "Other ways to decode the same prompts, to compare tokens with; carried runs.", assumed("costs a run each"));
  v.choice("selection", c.selection, "Which tokens SparF attends where it is not computed.",
           assumed("needs no recorded run"));
  v.optional_section("sampling", c.sampling, "off",
                     "Simulates some layers and steps for all; off simulates everything.", assumed("exact"));
}

void describe(ParamVisitor& v, Scenario& c) {
  v.param("name", c.name, "Names the run and its result directory: letters, digits, '.', '_', '-'.",
          assumed("the name of the file"));
  v.param("seed", c.seed, {0, std::numeric_limits<std::uint64_t>::max()}, "Seed of everything random.",
          assumed("any number will do"));
  v.section("model", c.model, "The model that is decoded.");
  v.section("platform", c.platform, "The modelled machine.");
  v.choice("system", c.system, "The offload system.", assumed("the exact one"));
  v.choice("workload", c.workload, "What is run.", assumed("the subject of the project"));
  v.section("simulation", c.simulation, "How it is simulated.");
}

}  // namespace csdsim::scenario
