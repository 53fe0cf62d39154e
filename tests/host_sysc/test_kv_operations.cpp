// KV operations through a drive: scores, fetched rows and attention against the same on the host.
#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"
#include "base/fp16.h"
#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/attention/partial_attention.h"
#include "tests/host_sysc/drive_rig.h"
#include "tests/support/resolver.h"

namespace test_kv_operations {

using namespace csdsim;
using namespace csdsim::test;
using Catch::Matchers::Contains;
using host::OpKind;

namespace {

constexpr SequenceId kSequence{1}, kChild{2};
constexpr std::uint32_t kTokens = 150;  // 4 full groups of 32 and a tail

std::vector<float> wide(const std::vector<Half>& values) {
  std::vector<float> floats(values.size());
  halves_to_floats(values, floats);
  return floats;
}

host::KvView view(std::span<const Half> k, std::span<const Half> v) {
  host::KvView kv;
  kv.tokens = k.size() / kDim;
  kv.head_dim = kDim;
  kv.keys = k;
  kv.values = v;
  return kv;
}

/// Dense attention of one head over K and V of tests/drive's Content, [G][d].
std::vector<float> dense(const ContentData& data, std::uint32_t sequence, std::uint32_t head, std::span<const Half> k,
                         std::span<const Half> v) {
  const std::vector<float> q = wide(data.queries(sequence, {KvHead{head}, 1}));
  std::vector<float> out(q.size());
  host::DenseAttention().attend(q, view(k, v), out, nullptr);
  return out;
}

std::vector<float> dense(const ContentData& data, std::uint32_t sequence, std::uint32_t head, std::uint32_t tokens) {
  const auto k = data.content.rows(Content::key, sequence, 0, head, 1, 0, tokens);
  const auto v = data.content.rows(Content::value, sequence, 0, head, 1, 0, tokens);
  return dense(data, sequence, head, k, v);
}

void check_close(const std::vector<float>& a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i] == Approx(b[i]).margin(2e-3));
}

Step score(std::uint32_t context) {
  return {OpKind::score_kv, kKv, host::ScoreWork{.heads = kAllHeads, .sequences = {{kSequence, 0, context}}}};
}
Step fetch(std::vector<TokenIndex> tokens, host::Place memory = host::Place::gpu()) {
  return {OpKind::fetch_kv, kKv,
          host::FetchWork{.heads = kAllHeads, .sequences = {{kSequence, std::move(tokens)}}, .memory = memory}};
}

/// q . k summed over the group.
float score_of(const ContentData& data, SequenceId sequence, std::uint32_t head, std::uint32_t token) {
  const std::vector<float> q = wide(data.queries(sequence.value, {KvHead{head}, 1}));
  const std::vector<float> k = wide(data.content.row(Content::key, sequence.value, 0, head, token));
  float sum = 0;
  for (std::size_t i = 0; i < q.size(); ++i) sum += q[i] * k[i % kDim];
  return sum;
}

std::vector<TokenIndex> range(std::uint32_t first, std::uint32_t end) {
  std::vector<TokenIndex> tokens;
  for (std::uint32_t t = first; t < end; ++t) tokens.emplace_back(t);
  return tokens;
}

/// Where the next buffers of every size would lie.
std::vector<std::uint64_t> next_buffers(DriveRig& rig) {
  std::vector<std::uint64_t> addresses;
  for (const host::Place memory : {host::Place::gpu(), host::Place::host()})
    for (Bytes size = Bytes::kib(4); size <= Bytes::kib(256); size = size * 2) {
      const host::DriveCommands::Buffer buffer = rig.commands.allocate(memory, size);
      addresses.push_back(buffer.segment.address.value);
      rig.commands.release(buffer);
    }
  return addresses;
}

/// A drive whose largest transfer is `mdts`, so that operations need several commands.
csd_model::DriveConfig with_mdts(Bytes mdts) {
  csd_model::DriveConfig drive = tiny_drive();
  drive.nvme.controller.mdts = mdts;
  return drive;
}

}  // namespace

TEST_CASE("scores of a drive are q . k summed over the group, and the rows it fetches are the best tokens'") {
  const Bytes mdts = GENERATE(Bytes::kib(4), Bytes::kib(256));
  const auto granularity = GENERATE(nvme::Granularity::layer_mini_batch, nvme::Granularity::head);
  DriveRig rig(true, with_mdts(mdts), granularity);
  constexpr std::uint32_t kBest = 90;  // rows of more than 4 KiB
  std::vector<TokenIndex> best;
  // Which tokens are fetched is known when the fetch starts: the best by the sum over the heads.
  const host::RunFeatures features =
      csdsim::host::resolving([&](const host::Operation& op) -> std::optional<host::Work> {
        if (op.kind != OpKind::fetch_kv) return std::nullopt;
        std::vector<float> sum(kTokens);
        for (std::size_t i = 0; i < rig.data.scores.size(); ++i) sum[i % kTokens] += rig.data.scores[i];
        for (const std::uint32_t t : host::top_indices(sum, kBest)) best.emplace_back(t);
        host::FetchWork work = std::get<host::FetchWork>(op.work);
        work.sequences[0].tokens = best;
        return work;
      });
  rig.router.set_features(features);
  rig.run({create({kSequence}), append(kSequence, 0, kTokens), score(kTokens), fetch({})});

  REQUIRE(rig.data.scores.size() == kHeads * kTokens);
  REQUIRE(best.size() == kBest);
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    for (std::uint32_t t = 0; t < kTokens; ++t)
      CHECK(rig.data.scores[h * kTokens + t] == Approx(score_of(rig.data, kSequence, h, t)).margin(1e-3));
    for (std::uint32_t i = 0; i < kBest; ++i) {
      const auto at = static_cast<std::ptrdiff_t>((h * kBest + i) * kDim);
      const auto k = rig.data.content.row(Content::key, kSequence.value, 0, h, best[i].value);
      const auto v = rig.data.content.row(Content::value, kSequence.value, 0, h, best[i].value);
      CHECK(std::equal(k.begin(), k.end(), rig.data.k.begin() + at));
      CHECK(std::equal(v.begin(), v.end(), rig.data.v.begin() + at));
    }
  }
}

TEST_CASE("one command scores several sequences") {
  DriveRig rig;
  const std::array<std::uint32_t, 2> contexts = {40, 25};
  rig.run(
      {create({kSequence, kChild}),
       append(kSequence, 0, contexts[0]),
       append(kChild, 0, contexts[1]),
       {OpKind::score_kv, kKv,
        host::ScoreWork{.heads = kAllHeads, .sequences = {{kSequence, 0, contexts[0]}, {kChild, 0, contexts[1]}}}}});
  std::size_t at = 0;
  for (std::size_t s = 0; s < contexts.size(); ++s)
    for (std::uint32_t h = 0; h < kHeads; ++h)
      for (std::uint32_t t = 0; t < contexts[s]; ++t)
        CHECK(rig.data.scores.at(at++) == Approx(score_of(rig.data, s == 0 ? kSequence : kChild, h, t)).margin(1e-3));
}

TEST_CASE("an operation gives its buffers back") {
  DriveRig rig;
  rig.data.blocks = {std::vector<std::byte>(rig.platform.driver(0).block_size().value)};
  rig.run({create({kSequence})});
  const std::vector<std::uint64_t> before = next_buffers(rig);
  const auto block = [](OpKind kind) -> Step { return {kind, kBlocks, host::BlockWork{.extents = {{0, 1}}}}; };
  for (const Step& step :
       {append(kSequence, 0, kTokens), score(kTokens), fetch({TokenIndex{3}}), attend(kSequence, kTokens, false),
        block(OpKind::write_blocks), block(OpKind::read_blocks)}) {
    rig.run({step});
    CAPTURE(host::operation_name(step.kind, {}));
    CHECK(next_buffers(rig) == before);
  }
}

TEST_CASE("parts of the tokens, fetched and attended to elsewhere, merge to what the drive attends to") {
  DriveRig rig;
  rig.run({create({kSequence}), append(kSequence, 0, kTokens - 1), attend(kSequence, kTokens, true)});
  const std::vector<float> in_drive = wide(rig.data.out);
  const std::array<std::uint32_t, 4> cuts = {0, 17, 100, kTokens};
  std::vector<std::vector<host::PartialAttention>> parts(kHeads);
  for (std::size_t i = 0; i + 1 < cuts.size(); ++i) {
    rig.run({fetch(range(cuts[i], cuts[i + 1]))});
    const std::size_t rows = (cuts[i + 1] - cuts[i]) * kDim;
    for (std::uint32_t h = 0; h < kHeads; ++h)
      parts[h].push_back(host::attend_partially(
          wide(rig.data.queries(kSequence.value, {KvHead{h}, 1})),
          view(std::span(rig.data.k).subspan(h * rows, rows), std::span(rig.data.v).subspan(h * rows, rows))));
  }
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    const auto of_head = std::span(in_drive).subspan(h * kGroup * kDim, kGroup * kDim);
    check_close(host::merge(parts[h]), of_head);
    check_close(dense(rig.data, kSequence.value, h, kTokens), of_head);
    // A part that is left out is missed.
    const auto fewer = host::merge(std::span(parts[h]).first(2));
    float difference = 0;
    for (std::size_t i = 0; i < fewer.size(); ++i) difference = std::max(difference, std::abs(fewer[i] - of_head[i]));
    CHECK(difference > 0.02f);
  }
  CHECK_THROWS_AS(host::merge({}), InternalError);
}

TEST_CASE("a fork has its parent's tokens, grows for itself, and outlives the parent") {
  DriveRig rig;
  const Step fork{OpKind::fork_kv, kKv, host::SequencesWork{.sequences = {kChild}, .parent = kSequence}};
  const Step free{OpKind::free_kv, kKv, host::SequencesWork{.sequences = {kSequence}}};
  rig.run({create({kSequence}), append(kSequence, 0, 70), fork, append(kChild, 70, 40), append(kSequence, 70, 3),
           attend(kSequence, 73, false)});
  const std::vector<float> parent = wide(rig.data.out);
  rig.run({free, attend(kChild, 110, false)});
  const std::vector<float> child = wide(rig.data.out);
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    const std::size_t at = h * kGroup * kDim;
    check_close(dense(rig.data, kSequence.value, h, 73), std::span(parent).subspan(at, kGroup * kDim));
    auto k = rig.data.content.rows(Content::key, kSequence.value, 0, h, 1, 0, 70);
    auto v = rig.data.content.rows(Content::value, kSequence.value, 0, h, 1, 0, 70);
    const auto own_k = rig.data.content.rows(Content::key, kChild.value, 0, h, 1, 70, 40);
    const auto own_v = rig.data.content.rows(Content::value, kChild.value, 0, h, 1, 70, 40);
    k.insert(k.end(), own_k.begin(), own_k.end());
    v.insert(v.end(), own_v.begin(), own_v.end());
    check_close(dense(rig.data, kChild.value, h, k, v), std::span(child).subspan(at, kGroup * kDim));
  }
  CHECK_THROWS_WITH(rig.run({attend(kSequence, 73, false)}), Contains("drive 0") && Contains("attend"));
}

TEST_CASE("buffers lie where the operation says, and carry the bytes of the closed form") {
  DriveRig rig;
  rig.run({create({kSequence}), append(kSequence, 0, kTokens)});
  constexpr std::uint64_t kKvBytes = kHeads * kTokens * kDim * 4;
  CHECK(rig.gpu_traffic().bytes_from_region == kKvBytes);
  const nvme::RegionTraffic before = rig.gpu_traffic();
  rig.run({fetch(range(0, 64))});
  CHECK(rig.gpu_traffic().bytes_to_region - before.bytes_to_region == kHeads * 64 * kDim * 4);
  // A descriptor of 64 bytes with its padding, and the list of tokens.
  CHECK(rig.gpu_traffic().bytes_from_region - before.bytes_from_region == 64 + 64 * 4);
  const nvme::RegionTraffic gpu = rig.gpu_traffic();
  const std::uint64_t host = rig.host_traffic().bytes_to_region;
  rig.run({fetch(range(0, 64), host::Place::host())});
  CHECK(rig.gpu_traffic().bytes_to_region == gpu.bytes_to_region);
  CHECK(rig.host_traffic().bytes_to_region - host >= kHeads * 64 * kDim * 4);
}

TEST_CASE("timing runs take the time of carried ones") {
  std::vector<SimTime> times;
  for (const bool carried : {true, false}) {
    DriveRig rig(carried);
    const host::ExecutionReport r = rig.run({create({kSequence}), append(kSequence, 0, kTokens), score(kTokens),
                                             fetch(range(3, 90)), attend(kSequence, kTokens, false)});
    times.push_back(r.end - r.start);
    for (const OpKind kind : {OpKind::score_kv, OpKind::fetch_kv, OpKind::attend})
      CHECK(r.kind_time[static_cast<std::size_t>(kind)] > SimTime{});
    CHECK(r.steps[0].path.total() == r.end - r.start);
  }
  CHECK(times[0] == times[1]);
}

TEST_CASE("work that a KV namespace does not do is refused") {
  DriveRig rig;
  CHECK_THROWS_WITH(rig.run({{OpKind::finish_layer, kKv, host::ComputeWork{}}}),
                    Contains("is not an operation of the KV namespace"));
}

}  // namespace test_kv_operations
