#include "experiment/memory/check_residents.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "experiment/assemble.h"
#include "experiment/generation/check_drive_use.h"
#include "experiment/memory/memory_remedies.h"

namespace csdsim::experiment {

using scenario::Scenario;

namespace {

/// The sequences of the mini-batches that a GPU computes.
host::BatchLengths lengths_on(std::uint32_t gpu, std::uint32_t gpus, const std::vector<host::Share>& mini_batches,
                              const host::BatchLengths& all) {
  std::vector<std::uint32_t> prompts, outputs;
  std::uint32_t places = 0;
  for (std::size_t mb = gpu; mb < mini_batches.size(); mb += gpus) {
    const host::Share& share = mini_batches[mb];
    places += share.count;
    for (std::uint32_t i = share.first; !all.served() && i < share.first + share.count; ++i) {
      prompts.push_back(all.requests[i].prompt);
      outputs.push_back(all.output_of(i));
    }
  }
  if (all.served()) {  // any request may get any place
    host::BatchLengths part = all;
    part.places = places;
    return part;
  }
  if (all.own_outputs()) return host::BatchLengths::with_outputs(prompts, outputs);
  return {prompts, all.output_tokens};
}

/// "; less with system.weights_on_host: 100 %" for weights in GPU memory that no batch makes fit.
std::string smaller_weights(const Scenario& s, const host::SystemNeeds& needs, host::Place home, Bytes capacity) {
  if (home != host::Place::gpu()) return "";
  for (const host::MemoryRemedy& remedy : memory_remedies(*s.system))
    if (remedy.what == host::TensorClass::weights) return "; less with " + remedy.parameter;
  const bool too_large = std::ranges::any_of(needs.residents, [&](const host::Resident& resident) {
    return resident.home == home && resident.what == "weights" && resident.bytes > capacity;
  });
  return too_large ? "; systems with weights_on_host keep weights in host memory (system.kind)" : "";
}

/// "; a batch of 14 would fit, ...", where a smaller batch helps: less memory is needed for it. Otherwise what the
/// system proposes.
std::string what_would_fit(const Scenario& s, const GenerationWorkload& work, host::Place home, Bytes capacity) {
  const auto fits = [&](std::uint32_t batch) {
    host::BatchLengths lengths = work.lengths();
    if (lengths.served())
      lengths.places = batch;
    else
      lengths = lengths.first(batch);
    return resident_bytes(needs_at(s, work, home, lengths), home) <= capacity;
  };
  // Systems propose weights in files, which are for one GPU and for runs without data.
  const bool other_places = s.platform.gpu.count == 1 && s.simulation.data == ftl::DataMode::timing;
  const host::SystemNeeds needs = needs_at(s, work, home, work.lengths());
  const std::string other = other_places && needs.what_would_fit ? needs.what_would_fit(home, capacity) : "";
  const std::uint32_t least = s.platform.gpu.count;  // a sequence per GPU
  if (work.batch <= least || !fits(least))
    return other.empty() ? smaller_weights(s, needs, home, capacity) : "; system: " + other;
  std::uint32_t fitting = least, beyond = work.batch;
  while (beyond - fitting > 1)
    (fits(std::midpoint(fitting, beyond)) ? fitting : beyond) = std::midpoint(fitting, beyond);
  if (work.requests && !work.served())
    return fmt::format("; the first {} requests would fit (workload.first_requests)", fitting);
  return fmt::format("; a batch of {} would fit if activations and buffers of a step find room beside it", fitting);
}

}  // namespace

Bytes resident_bytes(const host::SystemNeeds& needs, host::Place home) {
  Bytes sum;
  for (const host::Resident& resident : needs.residents)
    if (resident.home == home) sum += resident.bytes;
  return sum;
}

host::SystemNeeds needs_at(const Scenario& s, const GenerationWorkload& work, host::Place home,
                           const host::BatchLengths& lengths) {
  const std::uint32_t gpus = s.platform.gpu.count;
  if (home != host::Place::gpu() || gpus == 1) return s.system->needs(planned_run(s, lengths));
  const std::vector<host::Share> parts = host::even_shares(lengths.batch(), work.mini_batches_of(s, lengths.batch()));
  host::SystemNeeds most;
  for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
    host::SystemNeeds needs = s.system->needs(planned_run(s, lengths_on(gpu, gpus, parts, lengths)));
    if (gpu == 0 || resident_bytes(needs, home) > resident_bytes(most, home)) most = std::move(needs);
  }
  return most;
}

void check_residents(scenario::Checker& c, const GenerationWorkload& work) {
  const Scenario& s = c.scenario();
  const std::uint32_t gpus = s.platform.gpu.count;
  const auto gib = [](Bytes bytes) { return static_cast<double>(bytes.value) / (1 << 30); };
  const auto check = [&](host::Place home, Bytes capacity, std::string_view path) {
    const host::SystemNeeds needs = needs_at(s, work, home, work.lengths());
    if (resident_bytes(needs, home) <= capacity) return;
    std::vector<std::string> parts;
    for (const host::Resident& resident : needs.residents)
      if (resident.home == home) parts.push_back(fmt::format("{} {:.1f} GiB", resident.what, gib(resident.bytes)));
    c.require(false, {path, "model.layers", "workload.batch"},
              fmt::format("{}: {} keeps {} in {}{}, which has {:.1f} GiB{}", path, s.system.kind(), join(parts),
                          host::kPlaceNames[static_cast<std::size_t>(home.kind)],
                          home == host::Place::gpu() && gpus > 1 ? fmt::format(" of one of the {} GPUs", gpus) : "",
                          gib(capacity), what_would_fit(s, work, home, capacity)));
  };
  check(host::Place::gpu(), s.platform.gpu.memory, "platform.gpu.memory");
  // Drives hold equal parts, or the layers in turn: the first drive has most of them.
  const std::uint32_t drives = s.platform.device.count;
  const bool divided = std::ranges::any_of(needs_at(s, work, host::Place::drive_blocks(), work.lengths()).residents,
                                           &host::Resident::divided);
  const std::uint64_t most_layers = (s.model.layers + drives - 1) / drives;
  if (const std::optional<Bytes> exported = exported_capacity_if_any(s))
    check(host::Place::drive_blocks(),
          {divided ? exported->value * drives : exported->value / most_layers * s.model.layers},
          "platform.device.flash.blocks_per_plane");
  check(host::Place::host(), s.platform.host.memory, "platform.host.memory");
  check_file_space(c, work);
}

}  // namespace csdsim::experiment
