// Brings drives and memory to the state in which a group of a sampling plan begins.
#include <algorithm>
#include <variant>

#include "base/error.h"
#include "experiment/generation/generation_program.h"
#include "host_runtime/core/systems/systems.h"
#include "host_runtime/sysc/sparse_reads.h"
#include "nfc/sysc/sim_time.h"

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

/// Whoever says which tokens matter and which neurons fire: data or models.
void GenerationProgram::add_features() {
  if (setup_.data != nullptr) {
    if (setup_.data->features() == nullptr) return;
    features_ = setup_.data->features();
  } else {
    const auto most = std::ranges::max_element(plan_.groups(), {}, &host::SampledGroup::layers);
    modelled_ = host::features_of(*setup_.system, inputs_of(*most), setup_.lost_kv);
    host::ModelledSources sources = setup_.sources;
    if (engine::SelectionSource* const selection = setup_.platform.drive.selection; selection != nullptr)
      sources.rows = host::selected_rows(*selection, platform_.driver(0).block_size());
    for (const auto& feature : modelled_) feature->begin(sources);
  }
  for (const auto& feature : *features_)
    if (host::LostRows* const lost = feature->lost_rows())
      drives_.set_lost_rows(*lost, [this](const host::Operation& op, const std::vector<host::ComputeWork>& work) {
        return gpu_.run_between(op.tag.mini_batch.value % setup_.plan.gpus, work, sim_time_now());
      });
  router_.set_features(*features_);
  meter_.set_features(*features_);
}

/// What the block namespaces hold before the run. Runs that carry data write it; in others the blocks are mapped.
void GenerationProgram::add_blocks() {
  if (setup_.data != nullptr) {
    for (const auto& feature : *features_)
      if (const std::unique_ptr<host::Planner> loading = feature->loading())
        wait_for([&](auto done) { executor_.run(*loading, router_, {}, std::move(done)); });
    return;
  }
  const auto most = std::ranges::max_element(plan_.groups(), {}, &host::SampledGroup::layers);
  for (const host::PlannedBlocks& blocks : setup_.system->plan(inputs_of(*most))->blocks())
    platform_.drive(blocks.drive.value)
        .block_ftl()
        .precondition(platform_.driver(blocks.drive.value).block_size() * blocks.blocks, std::nullopt);
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
  if (group.after_prefill) return;
  const std::vector<std::uint32_t> prompts = setup_.plan.workload.prompts();
  for (const auto& feature : *features_) feature->skip_to(group.first_step, group.layers, prompts);
  if (!format_.in_drives) return;
  for (std::uint32_t i = 0; i < platform_.drives(); ++i)
    for (std::uint32_t s = 0; s < prompts.size(); ++s)
      for (std::uint32_t layer = 0; layer < group.layers; ++layer)
        materialise_kv(i, SequenceId{s}, LayerId{layer},
                       format_.division.tokens(host::DriveIndex{i}, prompts[s], group.first_step_of(layer)));
}

/// K and V of a layer in a drive: what a feature says, or so many tokens of all its heads.
void GenerationProgram::materialise_kv(std::uint32_t drive, SequenceId sequence, LayerId layer, std::uint32_t tokens) {
  std::vector<host::StoredTokens> stored;
  for (const auto& feature : *features_)
    if (stored.empty()) stored = feature->stored(host::DriveIndex{drive}, sequence, layer);
  if (stored.empty()) stored = {{HeadRange{KvHead{0}, format_.division.heads(host::DriveIndex{drive}).count}, tokens}};
  for (const host::StoredTokens& part : stored)
    platform_.drive(drive).materialise(sequence, layer, part.heads, part.tokens);
}

}  // namespace csdsim::experiment
