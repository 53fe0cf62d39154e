#include "scenario/scenario.h"

#include <algorithm>
#include <limits>

namespace csdsim::scenario {

host::ModelShape ModelConfig::shape() const {
  host::ModelConfig config;
  config.architecture = architecture;
  config.layers = layers;
  config.width = hidden_size;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = head_dim;
  config.ffn = ffn_size;
  config.vocab = vocab_size;
  config.max_positions = max_positions;
  config.tied_embeddings = embeddings == Embeddings::tied;
  host::ModelShape shape = host::ModelShape::of(config);
  shape.element_bytes = bytes_per_element;
  return shape;
}

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

void describe(ParamVisitor& v, ModelConfig& c) {
  const Cite open = assumed("no default: name a preset or a path");
  v.preset("model", c.preset);
  v.optional("path", c.path, "none", "Directory of a checkpoint (config.json, safetensors, tokenizer).",
             assumed("a preset has no weights"));
  v.param("architecture", c.architecture, "Family: positions, biases, and matrices of the feed-forward network.",
          paper("OPT (arXiv 2205.01068), the family that InstInfer runs"));
  v.param("layers", c.layers, {1, 1024}, "Decoder layers.", open);
  v.param("heads", c.heads, {1, 1024}, "Query heads.", open);
  v.param("kv_heads", c.kv_heads, {1, 1024}, "Key/value heads; divides heads.", open);
  v.param("head_dim", c.head_dim, {1, 1024}, "Components of a head.", open);
  v.param("hidden_size", c.hidden_size, {1, 1'048'576}, "Width of the residual stream.", open);
  v.param("ffn_size", c.ffn_size, {1, 4'194'304}, "Width inside the feed-forward network.", open);
  v.param("vocab_size", c.vocab_size, {1, 16'777'216}, "Entries of the vocabulary.", open);
  v.param("max_positions", c.max_positions, {1, 16'777'216}, "Longest sequence that the model was made for.", open);
  v.param("embeddings", c.embeddings, "Whether the output projection costs memory of its own.",
          paper("OPT (arXiv 2205.01068): tied"));
  v.param("bytes_per_element", c.bytes_per_element, {2, 2}, "Bytes of a weight, key or value: FP16.",
          paper("InstInfer VI-A: FP16"));
}

void describe(ParamVisitor& v, ClusteredSelection& c) {
  v.param(
      "token_page_fraction", c.token_page_fraction, {Ratio::of(1, 1024), Ratio{1, 1}},
      "Share of the token pages that the selected tokens lie in.",
      paper(
          "InstInfer IV-C, VI-C: implied at 1/8 and 16 tokens a page; opt-6m measures 0.46, uniform picks touch 0.88"));
}

void describe(ParamVisitor& v, RecordedSelection& c) {
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
