#include "experiment/generation/generation_workload.h"

#include <algorithm>

#include "base/error.h"
#include "experiment/memory/flash_division.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

void describe(ParamVisitor& v, SpeculationWorkload& speculation) {
  v.param("draft_tokens", speculation.draft_tokens, {1, 64}, "Tokens of a draft, which one decode step verifies.",
          paper("LLM in a flash 5.2: 4 tokens"));
  v.param("acceptance", speculation.acceptance, {Ratio{0, 1}, Ratio{1, 1}},
          "Probability that a draft token is accepted if those before it are; in carried runs the checkpoint says it.",
          calibrated("a step yields 1.58 tokens with drafts of 4, the speedup that LLM in a flash 5.2 calls ideal; it "
                     "does not state the acceptance"));
  v.param("draft_time", speculation.draft_time, {SimTime{}, SimTime::milliseconds(10'000)},
          "Time to draft a token, on the processor that decodes.",
          assumed("its weights are small and stay in memory; LLM in a flash does not state it"));
}

void GenerationWorkload::describe(ParamVisitor& v) {
  v.param("batch", batch, {1, 65'536},
          "Sequences that decode together; of requests that arrive, the most that run at a time.",
          assumed("the smallest batch"));
  v.param("input_tokens", input_tokens, {1, 16'777'216}, "Tokens of every prompt.", assumed("a short prompt"));
  v.param("output_tokens", output_tokens, {1, 16'777'216}, "Tokens generated per sequence.", assumed("a short answer"));
  v.param("temperature", temperature, {Ratio{0, 1}, Ratio{100, 1}},
          "Divides logits before a token is drawn, in carried runs; 0 takes the likeliest token.", assumed("greedy"));
  v.optional("top_k", top_k, "all", {1, 16'777'216}, "Tokens are drawn from the k likeliest ones.", assumed("no cut"));
  v.param("top_p", top_p, {Ratio::of(1, 1'000'000), Ratio{1, 1}},
          "Tokens are drawn from the likeliest ones that together have this probability, after top_k.",
          assumed("no cut"));
  v.optional("prompts", prompts, "none", "File with one prompt per line; replaces batch and input_tokens.",
             assumed("lengths are enough for timing"));
  v.optional("requests", requests, "none",
             "File of requests with their own lengths: comma-separated values with the columns input_tokens, "
             "output_tokens and, if the requests arrive at their own times, arrival_s; the columns of the Azure LLM "
             "inference traces are known, too. Replaces input_tokens, output_tokens and, without arrivals, batch.",
             assumed("equal lengths"));
  v.optional("first_requests", first_requests, "all", {1, 1'000'000}, "Requests of the file that are used.",
             assumed("the whole file"));
  v.optional("interarrival", interarrival, "none", {SimTime::nanoseconds(1), SimTime::milliseconds(10'000'000)},
             "Mean time between requests that arrive in a Poisson process, drawn by the seed; replaces arrivals of the "
             "file. At most batch requests run at a time, the others wait.",
             assumed("all requests are one batch, unless the file states arrivals"));
  v.optional(
      "mini_batches", mini_batches, "auto", {1, 1024},
      "Parts of the batch that take turns, at most one per sequence and at least one per GPU; auto: for each GPU "
      "what the system's search has chosen, 2 if the system keeps two resources busy in turn, otherwise 1.",
      assumed("the least that overlaps; InstInfer states no micro-batch size"));
  v.optional_section(
      "speculation", speculation, "none",
      "Drafts of tokens, which one decode step verifies: of a small model in timing runs, in carried runs "
      "what followed the latest tokens when they occurred before (prompt lookup).",
      assumed("every step generates one token"));
  v.param("lost_kv", lost_kv,
          "What the host does when a drive cannot read a page of K or V back (platform.device.flash.reliability).",
          assumed("a run whose answers would be wrong is of no use"));
  v.optional_section("background", background, "none", "Block commands on the same drive during the generation.",
                     assumed("none: the drive serves the KV cache alone"));
}

void GenerationWorkload::prune(nlohmann::ordered_json& config, const scenario::Scenario& scenario) const {
  if (prompts) {
    scenario::erase_path(config, "workload.batch");
    scenario::erase_path(config, "workload.input_tokens");
  }
  if (requests) {
    if (!served()) scenario::erase_path(config, "workload.batch");
    scenario::erase_path(config, "workload.input_tokens");
    scenario::erase_path(config, "workload.output_tokens");
  }
  const auto& sampling = scenario.simulation.sampling;
  if (sampling && sampling->layers && sampling->steps) scenario::erase_path(config, "simulation.sampling.error");
  if (scenario.simulation.data == ftl::DataMode::carried || !scenario.system->traits().chooses_tokens)
    scenario::erase_path(config, "simulation.tokens");
  if (scenario.simulation.data == ftl::DataMode::carried) {
    scenario::erase_path(config, "simulation.selection");
    if (speculation) scenario::erase_path(config, "workload.speculation.acceptance");
  }
}

std::optional<host::FilePath> GenerationWorkload::file_path(const scenario::Scenario& scenario) const {
  return scenario.system->needs({.model = scenario.model.shape(), .workload = lengths()}).files;
}

bool GenerationWorkload::writes_blocks(const scenario::Scenario& scenario) const {
  return background || file_path(scenario);
}

double GenerationWorkload::kv_share(const scenario::Scenario& scenario) const {
  return 1 - block_share(scenario, *this).value();
}

host::BatchLengths GenerationWorkload::lengths() const {
  if (!trace.requests.empty()) {
    host::BatchLengths lengths = host::BatchLengths::with_outputs(trace.requests);
    lengths.arrive = served();
    if (served()) lengths.places = batch;
    return lengths;
  }
  host::BatchLengths lengths(std::vector<std::uint32_t>(batch, prompts ? 0 : input_tokens), output_tokens);
  if (speculation)
    lengths.speculation = {.draft_tokens = speculation->draft_tokens,
                           .acceptance = speculation->acceptance.value(),
                           .draft_time = speculation->draft_time};
  return lengths;
}

std::uint32_t GenerationWorkload::mini_batches_of(const scenario::Scenario& scenario, std::uint32_t sequences) const {
  return mini_batches.value_or(
      std::min(scenario.system->traits().mini_batches * scenario.platform.gpu.count, sequences));
}

const GenerationWorkload& generation_of(const scenario::Scenario& scenario) {
  const auto* const workload = dynamic_cast<const GenerationWorkload*>(&*scenario.workload);
  if (workload == nullptr) throw InternalError("the scenario generates nothing");
  return *workload;
}

host::PlannerInputs planned_run(const scenario::Scenario& s, const host::BatchLengths& lengths) {
  return {.model = s.model.shape(),
          .workload = lengths,
          .drives = s.platform.device.count,
          .through_host = s.platform.device.nvme.transfer == nvme::DataPath::host,
          .block_size = s.platform.device.nvme.block_size,
          .carried = s.simulation.data == ftl::DataMode::carried};
}

}  // namespace csdsim::experiment
