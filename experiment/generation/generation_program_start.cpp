// What drives and memory hold when a group of a sampling plan begins.
#include <algorithm>
#include <variant>

#include "base/error.h"
#include "experiment/generation/generation_program.h"
#include "host_runtime/core/planner/flash_loading.h"

namespace csdsim::experiment {

void GenerationProgram::measure_gpu_times() const {
  if (!setup_.gpu_times || open_ended()) return;
  const host::GpuModel gpu(setup_.gpu, setup_.gpu_times);
  for (const host::SampledGroup& group : plan_.groups()) {
    const std::unique_ptr<host::Planner> planner = plan_of(group);
    host::OperationSink sink;
    while (planner->next_step(sink))
      for (const host::Operation& op : sink.take())
        if (const auto* const work = std::get_if<host::ComputeWork>(&op.work);
            work != nullptr && op.resource.kind == host::ResourceKind::gpu)
          gpu.time(*work);
  }
}

/// What the block namespaces hold before the run. Runs that carry data write it; in others the blocks are mapped.
void GenerationProgram::add_blocks() {
  const auto most = std::ranges::max_element(plan_.groups(), {}, &host::SampledGroup::layers);
  const host::PlannerInputs inputs = inputs_of(*most);
  const std::optional<host::FlashWeights> weights = setup_.system->flash_weights(inputs);
  if (setup_.data != nullptr) {
    if (!weights) return;
    meter_.set_neurons(setup_.data->flash_neurons());
    host::FlashLoading loading(*weights);
    wait_for([&](auto done) { executor_.run(loading, router_, {}, std::move(done)); });
    return;
  }
  if (weights && weights->predicts()) {
    host::ModelledNeurons& neurons =
        setup_.neurons ? neurons_.emplace(*weights, setup_.neurons()) : neurons_.emplace(*weights, setup_.seed);
    neurons.speculate(inputs.workload.speculation, setup_.seed);
    meter_.set_neurons(neurons.neurons());
  }
  for (const host::PlannedBlocks& blocks : setup_.system->plan(inputs)->blocks())
    platform_.drive(blocks.drive.value)
        .block_ftl()
        .precondition(platform_.driver(blocks.drive.value).block_size() * blocks.blocks, std::nullopt);
}

/// Which tokens are in host memory and in the drive, and who says which of them matter: data or a model.
void GenerationProgram::add_pools() {
  const auto most = std::ranges::max_element(plan_.groups(), {}, &host::SampledGroup::layers);
  const std::optional<host::PooledPlan> plan = setup_.system->pooled_plan(inputs_of(*most));
  if (!plan) return;
  if (setup_.data != nullptr) return meter_.set_pools(setup_.data->pooled_kv());
  if (!setup_.importance) throw InternalError("pools of tokens without data need a model of the important tokens");
  pools_.emplace(*plan, setup_.plan.model, setup_.importance());
  meter_.set_pools(&pools_->pools());
}

/// Which rows of heads the plan brings to the GPU: a model says it where no data do.
void GenerationProgram::add_chosen_rows() {
  const std::optional<host::ChosenRowsPlan> plan = setup_.system->chosen_rows(setup_.plan);
  if (!plan || setup_.data != nullptr) return;
  if (!setup_.importance) throw InternalError("chosen rows without data need a model of the important tokens");
  rows_.emplace(host::ChosenRows(*plan, setup_.plan.model, setup_.plan.workload), setup_.importance());
}

/// The files of the plan lie on the drives one behind the other. Their blocks are mapped from the start, so that a
/// sampled run can read what it has not written.
void GenerationProgram::add_files() {
  if (!files_) return;
  std::vector<std::uint64_t> next(platform_.drives());
  for (std::uint32_t i = 0; i < platform_.drives(); ++i) file_tables_.emplace_back(platform_.driver(i).block_size());
  const std::uint64_t align = std::max<std::uint64_t>(1, setup_.file->io_size.value);
  for (const host::PlannedFile& file : plan_of(plan_.groups().front())->files()) {
    const std::uint32_t drive = file.drive.value;
    const std::uint64_t size = (file.size.value + align - 1) / align * align;
    const std::uint64_t blocks = size / platform_.driver(drive).block_size().value;
    file_tables_[drive].add(file.name, {{next[drive], blocks}});
    next[drive] += blocks;
  }
  if (setup_.data != nullptr) return;
  for (std::uint32_t i = 0; i < platform_.drives(); ++i)
    if (next[i] > 0) platform_.drive(i).block_ftl().precondition(file_tables_[i].block() * next[i], std::nullopt);
}

/// The state that the steps skipped since the last group would have left.
void GenerationProgram::materialise(const host::SampledGroup& group, const host::Planner& planner) {
  if (files_) {
    // The simulated layers get their share of the page cache, such that it finds what it would find with all layers.
    host::SampledGroup all_layers = group;
    all_layers.layers = plan_.model_layers();
    // Where nothing leaves the cache, it does not matter how far apart uses are.
    const bool unscaled = plan_.exact() || page_cache_holds_all(setup_, group.first_step + group.steps());
    const double reuse = unscaled ? 1 : planner.reuse_distance() / plan_of(all_layers)->reuse_distance();
    const double share = double(group.layers) / plan_.model_layers();
    const auto part = [](Bytes of, double by) { return Bytes{static_cast<std::uint64_t>(double(of.value) * by)}; };
    files_->set_page_cache(part(setup_.file->page_cache, reuse * share), part(setup_.file->dirty_limit, share));
    const std::vector<host::PlannedFile> files = planner.files();
    if (!group.after_prefill) files_->drop_others(files);
    for (const host::PlannedFile& file : files)
      for (const host::FileRange& range : file.written) files_->materialise(file.drive.value, file.name, range);
  }
  if (neurons_)
    neurons_->skip_to(group.first_step, group.layers,
                      static_cast<std::uint32_t>(setup_.plan.workload.prompt_tokens.size()));
  if (group.after_prefill || !format_.in_drives) return;
  const auto& prompts = setup_.plan.workload.prompt_tokens;
  if (pools_) pools_->skip_to(group.first_step, group.layers, prompts);
  for (std::uint32_t i = 0; i < platform_.drives(); ++i)
    for (std::uint32_t s = 0; s < prompts.size(); ++s)
      for (std::uint32_t layer = 0; layer < group.layers; ++layer) {
        if (pools_) {
          materialise_log(i, SequenceId{s}, LayerId{layer});
          continue;
        }
        const HeadRange all{KvHead{0}, format_.division.heads(host::DriveIndex{i}).count};
        const std::uint32_t tokens =
            format_.division.tokens(host::DriveIndex{i}, prompts[s], group.first_step_of(layer));
        platform_.drive(i).materialise(SequenceId{s}, LayerId{layer}, all, tokens);
      }
}

/// A drive's part of the logs of pools.
void GenerationProgram::materialise_log(std::uint32_t drive, SequenceId sequence, LayerId layer) {
  const host::PooledKv& pools = pools_->pools();
  const std::uint32_t lists = pools.plan().lists, heads = setup_.plan.model.kv_heads / lists;
  for (std::uint32_t list = 0; list < lists; ++list)
    platform_.drive(drive).materialise(sequence, layer, {KvHead{list * heads}, heads},
                                       pools.logged(pools.pools({sequence, layer, list}).log().size(), drive));
}

}  // namespace csdsim::experiment
