// Scores of ranges of tokens through a drive, in every precision and for every list, against the same on the host.
#include <catch2/catch.hpp>
#include <cmath>

#include "base/fp16.h"
#include "contracts/token_score.h"
#include "tests/host_sysc/drive_rig.h"

namespace test_token_scores {

using namespace csdsim;
using namespace csdsim::test;
using host::OpKind;
using host::ScoreWork;

namespace {

constexpr SequenceId kSequence{1};
constexpr std::uint32_t kTokens = 1500;
constexpr std::uint32_t kPageRows = 32;  // tokens of a page of tiny_drive()

csd_model::DriveConfig drive(Bytes mdts) {
  csd_model::DriveConfig drive = tiny_drive();
  drive.nvme.controller.mdts = mdts;
  drive.engine.scoring = {.fp16_lanes = {}, .int8_lanes = 64, .int4_lanes = 128};
  return drive;
}

ScoreWork work(ScorePrecision precision, ScoreAggregate aggregate, std::uint32_t first, std::uint32_t end) {
  return {.heads = kAllHeads, .sequences = {{kSequence, first, end}}, .precision = precision, .aggregate = aggregate};
}
Step score(const ScoreWork& work) { return {OpKind::score_kv, kKv, work}; }

std::vector<float> wide(const std::vector<Half>& values) {
  std::vector<float> floats(values.size());
  halves_to_floats(values, floats);
  return floats;
}

/// What a host computes over its copy of the keys.
std::vector<float> on_host(const ContentData& data, const ScoreWork& work) {
  const std::uint32_t first = work.sequences[0].first, tokens = work.sequences[0].tokens();
  std::vector<float> lists(std::size_t{work.lists(kHeads)} * tokens);
  begin_scores(work.aggregate, lists);
  for (std::uint32_t h = 0; h < kHeads; ++h) {
    const std::vector<float> q = wide(data.queries(kSequence.value, {KvHead{h}, 1}));
    const std::vector<Half> keys = data.content.rows(Content::key, kSequence.value, 0, h, 1, first, tokens);
    std::vector<float> of_queries(kGroup * tokens);
    ScoringQueries(work.precision, q, kGroup).score(keys.data(), tokens, of_queries.data(), tokens);
    const std::span<float> list = std::span(lists).subspan(lists.size() == tokens ? 0 : h * tokens, tokens);
    for (std::uint32_t g = 0; g < kGroup; ++g)
      add_scores(work.aggregate, std::span(of_queries).subspan(g * tokens, tokens), list);
  }
  return lists;
}

/// x in steps of max |x| / largest, and that scale.
std::pair<std::vector<double>, double> cast(const std::vector<float>& x, double largest) {
  float most = 0;
  for (const float v : x) most = std::max(most, std::abs(v));
  const auto scale = static_cast<double>(most / static_cast<float>(largest));
  std::vector<double> steps;
  for (const float v : x) steps.push_back(scale == 0 ? 0 : std::nearbyint(v / static_cast<float>(scale)));
  return {steps, scale};
}

/// The definition, in double precision.
double of_query(const ContentData& data, ScorePrecision precision, std::uint32_t query, std::uint32_t token) {
  const std::uint32_t h = query / kGroup;
  const std::vector<float> heads = wide(data.queries(kSequence.value, {KvHead{h}, 1}));
  const std::vector<float> q(heads.begin() + query % kGroup * kDim, heads.begin() + (query % kGroup + 1) * kDim);
  const std::vector<float> k = wide(data.content.row(Content::key, kSequence.value, 0, h, token));
  double sum = 0;
  if (precision == ScorePrecision::fp16) {
    for (std::size_t i = 0; i < kDim; ++i) sum += double{q[i]} * double{k[i]};
    return sum;
  }
  const auto [qi, sq] = cast(q, 127);
  const auto [ki, sk] = cast(k, precision == ScorePrecision::int8 ? 127 : 7);
  for (std::size_t i = 0; i < kDim; ++i) sum += qi[i] * ki[i];
  return sq * sk * sum;
}

constexpr ScorePrecision kPrecisions[] = {ScorePrecision::fp16, ScorePrecision::int8, ScorePrecision::int4};
constexpr ScoreAggregate kAggregates[] = {ScoreAggregate::sum_raw, ScoreAggregate::max_raw, ScoreAggregate::per_head};

}  // namespace

TEST_CASE(
    "scores of a drive are those of the host, bit for bit, however its commands are cut, wherever its engine is") {
  const Bytes mdts = GENERATE(Bytes::kib(4), Bytes::kib(256));
  const auto granularity =
      GENERATE(nvme::Granularity::layer_mini_batch, nvme::Granularity::sequence, nvme::Granularity::head);
  csd_model::DriveConfig config = drive(mdts);
  if (granularity == nvme::Granularity::sequence) config.peer_reads = csd_model::PeerReadConfig{};
  DriveRig rig(true, config, granularity);
  rig.run({create({kSequence}), append(kSequence, 0, kTokens)});
  for (const ScorePrecision precision : kPrecisions)
    for (const ScoreAggregate aggregate : kAggregates)
      for (const auto& [first, end] : {std::pair{0u, kTokens}, std::pair{37u, 1401u}, std::pair{1499u, kTokens}}) {
        CAPTURE(static_cast<int>(precision), static_cast<int>(aggregate), first, end);
        const ScoreWork w = work(precision, aggregate, first, end);
        rig.data.scores.assign(1, NAN);
        rig.run({score(w)});
        CHECK(rig.data.scores == on_host(rig.data, w));
      }
}

TEST_CASE("scores are those of the definition") {
  DriveRig rig(true, drive(Bytes::kib(256)));
  rig.run({create({kSequence}), append(kSequence, 0, 100)});
  for (const ScorePrecision precision : kPrecisions) {
    CAPTURE(static_cast<int>(precision));
    std::map<ScoreAggregate, std::vector<float>> lists;
    for (const ScoreAggregate aggregate : kAggregates) {
      rig.run({score(work(precision, aggregate, 0, 100))});
      lists[aggregate] = rig.data.scores;
    }
    for (std::uint32_t t = 0; t < 100; ++t) {
      double sum = 0, largest = -INFINITY;
      for (std::uint32_t h = 0; h < kHeads; ++h) {
        double of_head = 0;
        for (std::uint32_t g = 0; g < kGroup; ++g) {
          const double one = of_query(rig.data, precision, h * kGroup + g, t);
          of_head += one;
          largest = std::max(largest, one);
        }
        CHECK(lists[ScoreAggregate::per_head][h * 100 + t] == Approx(of_head).margin(1e-4));
        sum += of_head;
      }
      CHECK(lists[ScoreAggregate::sum_raw][t] == Approx(sum).margin(1e-4));
      CHECK(lists[ScoreAggregate::max_raw][t] == Approx(largest).margin(1e-4));
    }
  }
}

TEST_CASE("a range reads its own pages, and one list crosses the link in place of one per head") {
  DriveRig rig(true, drive(Bytes::kib(256)));
  rig.run({create({kSequence}), append(kSequence, 0, kTokens)});
  const auto pages = [&] { return rig.platform.drive(0).engine_stats()->token_pages_b; };
  for (const ScoreAggregate aggregate : kAggregates)
    for (const auto& [first, end] : {std::pair{0u, 32u}, std::pair{31u, 33u}, std::pair{64u, 640u},
                                     std::pair{5u, 1000u}, std::pair{1472u, kTokens}}) {
      CAPTURE(static_cast<int>(aggregate), first, end);
      const std::uint64_t before = pages(), sent = rig.host_traffic().bytes_to_region;
      const ScoreWork w = work(ScorePrecision::fp16, aggregate, first, end);
      rig.run({score(w)});
      const std::uint32_t last = std::min((end + kPageRows - 1) / kPageRows, kTokens / kPageRows);
      const std::uint32_t expected = last - std::min(first / kPageRows, last);
      CHECK(pages() - before == kHeads * expected);
      // The scores in multiples of 64 bytes, and the completion.
      const std::uint64_t bytes = (std::uint64_t{w.lists(kHeads)} * (end - first) * 4 + 63) / 64 * 64;
      CHECK(rig.host_traffic().bytes_to_region - sent == bytes + sizeof(nvme::CompletionEntry));
    }
}

TEST_CASE("ranges of one head are scored at the same time") {
  constexpr std::uint32_t kRange = kPageRows, kRanges = 5;  // a page per head, on planes of their own
  SimTime together, in_turn;
  for (const bool one_operation : {true, false}) {
    // A command per entry of the operation's sequences.
    DriveRig rig(true, drive(Bytes::kib(4)), nvme::Granularity::sequence);
    rig.run({create({kSequence}), append(kSequence, 0, kTokens)});
    std::vector<Step> steps;
    ScoreWork all = work(ScorePrecision::fp16, ScoreAggregate::sum_raw, 0, 0);
    all.sequences.clear();
    for (std::uint32_t i = 0; i < kRanges; ++i) {
      all.sequences.push_back({kSequence, i * kRange, (i + 1) * kRange});
      steps.push_back(score(work(ScorePrecision::fp16, ScoreAggregate::sum_raw, i * kRange, (i + 1) * kRange)));
    }
    if (one_operation) steps = {score(all)};
    const host::ExecutionReport r = rig.run(steps);
    (one_operation ? together : in_turn) = r.end - r.start;
  }
  CHECK(together * 2 < in_turn);
}

TEST_CASE("a precision that the engine lacks is refused") {
  DriveRig rig(true, tiny_drive());
  rig.run({create({kSequence}), append(kSequence, 0, 40)});
  CHECK_THROWS_WITH(rig.run({score(work(ScorePrecision::int4, ScoreAggregate::sum_raw, 0, 40))}),
                    Catch::Contains("kv_bad_parameters"));
  CHECK_THROWS_WITH(engine::EngineConfig{}.require(ScorePrecision::int4), Catch::Contains("engine.scoring.int4_lanes"));
  CHECK_NOTHROW(drive(Bytes::kib(4)).engine.require(ScorePrecision::int8));
}

}  // namespace test_token_scores
