#include "scenario/scenario.h"

#include <algorithm>
#include <limits>

namespace csdsim::scenario {

host::SparfParameters sparf_parameters(const InstinferSparf& system) {
  return {.ratio = system.ratio,
          .mode = system.ratio_mode == RatioMode::traffic ? host::RatioMode::traffic : host::RatioMode::uniform,
          .r = system.r,
          .k = system.k,
          .local = system.l};
}

std::string_view Scenario::system_kind() const {
  return std::visit([](const auto& s) { return s.kKind; }, system);
}
std::string_view Scenario::workload_kind() const {
  return std::visit([](const auto& w) { return w.kKind; }, workload);
}

void describe(ParamVisitor& v, InstinferDense& c) {
  v.param("method", c.method, "Says the method again; has to agree with kind.", paper("InstInfer VI-A"));
}

void describe(ParamVisitor& v, InstinferSparf& c) {
  v.param("method", c.method, "Says the method again; has to agree with kind.", paper("InstInfer VI-A"));
  v.param("ratio", c.ratio, {Ratio::of(1, 1024), Ratio{1, 1}}, "Compression ratio.", paper("InstInfer VI-A: 1/8"));
  v.param("ratio_mode", c.ratio_mode, "What the ratio counts.",
          assumed("the paper does not define it; both readings are offered"));
  v.optional("r", c.r, "auto", {1, 1024}, "Components of q that approximate the scores; auto follows from ratio.",
             assumed("follows from ratio"));
  v.optional("k", c.k, "auto", {1, 16'777'216}, "Tokens attended; auto follows from ratio.",
             assumed("follows from ratio"));
  v.optional("l", c.l, "auto", {0, 16'777'216}, "Newest tokens that are always attended, counted in k; auto is k/4.",
             paper("SparQ (arXiv 2312.04985), as recalled: l = k/4"));
}

void describe(ParamVisitor& v, GenerationWorkload& c) {
  v.param("batch", c.batch, {1, 65'536}, "Sequences that decode together.", assumed("the smallest batch"));
  v.param("input_tokens", c.input_tokens, {1, 16'777'216}, "Tokens of every prompt.", assumed("a short prompt"));
  v.param("output_tokens", c.output_tokens, {1, 16'777'216}, "Tokens generated a sequence.", assumed("a short answer"));
  v.param("temperature", c.temperature, {Ratio{0, 1}, Ratio{100, 1}},
          "Divides logits before a token is drawn, in carried runs; 0 takes the likeliest.", assumed("greedy"));
  v.optional("top_k", c.top_k, "all", {1, 16'777'216}, "Tokens are drawn from the likeliest k.", assumed("no cut"));
  v.param("top_p", c.top_p, {Ratio::of(1, 1'000'000), Ratio{1, 1}},
          "Tokens are drawn from the likeliest ones that together have this probability, after top_k.",
          assumed("no cut"));
  v.optional("prompts", c.prompts, "none", "File with a prompt a line, in place of batch and input_tokens.",
             assumed("lengths are enough for timing"));
  v.optional(
      "mini_batches", c.mini_batches, "auto", {1, 1024},
      "Parts of the batch that take turns on GPU and drive, at most one a sequence; auto: 2 if there are as many.",
      assumed("the least that overlaps; InstInfer states no micro-batch size"));
  v.optional_section("background", c.background, "none", "Block commands beside the generation, on the same drive.",
                     assumed("none: the drive serves the KV cache alone"));
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
  v.list("compare", c.compare, {0, 3}, "Other ways to decode the same prompts, to compare tokens with; carried runs.",
         assumed("costs a run each"));
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
