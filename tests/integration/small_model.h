// opt-6m, or another checkpoint, and a small drive for it, shared by the tests that decode through the drive.
#pragma once

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "experiment/generation/generation_run.h"
#include "experiment/memory/kv_format.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/carried/decoder_data.h"
#include "host_runtime/core/carried/host_reference.h"
#include "host_runtime/core/systems/systems.h"
#include "host_runtime/cpu/cpu_backend.h"

namespace csdsim::test {

using Prompts = std::vector<std::vector<host::TokenId>>;

/// A checkpoint that is ready to decode.
struct SmallModel {
  explicit SmallModel(const std::string& directory)
      : checkpoint(host::open_checkpoint(std::string(CSDSIM_SOURCE_DIR "/") + directory)) {}

  explicit SmallModel(host::Checkpoint made) : checkpoint(std::move(made)) {}

  host::CpuBackend backend;
  host::Checkpoint checkpoint;
  std::unique_ptr<host::Decoder> decoder = host::make_decoder(checkpoint.config, *checkpoint.weights, backend);

  /// opt-6m, loaded once a process.
  static const SmallModel& get() {
    static const SmallModel model("models/opt-6m");
    return model;
  }

  host::ModelShape shape() const { return host::ModelShape::of(checkpoint.config); }
};

/// 4 channels x 2 dies x 2 planes: holds some sequences of 2,048 tokens of opt-6m.
inline csd_model::DriveConfig small_drive() {
  csd_model::DriveConfig drive;
  drive.geometry = {.channels = 4,
                    .dies_per_channel = 2,
                    .planes_per_die = 2,
                    .blocks_per_plane = 48,
                    .pages_per_block = 64,
                    .page_size = Bytes::kib(4)};
  drive.dram = Bytes::mib(256);
  drive.kv_share = 1;
  return drive;
}

struct DecodeRun {
  Prompts tokens;
  std::uint64_t attention_digest = 0;
  experiment::GenerationOutcome outcome;
};

/// A plan's parameters.
inline experiment::GenerationSetup small_setup(const csd_model::DriveConfig& drive, const Prompts& prompts,
                                               std::uint32_t new_tokens, const std::string& system,
                                               const SmallModel& model = SmallModel::get()) {
  experiment::GenerationSetup setup;
  setup.platform.drive = drive;
  setup.platform.host_memory = Bytes::gib(1);
  setup.platform.gpu_memory = Bytes::gib(1);
  setup.platform.queue_depth = 64;
  setup.gpu_link = {.bandwidth = Bandwidth{25'000'000'000}, .latency = {}};
  setup.system = host::builtin_systems().make(system);
  setup.plan.model = model.shape();
  std::vector<std::uint32_t> lengths;
  for (const auto& prompt : prompts) lengths.push_back(static_cast<std::uint32_t>(prompt.size()));
  setup.plan.workload = {lengths, new_tokens};
  setup.plan.mini_batches = 1;
  setup.sampling.off = true;
  return setup;
}

/// What a plan that chooses tokens needs of the data.
inline void set_choices(host::DecoderData& data, const experiment::GenerationSetup& setup, const SmallModel& model) {
  data.set_features(setup.system->features(setup.plan), {.weights = model.checkpoint.weights.get()});
}

inline DecodeRun decode_in_drive(experiment::GenerationSetup setup, const Prompts& prompts,
                                 const host::SamplingOptions& sampling, const experiment::GenerationHooks& hooks = {},
                                 const SmallModel& model = SmallModel::get()) {
  host::DecoderData data(*model.decoder, prompts, setup.plan.workload.output_tokens, setup.plan.mini_batches, sampling,
                         experiment::kv_division(setup));
  set_choices(data, setup, model);
  setup.data = &data;
  DecodeRun run;
  run.outcome = experiment::run_generation(setup, hooks);
  run.tokens = data.generated();
  run.attention_digest = data.attention_digest();
  return run;
}

/// Attends part by part where the drives of `setup` divide the tokens.
inline DecodeRun decode_on_host(experiment::GenerationSetup setup, const Prompts& prompts,
                                const host::SamplingOptions& sampling, const SmallModel& model = SmallModel::get()) {
  host::DecoderData data(*model.decoder, prompts, setup.plan.workload.output_tokens, setup.plan.mini_batches, sampling,
                         experiment::kv_division(setup));
  set_choices(data, setup, model);
  setup.plan.drives = experiment::kv_division(setup).token_parts();
  setup.plan.span = {.prefill = true, .first_step = 0, .decode_steps = setup.plan.workload.output_tokens - 1};
  const auto planner = setup.system->plan(setup.plan);
  host::run_on_host(*planner, model.checkpoint.config, static_cast<std::uint32_t>(prompts.size()), data);
  return {.tokens = data.generated(), .attention_digest = data.attention_digest(), .outcome = {}};
}

/// The first `tokens` tokens of the held-out text from token `skip` on.
inline std::vector<host::TokenId> text_prompt(std::size_t tokens, std::size_t skip = 0) {
  static const std::vector<host::TokenId> all = [] {
    std::ifstream file(CSDSIM_SOURCE_DIR "/models/opt-6m/sample.txt");
    std::stringstream text;
    text << file.rdbuf();
    return host::open_tokenizer(CSDSIM_SOURCE_DIR "/models/opt-6m").encode(text.str());
  }();
  return {all.begin() + static_cast<std::ptrdiff_t>(skip), all.begin() + static_cast<std::ptrdiff_t>(skip + tokens)};
}

}  // namespace csdsim::test
