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
      calibrated("SparF over dense attention in InstInfer VI-C, at 1/8 and 16 tokens per page; opt-6m measures 0.46, "
                 "uniform picks touch 0.88"));
  v.optional("selected_per_page", c.selected_per_page, "as token_page_fraction says", {Ratio{1, 1}, Ratio{4096, 1}},
             "Selected tokens in each token page that holds any, on average. The share of the pages follows from the "
             "number of selected tokens, at most all pages. Excludes token_page_fraction.",
             calibrated("8 in InstInfer VI-C, where SparF over dense attention gives a quarter of the pages at 1/8"));
}

void describe(ParamVisitor& v, RecordedSelectionConfig& c) {
  v.param("file", c.file, "A file of csdsim eval --record with the budget of the run: r/d and k/S must be equal.",
          measured("selections of a trained checkpoint; models/opt-6m has some"));
}

void describe(ParamVisitor& v, ModelledTokensConfig& c) {
  const auto fitted =
      calibrated("a recording of llama-gqa-6m with a fifth of the tokens important (docs/hillinfer_reproduction.md)");
  v.param("recent", c.recent, {Ratio::of(1, 1000), Ratio::of(999, 1000)},
          "Share of the important tokens that is within as many newest tokens.", fitted);
  v.param(
      "concentration", c.concentration, {Ratio::of(1, 1000), Ratio{1'000'000, 1}},
      "How equally often tokens are important: their shares of steps follow a beta distribution with this sum of its "
      "parameters.",
      fitted);
  v.param("persistence", c.persistence, {Ratio{0, 1}, Ratio::of(9'999, 10'000)},
          "Probability that a token stays important, or not, from one step to the next whatever its share.", fitted);
  v.param("drift", c.drift, {Ratio{0, 1}, Ratio::of(9'999, 10'000)},
          "Probability per step that the share of a token is drawn anew.", fitted);
}

void describe(ParamVisitor& v, RecordedTokensConfig& c) {
  v.param("file", c.file,
          "A file of csdsim eval --record by a method with one list per layer: the contexts of the run must have been "
          "recorded, with the run's share of tokens.",
          measured("tokens that a method attends to on a trained checkpoint"));
}

void describe(ParamVisitor& v, SamplingConfig& c) {
  v.param("error", c.error, {Ratio::of(1, 100'000), Ratio::of(1, 2)},
          "Largest estimated relative error of the time to the first token and of the decode time. Short runs are "
          "simulated whole. Given later than layers and steps, for instance with --set, it takes their place.",
          assumed("finer than what the model leaves out"));
  v.optional("layers", c.layers, "auto", {2, 1024},
             "Number of simulated layers; the others are estimated from them. auto: as many as the error asks for.",
             assumed("layers are alike"));
  v.optional("steps", c.steps, "auto", {2, 1'048'576},
             "Number of places where decode steps are measured; the others are estimated from them. auto: as many as "
             "the error "
             "asks for.",
             assumed("costs are smooth in length"));
  v.optional(
      "heads", c.heads, "auto", {0, 65'536},
      "Number of KV heads, over the sequences of an attention command, that show the pace at which the command "
      "passes over others that are alike; 0 simulates all heads. A number is raised where the error asks for it. "
      "auto: all heads, if layers and steps are stated or the sample has at most 100 million page operations; "
      "otherwise as many as the error asks for.",
      assumed("heads of equally long sequences are alike"));
}

void describe(ParamVisitor& v, SimulationConfig& c) {
  v.param("data", c.data, "Whether pages hold real bytes.", assumed("timing needs no checkpoint"));
  v.names("compare", c.compare, c.comparable, {0, 16},
          "Other ways to decode the same prompts, whose tokens are compared; carried runs only.",
          assumed("each entry costs one run"));
  v.choice("selection", c.selection, "Which tokens SparF attends to when the selection is not computed.",
           assumed("needs no recorded run"));
  v.choice("tokens", c.tokens, "Which tokens matter in timing runs of systems that move chosen tokens.",
           assumed("recordings end at the contexts of the checkpoints"));
  v.optional("neurons", c.neurons, "none",
             "A file of csdsim eval --record-neurons: which neurons are active in timing runs of systems that predict "
             "them. none: as the system's constants say.",
             assumed("needs no recorded run"));
  v.optional_section("sampling", c.sampling, "off",
                     "Simulates some layers and steps of a long run and estimates the rest; off simulates everything.",
                     assumed("whole runs of large models take an hour"));
}

void describe(ParamVisitor& v, Scenario& c) {
  v.param("name", c.name, "Names the run and its result directory: letters, digits, '.', '_', '-'.",
          assumed("the name of the file"));
  v.param("seed", c.seed, {0, std::numeric_limits<std::uint64_t>::max()}, "Seed of all random choices.",
          assumed("any number will do"));
  v.section("model", c.model, "The model that is decoded.");
  v.section("platform", c.platform, "The modelled machine.");
  v.choice("system", c.system, "The offload system.", assumed("the exact one"));
  v.choice("workload", c.workload, "The experiment to run.", assumed("the subject of the project"));
  v.section("simulation", c.simulation, "Settings of the simulation.");
}

}  // namespace csdsim::scenario
