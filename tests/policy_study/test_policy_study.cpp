// The figures of mapping policies against the page arithmetic of docs/algorithms.md (SparF).
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "experiment/mapping_policies/policy_study.h"
#include "experiment/mapping_policies/policy_tables.h"
#include "ftl/policies/registry.h"
#include "report/csv.h"

namespace test_policy_study {

using namespace csdsim;
using namespace csdsim::experiment;

namespace {

PolicyVariant variant(const std::string& name, const ftl::KvFtlConfig& kv = {}) {
  const auto make = [name](const FlashGeometry& g) { return ftl::PolicyRegistry::with_builtin().make(name, {g, {}}); };
  return {name, make, kv};
}

/// n = 16, T = 256 (m = 8) with the 16 KV heads of the paper's Figure 8.
PolicyStudyConfig small() {
  PolicyStudyConfig config;
  config.geometry = {8, 2, 2, 16, 32, Bytes::kib(4)};
  config.dram = Bytes::mib(256);
  config.layers = 1;
  config.sequences = 4;
  config.live = 2;
  config.least_tokens = 300;
  config.most_tokens = 700;
  config.attend_every = 64;
  return config;
}

PolicyFigures figures(const std::string& policy, const ftl::KvFtlConfig& kv = {},
                      const PolicyStudyConfig& config = small()) {
  engine::ClusteredSelection selection(0.25, 1);
  return study_policy(config, variant(policy, kv), selection);
}

}  // namespace

TEST_CASE("attends read the pages that the layout says, to the page") {
  const ftl::PolicyRegistry registry = ftl::PolicyRegistry::with_builtin();
  for (const ftl::PolicyEntry& entry : registry.entries()) {
    INFO(entry.name);
    const PolicyFigures f = figures(entry.name);
    REQUIRE(f.attends > 10);
    CHECK(f.score_pages == f.score_bound);
    CHECK(f.attend_pages == f.attend_bound);
    CHECK(f.dense_pages == f.dense_bound);
    CHECK(f.lookups > 0);
    CHECK(f.refused_sequences == 0);
    CHECK(f.write_amplification >= 1);
    CHECK(f.occupancy <= 1);
  }
}

TEST_CASE(
    "reading 16 tokens of one head: 16 times the pages under page-l2p, one page each of K and V under instinfer") {
  // A page holds 16 rows. page-l2p: of one token, 16 heads; instinfer: of 16 tokens, one head.
  const PolicyFigures l2p = figures("page-l2p");
  CHECK(l2p.near_pages == 2 * 16);
  CHECK(l2p.near_amplification == 16);
  CHECK(l2p.scattered_pages == 2 * 16);
  CHECK(l2p.scattered_amplification == 16);

  const PolicyFigures instinfer = figures("instinfer");
  CHECK(instinfer.near_pages == 2);
  CHECK(instinfer.near_amplification == 1);
  CHECK(instinfer.scattered_pages == 2 * 16);  // 2|U|: docs/algorithms.md, Step B
  CHECK(instinfer.scattered_amplification == 16);

  const PolicyFigures paired = figures("paired");  // K and V of 8 tokens per page
  CHECK(paired.near_pages == 2);
  CHECK(paired.scattered_pages == 16);

  // With fewer heads than rows a page of page-l2p holds more tokens.
  PolicyStudyConfig four = small();
  four.kv_heads = 4;
  CHECK(figures("page-l2p", {}, four).near_amplification == 4);
}

TEST_CASE("the channels of an attend: even where a head is striped, one of all with a channel a head") {
  PolicyStudyConfig one = small();
  one.kv_heads = 1;
  CHECK(figures("head-per-channel", {}, one).dense_imbalance == 8);
  CHECK(figures("instinfer", {}, one).dense_imbalance < 1.5);
  CHECK(figures("instinfer").dense_imbalance < 1.05);
  CHECK(figures("head-per-channel", {}, one).dense_latency > figures("instinfer", {}, one).dense_latency);
}

TEST_CASE("tail policies: rewrites, read-backs and DRAM appear where they belong") {
  // T = 1,024: up to 63 K pages per head are scored before a window is full, of which a partial window leaves 15.
  PolicyStudyConfig config = small();
  config.least_tokens = 1100;
  config.most_tokens = 1300;
  const PolicyFigures token_index = figures("instinfer", {ftl::TailPolicy::token_index, {2, false}}, config);
  const PolicyFigures dram = figures("instinfer", {ftl::TailPolicy::dram, {2, false}}, config);
  const PolicyFigures partial = figures("instinfer", {ftl::TailPolicy::partial_program, {2, false}, {}, 3}, config);
  CHECK(token_index.rewritten_pages == 0);
  CHECK(dram.read_back_pages == 0);
  CHECK(token_index.read_back_pages > 0);
  CHECK(partial.rewritten_pages > 0);
  CHECK(dram.tail_peak > token_index.tail_peak);
  CHECK(dram.score_pages < partial.score_pages);
  CHECK(partial.score_pages < token_index.score_pages);
  CHECK(partial.write_amplification > token_index.write_amplification);
  CHECK(partial.occupancy < token_index.occupancy);
}

TEST_CASE("controller DRAM that a tail does not fit into ends sequences early, and is counted") {
  PolicyStudyConfig config = small();
  config.dram = Bytes::mib(1);
  CHECK(figures("instinfer", {ftl::TailPolicy::dram, {2, false}}, config).refused_sequences > 0);
}

TEST_CASE("a study gives the same figures every time, as tables and as a picture") {
  const std::vector<PolicyRow> a{{"instinfer", "token_index", "auto", figures("instinfer")}};
  const std::vector<PolicyRow> b{{"instinfer", "token_index", "auto", figures("instinfer")}};
  CHECK(read_table(a).dump() == read_table(b).dump());
  CHECK(write_table(a).dump() == write_table(b).dump());
  const std::vector<report::Chart> charts = policy_charts(a);
  CHECK(report::chart_page("p", charts) == report::chart_page("p", policy_charts(b)));
  CHECK(charts.size() == 7);
  CHECK(charts[4].names == std::vector<std::string>{"instinfer"});
  CHECK(charts[4].values == std::vector<double>{a[0].figures.write_amplification});
  CHECK(report::csv_rows(tail_table(a)).starts_with("policy,tail,embedding_group,"));
}

}  // namespace test_policy_study
