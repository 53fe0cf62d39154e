#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <numeric>

#include "base/config/yaml.h"
#include "base/text.h"
#include "experiment/block_io/check_block_workload.h"
#include "experiment/block_io/check_blocks.h"
#include "experiment/generation/check_counts.h"
#include "experiment/generation/check_drive_use.h"
#include "experiment/generation/check_features.h"
#include "experiment/generation/check_requests.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/memory/check_residents.h"
#include "experiment/memory/flash_division.h"
#include "experiment/memory/kv_cache.h"
#include "experiment/platform_rates.h"
#include "host_runtime/core/plan/kept_kv.h"
#include "scenario/check.h"

namespace csdsim::experiment {

using csd_model::DeviceConfig;
using ftl::DataMode;
using ftl::KvMapping;
using ftl::PluginMapping;
using scenario::Checker;
using scenario::RecordedSelectionConfig;
using scenario::Scenario;
using scenario::SimulationConfig;

namespace {

constexpr std::string_view kPage = "platform.device.flash.page_size";
constexpr std::string_view kGroup = "platform.device.ftl.mapping.embedding_group";
constexpr std::string_view kTail = "platform.device.ftl.mapping.tail";
constexpr std::string_view kMapping = "platform.device.ftl.mapping.kind";

/// Checks that pages hold rows, and windows without remainder. A plugin's policy checks its layout itself.
bool check_rows(Checker& c, const KvMapping& mapping) {
  const host::ModelSpec& model = c.scenario().model;
  const std::uint64_t page = c.scenario().platform.device.flash.geometry.page_size.value;
  const RowQuantisation format = c.scenario().system->traits().kv_format;
  const std::uint64_t row = format.row(model.head_dim, sizeof(Half)).value;
  const std::string row_text =
      fmt::format("a row of one token ({} components of {} bits = {} B)", model.head_dim, format.bits, row);
  c.require(page >= row, {kPage, "model.head_dim"},
            fmt::format("{}: a page of {} is smaller than {}", kPage, format_quantity(Bytes{page}), row_text));
  if (page < row || !host::kept_kv_problem(format, model.head_dim).empty()) return false;
  const std::uint32_t m = mapping.embedding_group.components;
  if (m == 0) return true;
  const bool fits = std::has_single_bit(m) && model.head_dim % m == 0 && page % (m * sizeof(Half)) == 0;
  c.require(fits, {kGroup, "model.head_dim"},
            fmt::format("{}: {} is not a power of two that divides the head dimension {}", kGroup, m, model.head_dim));
  return fits;
}

/// Lets the policy check the layout.
std::optional<ftl::KvLayout> check_layout(Checker& c, const KvMapping& mapping) {
  const auto policy = scenario::check_mapping(c);
  if (policy == nullptr) return std::nullopt;
  const bool plugin = std::holds_alternative<ftl::PluginMapping>(c.scenario().platform.device.ftl.mapping);
  if (!plugin && !check_rows(c, mapping)) return std::nullopt;
  try {
    const ftl::KvLayout layout = kv_layout(c.scenario(), *policy);
    if (plugin && !layout.component_major && kv_shape(c.scenario()).component_major) {
      for (const std::string_view path : {kGroup, kTail})
        c.refuse_unused(path, kMapping, fmt::format("{} keeps no embedding pages", policy->name()));
    }
    return layout;
  } catch (const std::exception& e) {
    c.error_at(kMapping, fmt::format("{}: {}: {}", kMapping, policy->name(), e.what()));
    return std::nullopt;
  }
}

void check_capacity(Checker& c, const GenerationWorkload& work, const ftl::KvLayout& layout) {
  const Scenario& s = c.scenario();
  const csd_model::DeviceConfig& device = s.platform.device;
  const std::uint64_t pages = kv_cache_pages(s, layout);
  const std::uint64_t page = device.flash.geometry.page_size.value;
  // The KV namespace exports no capacity; K and V have their share of the flash, less over-provisioning.
  std::uint64_t usable = device.flash.geometry.pages();
  usable -= device.ftl.over_provisioning.floor_of(usable);
  usable -= block_share(s, work).floor_of(usable);
  const auto gib = [&](std::uint64_t n) { return double(n) * double(page) / double(1 << 30); };
  const std::string other = kept_in_blocks(s.system->needs({.model = s.model.shape(), .workload = work.lengths()}));
  c.require(
      pages <= usable,
      {"workload.batch", "workload.input_tokens", "workload.output_tokens", "platform.device.flash.blocks_per_plane",
       "platform.device.count"},
      fmt::format("the KV cache of {} sequences of {} tokens needs {:.1f} GiB of flash per drive, which has {:.1f} GiB "
                  "for data{}: take a smaller batch, shorter sequences, more drives or more blocks",
                  work.batch, longest_sequence(s), gib(pages), gib(usable),
                  other.empty() ? "" : fmt::format(" beside the {}", other)));
}

/// Reads one prompt per line and counts the lines that are not empty.
void take_prompts(Checker& c, GenerationWorkload& work) {
  c.refuse_unused("workload.batch", "workload.prompts", "the prompts say how many sequences there are");
  c.refuse_unused("workload.input_tokens", "workload.prompts", "the prompts say how long they are");
  c.require(c.scenario().model.path.has_value(), {"workload.prompts"},
            "workload.prompts: prompts need a tokenizer: name a checkpoint with model: {path: DIR}");
  if (!c.resolve(*work.prompts, "workload.prompts", "file")) return;
  try {
    const std::string text = config::read_file(work.prompts->path);
    std::uint32_t prompts = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line(text.data() + at, end - at);
      if (line.find_first_not_of(" \t\r") != std::string_view::npos) ++prompts;
      at = end + 1;
    }
    c.require(prompts > 0, {"workload.prompts"},
              fmt::format("workload.prompts: {} holds no prompt", printable(work.prompts->given, 200)));
    if (prompts > 0) work.batch = prompts;
  } catch (const UserError& e) {
    c.error_at("workload.prompts", fmt::format("workload.prompts: {}", e.what()));
  }
}

std::vector<ScorePrecision> precisions_of(const engine::EngineConfig& engine) {
  std::vector<ScorePrecision> scored;
  for (const ScorePrecision precision : {ScorePrecision::fp16, ScorePrecision::int8, ScorePrecision::int4})
    if (engine.scores(precision)) scored.push_back(precision);
  return scored;
}

void check_system(Checker& c, const GenerationWorkload& work, bool has_model) {
  const Scenario& s = c.scenario();
  const std::uint32_t queues = s.platform.device.nvme.queues - (work.background ? 1U : 0U);
  s.system->check(c, {.head_dim = s.model.head_dim,
                      .kv_heads = s.model.kv_heads,
                      .drives = s.platform.device.count,
                      .gpus = s.platform.gpu.count,
                      .carried = s.simulation.data == DataMode::carried,
                      .model = has_model ? s.model.shape() : host::ModelShape{},
                      .sparse_ffn = s.model.architecture == host::Architecture::opt || s.model.fatrelu.has_value(),
                      .mini_batches = work.mini_batches.value_or(0),
                      .commands = queues * (s.platform.device.nvme.queue_depth - 1),
                      .block_size = s.platform.device.nvme.block_size,
                      .batch = work.batch,
                      .engine = s.platform.device.has_engine(),
                      .engine_buffer = s.platform.device.engine.buffer,
                      .mdts = s.platform.device.nvme.mdts,
                      .precisions = precisions_of(s.platform.device.engine)});
}

/// Lets a system that leaves something to a search choose it. False if it finds nothing that fits.
bool choose_parameters(Checker& c, const GenerationWorkload& work) {
  Scenario& s = c.scenario();
  if (!s.platform.gpu.gemm_by_rows.problem().empty()) return false;  // check_platform() has said so
  auto* const system = dynamic_cast<host::SearchedSystem*>(&*s.system);
  if (system == nullptr) return true;
  host::BatchLengths lengths = work.lengths();
  if (work.prompts) {
    // How long the prompts are is known after they are tokenized; until then, only the output counts.
    lengths.set_prompts(std::vector<std::uint32_t>(work.batch, 1));
  }
  try {
    host::PlatformRates rates = platform_rates(s);
    rates.mini_batches = work.mini_batches_of(s, lengths.batch());
    rates.mini_batches_stated = work.mini_batches.has_value();
    system->choose(s.model.shape(), lengths, rates);
    return true;
  } catch (const UserError& e) {
    c.error_at("system.kind", fmt::format("system: {}", e.what()));
    return false;
  }
}

/// Sampling is left out where a part of the run does not stand for the rest; asking for it there is an error.
void check_sampling(Checker& c, const GenerationWorkload& work, bool has_model) {
  Scenario& s = c.scenario();
  std::optional<scenario::SamplingConfig>& sampling = s.simulation.sampling;
  if (!sampling) return;
  const auto simulate_all = [&](std::string_view because, const std::string& why) {
    c.refuse_unused("simulation.sampling", because, why + ": sampling: off");
    sampling.reset();
    s.simulation.why_whole = why;
  };
  if (s.simulation.data == DataMode::carried)
    return simulate_all("simulation.data", "carried runs simulate everything");
  if (work.background)
    return simulate_all("workload.background", "what background work writes depends on the time that passes");
  if (work.requests)
    return simulate_all("workload.requests", work.served() ? "which requests run together depends on the time"
                                                           : "sequences end at different steps");
  if (s.platform.device.flash.reliability)
    return simulate_all("platform.device.flash.reliability",
                        "errors of the flash depend on all that it has read, programmed and erased before");
  if (s.platform.device.ftl.refresh_age)
    return simulate_all("platform.device.ftl.refresh_age", "the age of pages depends on the time that passes");
  if (s.platform.device.write_buffer.capacity.value > 0)
    return simulate_all("platform.device.write_buffer.capacity", "a few layers fit into a buffer that all would fill");
  check_sampled_heads(c, work, has_model);
  const config::Layer error = c.layer("simulation.sampling.error");
  if ((sampling->layers || sampling->steps) && error > c.layer("simulation.sampling.layers") &&
      error > c.layer("simulation.sampling.steps")) {
    c.note_at("simulation.sampling.error", "simulation.sampling: layers and steps are not used: error was given later");
    sampling->layers.reset();
    sampling->steps.reset();
  }
  const bool stated = sampling->layers && sampling->steps;
  c.require(stated || (!sampling->layers && !sampling->steps),
            {"simulation.sampling.layers", "simulation.sampling.steps"},
            "simulation.sampling: layers and steps go together; leave both out to have them chosen");
  if (!stated) return;
  c.refuse_unused("simulation.sampling.error", "simulation.sampling.layers", "layers and steps are given");
  if (has_model) check_sampled_layers(c, work);
  if (has_model)
    c.require(*sampling->layers <= s.model.layers, {"simulation.sampling.layers", "model.layers"},
              fmt::format("simulation.sampling.layers: {} of a model with {}", *sampling->layers, s.model.layers));
  c.require(*sampling->steps <= work.output_tokens, {"simulation.sampling.steps", "workload.output_tokens"},
            fmt::format("simulation.sampling.steps: {} of {} decode steps", *sampling->steps, work.output_tokens));
}

void check_simulation(Checker& c, const GenerationWorkload& work, bool has_model) {
  Scenario& s = c.scenario();
  SimulationConfig& simulation = s.simulation;
  if (simulation.data == DataMode::carried) {
    if (has_model) {
      c.require(s.model.path.has_value(), {"simulation.data", "model.preset"},
                "simulation.data: carried data needs weights: name a checkpoint with model: {path: DIR}");
    }
    c.refuse_unused("simulation.selection", "simulation.data", "carried runs select by the data");
  }
  if (simulation.data == DataMode::timing) scenario::check_selection(c);
  if (simulation.neurons) check_neurons(c, work, has_model);
  check_tokens(c);
  if (simulation.data == DataMode::timing && work.temperature.numerator != 0) {
    c.refuse_unused("workload.temperature", "simulation.data", "timing runs draw no tokens");
  }
  if (work.temperature.numerator == 0) {
    const std::string why = "temperature 0 takes the likeliest token";
    if (work.top_k) c.refuse_unused("workload.top_k", "workload.temperature", why);
    if (work.top_p != Ratio{1, 1}) c.refuse_unused("workload.top_p", "workload.temperature", why);
  }
  c.require(simulation.compare.empty() || simulation.data == DataMode::carried,
            {"simulation.compare", "simulation.data"},
            "simulation.compare: only runs that carry data make tokens to compare: simulation.data: carried");
  if (has_model) check_comparison(c, work);
  check_sampling(c, work, has_model);
}

/// Checks how a system with files reaches them.
void check_files(Checker& c, const GenerationWorkload& work, host::FilePath path) {
  const Scenario& s = c.scenario();
  const bool swap = path == host::FilePath::swap;
  const Bytes io_size = swap ? s.platform.host.swap.io_size : s.platform.host.file.io_size;
  const std::string at = swap ? "platform.host.swap.io_size" : "platform.host.file.io_size";
  c.require(io_size.value % s.platform.device.nvme.block_size.value == 0, {at, "platform.device.nvme.block_size"},
            fmt::format("{}: {} is not a multiple of the logical block of {}", at, format_quantity(io_size),
                        format_quantity(s.platform.device.nvme.block_size)));
  const host::FileConfig& file = s.platform.host.file;
  if (swap) return;
  c.require(file.page_cache.value_or(Bytes{}) <= s.platform.host.memory,
            {"platform.host.file.page_cache", "platform.host.memory"},
            fmt::format("platform.host.file.page_cache: {} in a host memory of {}",
                        format_quantity(file.page_cache.value_or(Bytes{})), format_quantity(s.platform.host.memory)));
  const host::SystemNeeds needs = s.system->needs({.model = s.model.shape(), .workload = work.lengths()});
  const Bytes row = needs.written_piece.value_or(s.model.shape().kv_bytes_per_token_and_head());
  const auto holds_kv = [](const auto& r) { return r.home == host::Place::drive_blocks() && !r.read_only; };
  c.require(file.access == host::FileAccess::cached || std::ranges::none_of(needs.residents, holds_kv) ||
                row.value % s.platform.device.nvme.block_size.value == 0,
            {"platform.host.file.access", "system.kind"},
            fmt::format("platform.host.file.access: K and V of a token and head, {}, are not whole logical blocks of "
                        "{}: use access: cached",
                        format_quantity(row), format_quantity(s.platform.device.nvme.block_size)));
  if (file.access != host::FileAccess::cached) {
    for (const char* const of_cache : {"page_cache", "dirty_ratio"})
      c.refuse_unused(fmt::format("platform.host.file.{}", of_cache), "platform.host.file.access",
                      "only access: cached uses the page cache");
  }
  if (file.access == host::FileAccess::direct)
    c.refuse_unused("platform.host.file.copy_bandwidth", "platform.host.file.access",
                    "with access: direct nothing is copied");
}

void check_background(Checker& c, const GenerationWorkload& work) {
  const BackgroundWorkload& background = *work.background;
  const Scenario& s = c.scenario();
  const csd_model::DeviceConfig& device = s.platform.device;
  constexpr std::string_view kHere = "workload.background";
  if (c.scenario().workload->file_path(s))
    c.error_at(kHere, fmt::format("workload.background: {} has files on the same blocks", s.system.kind()));
  else if (const std::string kept =
               kept_in_blocks(s.system->needs({.model = s.model.shape(), .workload = work.lengths()}));
           !kept.empty())
    c.error_at(kHere, fmt::format("workload.background: {} has {} on the same blocks", s.system.kind(), kept));
  c.require(background.request_size.value % device.nvme.block_size.value == 0,
            {"workload.background.request_size", "platform.device.nvme.block_size"},
            fmt::format("workload.background.request_size: {} is not a multiple of the logical block of {}",
                        format_quantity(background.request_size), format_quantity(device.nvme.block_size)));
  if (const std::optional<Bytes> set = working_set_if_any(s, background.block_io().common))
    c.require(background.request_size <= *set, {"workload.background.working_set", "workload.background.request_size"},
              fmt::format("workload.background.working_set: {} bytes do not hold a request of {}", set->value,
                          format_quantity(background.request_size)));
  c.require(
      background.block_io().mixed() || !background.read_fraction,
      {"workload.background.read_fraction", "workload.background.pattern"},
      fmt::format("workload.background.read_fraction: pattern {} says what is read", name_of(background.pattern)));
  c.require(device.nvme.queues > 1, {kHere, "platform.device.nvme.queues"},
            "workload.background: needs an I/O queue of its own beside one of the generation: platform.device.nvme."
            "queues of at least 2");
  c.require(background.queue_depth < device.nvme.queue_depth,
            {"workload.background.queue_depth", "platform.device.nvme.queue_depth"},
            fmt::format("workload.background.queue_depth: {} requests do not fit into a queue of {} entries ({} "
                        "commands)",
                        background.queue_depth, device.nvme.queue_depth, device.nvme.queue_depth - 1));
  c.require(device.count == 1, {kHere, "platform.device.count"},
            fmt::format("workload.background: addresses one drive, there are {}", device.count));
  c.require(s.simulation.data == DataMode::timing || device.nvme.power, {kHere, "simulation.data"},
            "workload.background: moves no data of its own: use simulation.data: timing (or cut the power, "
            "platform.device.nvme.power)");
}

void check_speculation(Checker& c, const GenerationWorkload& work) {
  const Scenario& s = c.scenario();
  constexpr std::string_view kHere = "workload.speculation";
  if (!s.system->traits().verifies_drafts)
    c.error_at(kHere, fmt::format("workload.speculation: {} generates one token per step", s.system.kind()));
  if (s.simulation.data == DataMode::carried)
    c.refuse_unused("workload.speculation.acceptance", "simulation.data",
                    "carried runs accept the draft tokens that the model itself chooses");
  c.require(!work.requests, {kHere, "workload.requests"},
            "workload.speculation: requests with their own lengths end one by one; drafts are for equal lengths");
}

/// Checks the drives of a system that keeps K and V in drives: a mapping policy and enough capacity.
void check_drive_kv(Checker& c, const GenerationWorkload& work) {
  const Scenario& s = c.scenario();
  const DeviceConfig& device = s.platform.device;
  const KvMapping* mapping = ftl::kv_mapping(device.ftl.mapping);
  const bool page_by_page = device.flash.word_line_pages == 1 && !device.ftl.superblocks;
  c.require(
      mapping != nullptr, {kMapping, "system.kind"},
      fmt::format("{}: {} keeps no KV cache, which {} needs; {}", kMapping, ftl::PageMapping::kKind, s.system.kind(),
                  page_by_page ? "use kind: instinfer"
                               : "word lines of several pages cannot keep one: take a drive that attends, such as "
                                 "instcsd-zynq7045, or a system with K and V in files, such as flexgen-ssd"));
  const bool known = c.readable({kPage, kGroup, "workload.batch", "workload.input_tokens", "workload.output_tokens"});
  check_query_groups(c);
  if (!mapping || !known) return;
  if (const auto layout = check_layout(c, *mapping)) {
    check_capacity(c, work, *layout);
    check_job_size(c, work, *layout);
  }
}

}  // namespace

void GenerationWorkload::check(Checker& c) {
  Scenario& s = c.scenario();
  const bool has_model = scenario::check_model(c);
  check_system(c, *this, has_model);
  if (prompts && c.readable({"workload.prompts"})) take_prompts(c, *this);
  if (!check_requests(c, *this)) return;
  check_simulation(c, *this, has_model);
  if (background) check_background(c, *this);
  if (speculation) check_speculation(c, *this);
  if (!has_model) return;
  check_request_lengths(c, *this);
  // The last token is not fed and needs no position.
  const std::uint32_t positions = s.model.longest_context();
  c.require(requests || longest_sequence(s) <= positions + std::uint64_t{1},
            {"workload.output_tokens", "workload.input_tokens", "model.max_positions"},
            fmt::format("workload: {} tokens ({} in, {} out) exceed the {} positions of the model{}",
                        longest_sequence(s), longest_sequence(s) - output_tokens, output_tokens, positions,
                        positions < s.model.max_positions
                            ? " inside one sliding window; attention over windows is not implemented"
                            : longer_models(s.model, longest_sequence(s))));
  if (mini_batches)
    c.require(*mini_batches <= batch, {"workload.mini_batches", "workload.batch"},
              fmt::format("workload.mini_batches: {} parts of a batch of {}: a part holds at least one sequence",
                          *mini_batches, batch));
  if (!s.attention_on_host && !check_gpus(c, *this)) return;
  if (c.readable({"system", "platform.gpu", "platform.host"}) && !choose_parameters(c, *this)) return;
  check_features(c, *this);
  if (s.attention_on_host) return;
  check_residents(c, *this);
  if (const auto path = file_path(s)) check_files(c, *this, *path);
  if (!check_drive_count(c, lengths())) return;
  check_blocks_and_queues(c);
  if (s.system->needs({.model = s.model.shape(), .workload = lengths()}).kv == host::Place::drive_kv())
    check_drive_kv(c, *this);
}

}  // namespace csdsim::experiment
