#include "host_runtime/core/systems/flash_parameters.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.h"
#include "base/rounding.h"

namespace csdsim::host {

namespace {

/// Attention, embeddings and biases, as a share of all weights.
double share_without_networks(const FlashWeights& weights) {
  const double others = double(weights.others().value);
  return others / (others + double((weights.row() * weights.model().ffn * weights.model().layers).value));
}

}  // namespace

void describe_locality(ParamVisitor& v, FlashParameters& flash) {
  v.param("active_share", flash.active_share, {Ratio::of(1, 10'000), Ratio::of(9'999, 10'000)},
          "Mean share of a layer's neurons that a predictor chooses for a token, in timing runs.",
          paper("LLM in a flash, Table 2: 0.9 GB of the 8.6 GB of the feed-forward networks of OPT-6.7B"));
  v.param(
      "concentration", flash.concentration, {Ratio::of(1, 1'000), Ratio{1'000'000, 1}},
      "How equally often neurons are active, in timing runs: their shares follow a beta distribution with this sum "
      "of its parameters. Small: some are nearly always active, the others nearly never.",
      calibrated("with persistence: a window of 5 tokens loads 0.2 GB per token of OPT-6.7B (LLM in a flash, Table 2) "
                 "and needs 24 % of the neurons"));
  v.param("persistence", flash.persistence, {Ratio{0, 1}, Ratio::of(9'999, 10'000)},
          "Probability that a neuron keeps its state from one token to the next whatever its share, in timing runs.",
          calibrated("see concentration"));
}

FlashOptions FlashParameters::options(bool carried) const {
  FlashOptions options;
  options.layout = technique == FlashTechnique::bundling ? RecordLayout::bundled : RecordLayout::rows;
  options.aligned = predicts() && layout == RecordAlignment::aligned;  // whole matrices have no use for gaps
  options.quantisation = {.bits = bits_of(weight_bits), .group = weight_group};
  options.choice = predicts() ? NeuronReads::predicted : NeuronReads::all;
  options.window = technique >= FlashTechnique::windowing ? window : 0;
  options.resident_share = resident_share.value_or(predicts()                            ? Ratio{1, 1}
                                                   : technique == FlashTechnique::hybrid ? Ratio::of(1, 2)
                                                                                         : Ratio{0, 1});
  options.attention_resident = carried;
  options.memory_share = memory_share;
  options.memory = memory;
  options.predictor = predictor;
  options.predictor_rank = predictor_rank;
  options.threshold = threshold;
  options.threads = threads;
  options.chunk = chunk;
  options.overlap_flash = overlap_flash;
  options.overlap_memory = overlap_memory;
  options.in_drives = in_drives;
  options.division = division;
  options.locality = {
      .active = active_share.value(), .concentration = concentration.value(), .persistence = persistence.value()};
  return options;
}

void describe_flash(ParamVisitor& v, FlashParameters& flash) {
  v.param("technique", flash.technique, "What is done to read less, or faster.", paper("LLM in a flash, Table 2"));
  v.param("window", flash.window, {1, 65'536},
          "Tokens whose neurons stay in memory, the current one included. With windowing and bundling.",
          assumed("the paper's example, as recalled"));
  v.param("layout", flash.layout,
          "How records lie on logical blocks. With naive and hybrid, which read whole matrices, they are packed.",
          assumed("records of usual models are whole blocks"));
  v.param("weight_bits", flash.weight_bits,
          "Bits per element of the neurons' records, on drives and in memory. Other weights, keys and values have 16.",
          paper("LLM in a flash 4.1: float16 and bfloat16"));
  v.param("weight_group", flash.weight_group, {1, 65'536},
          "Elements of a row that share a scale, which is an FP16 number. With weight_bits of 8 and 4.",
          assumed("between the 32 of ggml's formats and the 128 of GPTQ"));
  v.optional(
      "resident_share", flash.resident_share, "auto", {Ratio{0, 1}, Ratio{1, 1}},
      "Share of all weights that stays in memory: attention and embeddings first, then, with naive and hybrid, "
      "neurons. What is missing of attention and of the language-model head is read in each step, of embeddings "
      "the rows of its tokens. auto: none with naive, half with hybrid, attention and embeddings with the others; "
      "in runs that carry data, at least these.",
      paper("LLM in a flash, Table 2: 13.4 GB and 6.7 GB are read; 4.1: half the model fits into memory"));
  v.param("memory_share", flash.memory_share, {Ratio::of(1, 10'000), Ratio{1, 1}},
          "Neurons of a layer that memory has room for, as a share of all.",
          assumed("half the model in memory, a third of it attention and embeddings, leaves a quarter of the neurons"));
  v.optional("memory", flash.memory, "auto", {Bytes{1}, Bytes::gib(65'536)},
             "Memory for the neurons of all layers, divided evenly; auto follows from memory_share.",
             assumed("follows from memory_share"));
  describe_predictor(v, flash);
  describe_reads(v, flash);
  v.param("overlap_flash", flash.overlap_flash,
          "Reads overlap with computation: of the layer before with all neurons, of the neurons in memory otherwise, "
          "after those that left the window have been deleted.",
          paper("LLM in a flash 3: latency is the sum of flash I/O, memory management and computation"));
  v.param("overlap_memory", flash.overlap_memory, "Neurons that left the window are deleted while others are read.",
          paper("LLM in a flash 3: latency is the sum of flash I/O, memory management and computation"));
  describe_locality(v, flash);
}

void describe_predictor(ParamVisitor& v, FlashParameters& flash) {
  v.param("predictor", flash.predictor, "Who chooses the neurons in runs that carry data.",
          assumed("exact tokens; the paper's predictor is trained"));
  v.single_or_list(
      "predictor_rank", flash.predictor_rank, "auto", {1, 65'536}, 4'096,
      "Inner dimension of the predictor: of all layers, or a list with one per layer. auto: with a trained predictor "
      "that of its file, otherwise 128.",
      assumed("the paper's rank for most layers, as recalled"));
  v.param("threshold", flash.threshold, {Ratio::of(1, 1'000), Ratio::of(999, 1'000)},
          "Score above which a trained predictor takes a neuron for active.",
          assumed("the score approximates a probability"));
}

void describe_reads(ParamVisitor& v, FlashParameters& flash) {
  v.param("threads", flash.threads, {1, 65'535}, "Most requests that a drive works on at a time.",
          paper("LLM in a flash 4.1: 32 parallel reads"));
  v.param("chunk", flash.chunk, {Bytes{512}, Bytes::gib(1)},
          "Most bytes of a request: records in neighbouring blocks are read together, longer ranges are cut at its "
          "multiples.",
          paper("LLM in a flash 4.1: 32 KiB"));
}

std::vector<std::string> unused_flash_parameters(const FlashParameters& flash) {
  std::vector<std::string> unused;
  if (flash.technique < FlashTechnique::windowing) unused.emplace_back("window");
  if (flash.weight_bits == ElementBits::sixteen) unused.emplace_back("weight_group");
  if (flash.predicts()) {
    if (flash.memory) unused.emplace_back("memory_share");
    if (flash.overlap_flash) unused.emplace_back("overlap_memory");
    return unused;
  }
  for (const char* const of_predictor : {"layout", "memory_share", "memory", "predictor", "predictor_rank", "threshold",
                                         "overlap_memory", "active_share", "concentration", "persistence"})
    unused.emplace_back(of_predictor);
  return unused;
}

void check_flash(config::Problems& problems, const SystemContext& context, const FlashParameters& flash) {
  for (const std::string& unused : unused_flash_parameters(flash)) {
    const std::string at = "system." + unused;
    if (unused == "weight_group")
      problems.refuse_unused(at, "system.weight_bits", "elements of 16 bits have no scale");
    else if (flash.predicts() && unused == "memory_share")
      problems.refuse_unused(at, "system.memory", "memory is given");
    else if (flash.predicts() && unused == "overlap_memory")
      problems.refuse_unused(at, "system.overlap_flash",
                             "the neurons in memory are computed meanwhile, after others "
                             "have been deleted");
    else
      problems.refuse_unused(at, "system.technique",
                             fmt::format("technique {} does not use it", csdsim::name_of(flash.technique)));
  }
  if (flash.predicts() && context.carried)
    for (const char* const of_model : {"active_share", "concentration", "persistence"})
      problems.refuse_unused(fmt::format("system.{}", of_model), "simulation.data",
                             "runs that carry data compute which neurons are active");
  if (flash.predicts() && !context.carried)
    problems.refuse_unused("system.predictor", "simulation.data", "timing runs model which neurons are active");
  if (flash.predicts() && (!context.carried || flash.predictor == PredictorKind::oracle))
    problems.refuse_unused("system.threshold", context.carried ? "system.predictor" : "simulation.data",
                           "no trained predictor is asked");
  problems.require(context.gpus <= 1, {"platform.gpu.count", "system.kind"},
                   fmt::format("platform.gpu.count: weights in flash are read for one GPU, not for {}", context.gpus));
  problems.require(flash.in_drives || context.mini_batches <= 1, {"workload.mini_batches", "system.kind"},
                   fmt::format("workload.mini_batches: {}: weights in flash are read once for the whole batch; use 1",
                               context.mini_batches));
  problems.require(context.commands == 0 || flash.threads <= context.commands,
                   {"system.threads", "platform.device.nvme.queue_depth", "platform.device.nvme.queues"},
                   fmt::format("system.threads: {} requests in flight, but the queues of a drive hold {} commands",
                               flash.threads, context.commands));
  if (flash.predictor_rank.size() > 1 && context.model.layers > 0)
    problems.require(flash.predictor_rank.size() == context.model.layers, {"system.predictor_rank", "model.layers"},
                     fmt::format("system.predictor_rank: {} ranks for {} layers: give one, or one per layer",
                                 flash.predictor_rank.size(), context.model.layers));
  const Bytes block = context.block_size;
  if (block.value == 0 || context.model.layers == 0) return;
  const bool whole_blocks = flash.chunk.value % block.value == 0;
  problems.require(whole_blocks, {"system.chunk", "platform.device.nvme.block_size"},
                   fmt::format("system.chunk: {} is not a multiple of the logical block of {}",
                               format_quantity(flash.chunk), format_quantity(block)));
  const FlashWeights weights(
      flash.options(context.carried),
      {.model = context.model, .workload = {}, .drives = std::max(1U, context.drives), .block_size = block});
  const Bytes least = weights.directory().smallest_chunk();
  if (whole_blocks)
    problems.require(flash.chunk >= least, {"system.chunk", "system.technique", "system.layout"},
                     fmt::format("system.chunk: {} cannot hold a record, which takes {}", format_quantity(flash.chunk),
                                 format_quantity(least)));
  problems.require(!flash.predicts() || flash.in_drives || weights.memory_rows() > 0,
                   {"system.memory", "system.memory_share"},
                   "system.memory: there is no room for a neuron of each layer");
  const bool modelled = flash.predicts() && !flash.in_drives && !context.carried && weights.memory_rows() > 0;
  const std::uint64_t active = flash.active_share.floor_of(context.model.ffn);
  problems.require(!modelled || active <= weights.memory_rows(),
                   {"system.memory", "system.memory_share", "system.active_share"},
                   fmt::format("system.active_share: {} of {} neurons are active in each step, but memory has room for "
                               "{} of a layer",
                               active, context.model.ffn, weights.memory_rows()));
  const double others = share_without_networks(weights), resident = flash.resident_share.value_or(Ratio{1, 1}).value();
  problems.require(!context.carried || resident >= others, {"system.resident_share", "simulation.data"},
                   fmt::format("system.resident_share: runs that carry data keep attention and embeddings in memory, "
                               "which are {:.3f} of this model",
                               others));
  problems.require(!flash.predicts() || !flash.resident_share || resident <= others,
                   {"system.resident_share", "system.technique"},
                   fmt::format("system.resident_share: attention and embeddings are {:.3f} of this model; "
                               "system.memory_share says how many neurons stay beside them",
                               others));
  const std::string choice = flash.in_drives ? "system.kind" : "system.technique";
  problems.require(!flash.predicts() || context.sparse_ffn, {choice, "model.fatrelu", "model.path", "model"},
                   fmt::format("{}: the neurons of this model have a gate that is never exactly zero, so that all of "
                               "them are active; use a model with ReLU, or model.fatrelu",
                               choice));
}

namespace {

/// The neurons' records that a decode step reads on average. A drive reads the active neurons of each mini-batch. A GPU
/// reads those that were not active in the steps of its window.
ChosenRecords chosen_records(const FlashOptions& options, const RecordFormat& format, std::uint32_t batch,
                             std::uint32_t mini_batches) {
  constexpr std::uint32_t kNeurons = 256;  // enough for the distribution of their shares
  const LocalityModel locality(options.locality, kNeurons, 0);
  const Bytes record = options.layout == RecordLayout::bundled ? format.neuron() : format.row;
  if (options.in_drives)
    return {locality.active_within(1, std::uint32_t(ceil_div(batch, mini_batches))), double(mini_batches), record};
  const double held = options.window > 0 ? locality.active_within(options.window, batch) : 0;
  return {locality.active_within(options.window + 1, batch) - held, 1, record};
}

}  // namespace

std::vector<Resident> flash_residents(const FlashWeights& weights, const PlannerInputs& run, bool through_host) {
  const Bytes block = weights.directory().format().block_size;
  const Bytes buffers =
      weights.layer_buffer() * (weights.options().overlap_flash && !weights.predicts() ? 2 : 1) * weights.parts() +
      std::max(weights.layer_rest(), weights.tables());
  std::vector<Resident> residents{{Place::gpu(), "weights", weights.on_gpu()}};
  residents.push_back({Place::gpu(), "buffers of weights", buffers});
  if (through_host) residents.push_back({Place::host(), "buffers of weights", buffers});
  const Bytes stored = block * weights.blocks(DriveIndex{0});
  const Bytes looked_up = weights.tables() - weights.head();  // a step reads few rows of these tables
  double share = double((weights.in_blocks() - looked_up).value) / double(stored.value);
  if (weights.predicts()) {
    residents.push_back({Place::gpu(), "predictors", weights.predictors()});
    if (weights.memory_rows() > 0) residents.push_back({Place::gpu(), "neurons in memory", weights.window_memory()});
    share *= weights.options().locality.active;
  }
  residents.push_back({.home = Place::drive_blocks(),
                       .what = "weights",
                       .bytes = stored,
                       .read_only = true,
                       .divided = weights.divides_neurons(),
                       .step_share = std::min(1.0, share)});
  if (weights.predicts())
    residents.back().chosen = [options = weights.options(), format = weights.directory().format(),
                               batch = std::max(1U, run.workload.batch()), mini_batches = run.mini_batches] {
      return chosen_records(options, format, batch, std::clamp(mini_batches, 1U, batch));
    };
  return residents;
}

}  // namespace csdsim::host
