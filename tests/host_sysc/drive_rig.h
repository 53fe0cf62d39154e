// A platform with small drives, the backends of all resources behind a router, and plans given as lists.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "host_runtime/core/machine/processor_backends.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/sysc/drive_block_backend.h"
#include "host_runtime/sysc/drive_kv_backend.h"
#include "host_runtime/sysc/executor_module.h"
#include "tests/drive/drive_host.h"

namespace csdsim::test {

inline constexpr host::Resource kKv = host::Resource::drive(host::DriveIndex{0});
inline constexpr host::Resource kBlocks = host::Resource::drive_blocks(host::DriveIndex{0});
inline constexpr std::uint32_t kHeads = 2, kGroup = 2, kDim = 16;
inline constexpr HeadRange kAllHeads{KvHead{0}, kHeads};

struct Step {
  host::OpKind kind;
  host::Resource resource;
  host::Work work;
  host::TensorUses tensors = {};
};

/// Operations one after another on layer 0.
class Chain final : public host::Planner {
 public:
  explicit Chain(std::vector<Step> steps) : steps_(std::move(steps)) {}
  bool next_step(host::OperationSink& sink) override {
    if (done_) return false;
    const host::OpTag tag{.layer = LayerId{0}};
    std::vector<host::OperationId> last;
    for (const Step& s : steps_) last = {sink.add(s.kind, s.resource, tag, s.work, last, s.tensors)};
    sink.add(host::OpKind::sample, host::Resource::gpu(), tag, host::ComputeWork{}, last);
    return done_ = true;
  }

 private:
  std::vector<Step> steps_;
  bool done_ = false;
};

/// K, V and q of tests/drive's Content; keeps what arrives.
class ContentData final : public host::OperationData {
 public:
  Content content{.d = kDim};
  std::map<std::uint32_t, std::uint32_t> kv_of = {};  ///< sequence whose K and V another one has, for forks
  std::vector<Half> out;                              ///< [sequence][head * G][d] of the last attend
  std::vector<float> softmax;                         ///< [sequence][head * G][2] of the last partial attend
  std::vector<float> scores;                          ///< [sequence][list][token] of the last score
  std::vector<Half> k, v;                             ///< [head][token][d] of the last fetch
  std::vector<std::vector<std::byte>> blocks;         ///< [extent] written, then read
  std::vector<host::OpKind> performed;
  std::vector<Half> x, bias;  ///< inputs of feed_forward
  std::vector<float> y;       ///< its last result

  void perform(const host::Operation& op) override { performed.push_back(op.kind); }
  void load_append(const host::Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                   HeadRange heads, std::span<Half> keys, std::span<Half> values) override {
    const host::SequenceWork& s = std::get<host::DriveWork>(op.work).sequences[index];
    const auto rows = [&](Content::Kind kind) {
      return content.rows(kind, s.sequence.value, 0, heads.first.value, heads.count, s.first_token.value + first,
                          count);
    };
    std::ranges::copy(rows(Content::key), keys.begin());
    std::ranges::copy(rows(Content::value), values.begin());
  }
  std::vector<Half> queries(std::uint32_t sequence, HeadRange heads) const {
    return content.rows(Content::query, sequence, 0, heads.first.value * kGroup, heads.count * kGroup, 0, 1);
  }
  void load_attend(const host::Operation& op, std::size_t index, HeadRange heads, std::span<Half> q,
                   std::span<Half> keys, std::span<Half> values) override {
    const host::DriveWork& work = std::get<host::DriveWork>(op.work);
    std::ranges::copy(queries(work.sequences[index].sequence.value, heads), q.begin());
    if (!keys.empty()) load_append(op, index, 0, 1, heads, keys, values);
  }
  void store_output(const host::Operation& op, std::size_t index, HeadRange heads,
                    std::span<const Half> result) override {
    out.resize(std::get<host::DriveWork>(op.work).sequences.size() * kHeads * kGroup * kDim);
    std::ranges::copy(result,
                      out.begin() + static_cast<std::ptrdiff_t>((index * kHeads + heads.first.value) * kGroup * kDim));
  }
  void store_partial(const host::Operation& op, std::size_t index, HeadRange heads, std::span<const Half> result,
                     std::span<const float> sums) override {
    store_output(op, index, heads, result);
    softmax.resize(out.size() / kDim * 2);
    std::ranges::copy(sums,
                      softmax.begin() + static_cast<std::ptrdiff_t>((index * kHeads + heads.first.value) * kGroup * 2));
  }
  void load_queries(const host::Operation& op, std::size_t index, HeadRange heads, std::span<Half> q) override {
    std::ranges::copy(queries(std::get<host::ScoreWork>(op.work).sequences[index].sequence.value, heads), q.begin());
  }
  void store_scores(const host::Operation& op, std::size_t index, HeadRange heads, std::uint32_t first,
                    std::span<const float> result) override {
    const auto& work = std::get<host::ScoreWork>(op.work);
    const std::uint32_t all_lists = work.lists(work.heads.count), lists = work.lists(heads.count);
    const std::size_t tokens = work.sequences[index].tokens(), count = result.size() / lists;
    std::size_t at = 0, all = 0;
    for (std::size_t i = 0; i < work.sequences.size(); ++i) {
      if (i == index) at = all;
      all += all_lists * work.sequences[i].tokens();
    }
    scores.resize(all);
    for (std::size_t list = 0; list < lists; ++list) {
      const std::size_t row = all_lists == 1 ? 0 : heads.first.value + list;
      std::ranges::copy(
          result.subspan(list * count, count),
          scores.begin() + static_cast<std::ptrdiff_t>(at + row * tokens + first - work.sequences[index].first));
    }
  }
  void store_rows(const host::Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                  HeadRange heads, std::span<const Half> keys, std::span<const Half> values) override {
    const std::size_t tokens = std::get<host::FetchWork>(op.work).sequences[index].tokens.size();
    k.resize(kHeads * tokens * kDim);
    v.resize(k.size());
    for (std::size_t h = 0; h < heads.count; ++h) {
      const std::size_t to = ((heads.first.value + h) * tokens + first) * kDim;
      std::copy_n(keys.data() + h * count * kDim, count * kDim, k.data() + to);
      std::copy_n(values.data() + h * count * kDim, count * kDim, v.data() + to);
    }
  }
  void load_blocks(const host::Operation&, std::size_t index, std::span<std::byte> bytes) override {
    std::ranges::copy(blocks.at(index), bytes.begin());
  }
  void store_blocks(const host::Operation& op, std::size_t index, std::span<const std::byte> bytes) override {
    blocks.resize(std::get<host::BlockWork>(op.work).extents.size());
    blocks[index].assign(bytes.begin(), bytes.end());
  }
  void load_network_input(const host::Operation&, std::uint32_t first, std::span<Half> inputs,
                          std::span<Half> biases) override {
    std::ranges::copy(x, inputs.begin());
    std::copy_n(bias.begin() + first, biases.size(), biases.begin());
  }
  void store_partial_sum(const host::Operation&, std::span<const float> result) override {
    y.assign(result.begin(), result.end());
  }
};

class DriveRig {
 public:
  SyscFixture context;
  platform::Platform platform;
  host::ExecutorModule executor{"executor"};
  ContentData data;
  host::DriveCommands commands;
  host::DriveKvBackend kv;
  host::DriveBlockBackend blocks;
  host::GpuBackend gpu;
  host::LinkBackend link;
  host::Router router;
  std::string refusal;  ///< what a drive refused

  explicit DriveRig(bool carried = true, const csd_model::DriveConfig& drive = tiny_drive(),
                    nvme::Granularity granularity = nvme::Granularity::layer_mini_batch, std::uint32_t drives = 1)
      : platform({.drive = with_mode(drive, carried),
                  .drives = drives,
                  .host_memory = Bytes::gib(1),
                  .gpu_memory = Bytes::gib(1),
                  .io_overhead = {},
                  .queues = 2,
                  .queue_depth = 64}),
        commands(
            platform, 0,
            [this](host::OperationId id, SimTime at, const host::DriveSplit& split) {
              executor.complete(id, at, split);
            },
            [this](const std::string& message) {
              refusal = message;
              sc_core::sc_stop();
            }),
        kv(commands,
           {.kv_heads = kHeads,
            .group = kGroup,
            .head_dim = kDim,
            .layers = 1,
            .max_tokens = 512,
            .component_major = false,
            .granularity = granularity},
           carried ? &data : nullptr),
        blocks(commands, carried ? &data : nullptr),
        gpu(host::GpuModel(host::GpuConfig{}), carried ? &data : nullptr),
        link({.bandwidth = {1'000'000'000}, .latency = {}}, carried ? &data : nullptr),
        router(carried ? &data : nullptr) {
    router.add(host::ResourceKind::gpu, gpu);
    router.add(host::ResourceKind::host_to_gpu, link);
    router.add(host::ResourceKind::drive_kv, kv);
    router.add(host::ResourceKind::drive_blocks, blocks);
    sc_core::sc_start();
  }

  /// Runs a chain to its end; its report.
  host::ExecutionReport run(std::vector<Step> steps) {
    Chain chain(std::move(steps));
    bool ended = false;
    executor.run(chain, router, {}, [&] { ended = true; });
    while (!ended && refusal.empty() && sc_core::sc_pending_activity()) {
      sc_core::sc_start();
      if (executor.failure()) std::rethrow_exception(executor.failure());
    }
    if (!refusal.empty()) throw UserError(refusal);
    if (!ended) throw std::logic_error("the plan did not end");
    return executor.report();
  }
  nvme::RegionTraffic gpu_traffic() { return platform.traffic(nvme::RegionKind::gpu_memory); }
  nvme::RegionTraffic host_traffic() { return platform.traffic(nvme::RegionKind::host_dram); }

 private:
  static csd_model::DriveConfig with_mode(csd_model::DriveConfig drive, bool carried) {
    drive.data = carried ? ftl::DataMode::carried : ftl::DataMode::timing;
    return drive;
  }
};

inline Step create(std::vector<SequenceId> sequences) {
  return {host::OpKind::create_kv, kKv, host::SequencesWork{.sequences = std::move(sequences)}};
}
inline Step append(SequenceId sequence, std::uint32_t first, std::uint32_t tokens) {
  return {host::OpKind::append_kv, kKv,
          host::DriveWork{.heads = kAllHeads,
                          .sequences = {{.sequence = sequence, .first_token = TokenIndex{first}, .tokens = tokens}}}};
}
/// Over `context` tokens, the newest of which is appended first or not.
inline Step attend(SequenceId sequence, std::uint32_t context, bool appends) {
  const std::uint32_t tokens = appends ? 1 : 0;
  return {host::OpKind::attend, kKv,
          host::DriveWork{
              .heads = kAllHeads,
              .sequences = {{.sequence = sequence, .first_token = TokenIndex{context - tokens}, .tokens = tokens}}}};
}

}  // namespace csdsim::test
