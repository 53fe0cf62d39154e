// dense_partial and sparf_partial: the o, m and z of a drive compared with double precision, and the status of
// malformed requests.
#include <catch2/catch.hpp>

#include <set>

#include "tests/drive/victim.h"

namespace test_kv_partial {

using namespace csdsim;
using namespace csdsim::test;
using nvme::AttendMethod;
namespace status = nvme::status;

namespace {

/// m and z of every query head of an attend, in double precision, [descriptor][head_count * G][2].
std::vector<double> expected_softmax(const DriveHost::Attend& a, const Content& content) {
  std::vector<double> out;
  const std::uint32_t layer = a.command.layer.value, group = a.command.group;
  for (const auto& d : a.descriptors)
    for (std::uint32_t h = d.first_head; h < std::uint32_t{d.first_head} + d.head_count; ++h) {
      const auto k = content.matrix(Content::key, d.sequence, layer, h, d.token + 1);
      for (std::uint32_t g = 0; g < group; ++g) {
        const auto q =
            engine::test::matrix(content.row(Content::query, d.sequence, layer, h * group + g, d.token), content.d)[0];
        engine::test::Row logits;
        for (const auto& row : k) logits.push_back(engine::test::dot(q, row) / std::sqrt(double(content.d)));
        const double most = *std::max_element(logits.begin(), logits.end());
        double sum = 0;
        for (const double logit : logits) sum += std::exp(logit - most);
        out.push_back(most);
        out.push_back(sum);
      }
    }
  return out;
}

std::vector<float> softmax_of(DriveHost& host, const DriveHost::Attend& a) {
  return host.get<float>(a.sent->buffer.address + a.layout.softmax,
                         std::size_t{2} * a.command.total_heads * a.command.group);
}

/// Largest error of m, absolute, and of z, relative.
void check_softmax(DriveHost& host, const DriveHost::Attend& a) {
  const std::vector<double> expected = expected_softmax(a, host.content);
  const std::vector<float> got = softmax_of(host, a);
  double most = 0, sum = 0;
  for (std::size_t i = 0; i < expected.size(); i += 2) {
    most = std::max(most, std::abs(got[i] - expected[i]));
    sum = std::max(sum, std::abs(got[i + 1] / expected[i + 1] - 1));
  }
  CAPTURE(most, sum);
  CHECK(most < 1e-5);
  CHECK(sum < 1e-5);
}

}  // namespace

TEST_CASE("dense_partial: m and z of random shapes agree with double precision, and o has the bits of dense") {
  const std::uint64_t seed = Catch::rngSeed() + GENERATE(range(0, 12));
  INFO("seed " << seed);
  Rng rng(seed);
  DriveHost host;
  host.content.seed = seed;
  host.content.d = 16u << rng.below(3);
  const auto group = static_cast<std::uint8_t>(1 + rng.below(5));
  const std::uint32_t heads = 1 + static_cast<std::uint32_t>(rng.below(4));
  const std::uint32_t page_tokens = 512 / host.content.d;
  // One token; just below, at and above a full page: without flushed groups, without a tail, with both.
  const std::vector<std::uint32_t> edges{1, page_tokens - 1, page_tokens, page_tokens + 1, 3 * page_tokens};
  std::vector<nvme::AttendDescriptor> descriptors;
  const std::uint32_t sequences = 1 + static_cast<std::uint32_t>(rng.below(3));
  for (std::uint32_t s = 1; s <= sequences; ++s) {
    const auto tokens =
        static_cast<std::uint32_t>(rng.below(2) == 0 ? edges[rng.below(edges.size())] : 1 + rng.below(8 * page_tokens));
    const bool appends = rng.below(2) == 0;
    REQUIRE(host.create(s, 1, static_cast<std::uint16_t>(heads)) == status::success);
    if (tokens > (appends ? 1u : 0u))
      REQUIRE(host.append(s, 0, 0, tokens - (appends ? 1 : 0), 0, heads) == status::success);
    const auto first = static_cast<std::uint16_t>(rng.below(heads));
    descriptors.push_back(
        heads_of(s, tokens - 1, first, static_cast<std::uint16_t>(1 + rng.below(heads - first)), appends));
  }
  CAPTURE(host.content.d, int{group}, heads, sequences);
  const auto partial = host.attend(0, descriptors, AttendMethod::dense_partial, group);
  REQUIRE(partial.sent->status == status::success);
  CHECK(host.error(partial) < kOutputTolerance);
  check_softmax(host, partial);
  for (auto& d : descriptors) d.flags = 0;
  const auto dense = host.attend(0, descriptors, AttendMethod::dense, group);
  REQUIRE(dense.sent->status == status::success);
  CHECK(host.output(dense) == host.output(partial));
  CHECK(host.integrity_errors() == 0);
}

TEST_CASE("sparf_partial: o has the bits of sparf; with all tokens everything has the bits of dense_partial") {
  const std::uint64_t seed = Catch::rngSeed() + GENERATE(range(0, 6));
  INFO("seed " << seed);
  Rng rng(seed);
  DriveHost host;
  host.content.seed = seed;
  host.content.d = 16u << rng.below(3);
  const auto group = static_cast<std::uint8_t>(1 + rng.below(5));
  const auto heads = static_cast<std::uint32_t>(1 + rng.below(4));
  const auto tokens = static_cast<std::uint32_t>(40 + rng.below(400));
  REQUIRE(host.create(1, 1, static_cast<std::uint16_t>(heads)) == status::success);
  REQUIRE(host.append(1, 0, 0, tokens, 0, heads) == status::success);
  nvme::AttendDescriptor d = heads_of(1, tokens - 1, 0, static_cast<std::uint16_t>(heads));
  const auto dense = host.attend(0, {d}, AttendMethod::dense_partial, group);
  const auto attend = [&](AttendMethod method, std::uint32_t r, std::uint32_t k) {
    d.r = static_cast<std::uint16_t>(r);
    d.k = k;
    d.l = k / 4;
    auto a = host.attend(0, {d}, method, group);
    REQUIRE(a.sent->status == status::success);
    return a;
  };
  CAPTURE(host.content.d, int{group}, heads, tokens);
  const auto all = attend(AttendMethod::sparf_partial, host.content.d, tokens);
  CHECK(host.output(all) == host.output(dense));
  CHECK(softmax_of(host, all) == softmax_of(host, dense));
  const auto some = attend(AttendMethod::sparf_partial, 8, tokens / 4);
  CHECK(host.output(some) == host.output(attend(AttendMethod::sparf, 8, tokens / 4)));
  // With all components the scores are exact, and so is the weight: m is the largest logit, and z that of all tokens.
  const auto exact = attend(AttendMethod::sparf_partial, host.content.d, tokens / 4);
  const std::vector<float> of_all = softmax_of(host, dense), of_some = softmax_of(host, exact);
  if (group > 1) return;  // the heads of a group agree on tokens, which may leave out the largest logit of one
  for (std::size_t i = 0; i < of_all.size(); i += 2) {
    CHECK(of_some[i] == Approx(of_all[i]).margin(1e-5));
    CHECK(of_some[i + 1] == Approx(of_all[i + 1]).epsilon(1e-4));
  }
}

TEST_CASE("dense_partial: m and z add their bytes on the link and no other cost") {
  for (const ftl::DataMode mode : {ftl::DataMode::carried, ftl::DataMode::timing}) {
    csd_model::DriveConfig config = tiny_drive();
    config.data = mode;
    DriveHost host(config);
    REQUIRE(host.create(1, 1, 4) == status::success);
    REQUIRE(host.append(1, 0, 0, 100, 0, 4) == status::success);
    const auto read_back = [&](AttendMethod method) {
      const std::uint64_t before = host.platform.traffic(nvme::RegionKind::host_dram).bytes_to_region;
      const SimTime start = nvme::sim_now();
      const auto a = host.attend(0, {heads_of(1, 99, 0, 4)}, method, 3);
      REQUIRE(a.sent->status == status::success);
      return std::pair(host.platform.traffic(nvme::RegionKind::host_dram).bytes_to_region - before, a.sent->at - start);
    };
    const auto dense = read_back(AttendMethod::dense), partial = read_back(AttendMethod::dense_partial);
    CHECK(partial.first - dense.first == 128);  // 12 query heads x 2 x 4 B, in whole sections of 64 B
    CHECK(partial.second > dense.second);
    CHECK(partial.second - dense.second < SimTime::microseconds(1));
  }
}

TEST_CASE("dense_partial: malformed requests") {
  const nvme::AttendDescriptor good = heads_of(1, kTokens - 1, 0, 4);
  const AttendMethod partial = AttendMethod::dense_partial;
  Victim v;
  const auto check = [&](const char* what, const nvme::SubmissionEntry& entry, nvme::Status expected) {
    CAPTURE(what);
    const nvme::Status status = v.run(entry);
    CAPTURE(nvme::status_name(status));
    CHECK(status == expected);
    v.require_alive();
  };
  nvme::SubmissionEntry short_of_softmax = v.attend_entry({good}, partial);
  short_of_softmax.cdw10 = v.attend_entry({good}).cdw10;
  check("the NDT of dense", short_of_softmax, status::kv_shape_mismatch);
  nvme::SubmissionEntry too_long = v.attend_entry({good});
  too_long.cdw10 = v.attend_entry({good}, partial).cdw10;
  check("dense with the NDT of dense_partial", too_long, status::kv_shape_mismatch);
  nvme::AttendDescriptor sparse = good;
  sparse.r = 4;
  check("with r", v.attend_entry({sparse}, partial), status::kv_bad_parameters);
  sparse = good;
  sparse.k = 4;
  check("with k", v.attend_entry({sparse}, partial), status::kv_bad_parameters);
  check("at an older token", v.attend_entry({heads_of(1, kTokens - 2, 0, 4)}, partial), status::kv_bad_token);
  check("to an unknown sequence", v.attend_entry({heads_of(9, 0, 0, 4)}, partial), status::kv_unknown_sequence);
  check("to an empty head", v.attend_entry({heads_of(1, 0, 0, 4)}, partial, 16, 0), status::kv_bad_token);
  nvme::SubmissionEntry score = v.score_entry(good, 4 * kTokens);
  score.cdw13 |= 2;
  check("a score with the method dense_partial", score, status::kv_bad_parameters);
}

TEST_CASE("dense_partial: after commands and descriptors of random bytes the drive still works") {
  const std::uint64_t seed = Catch::rngSeed() + 77;
  INFO("seed " << seed);
  Rng rng(seed);
  Victim v;
  std::set<std::uint16_t> seen;
  for (int i = 0; i < 300; ++i) {
    nvme::AttendDescriptor d = heads_of(1, kTokens - 1, 0, 4);
    nvme::SubmissionEntry entry = v.attend_entry({d}, AttendMethod::dense_partial);
    const auto bits = static_cast<std::uint32_t>(rng.below(1u << 16));
    switch (rng.below(6)) {
      case 0:
        entry.cdw10 = bits;
        break;
      case 1:
        entry.cdw12 ^= 1u << rng.below(32);
        break;
      case 2:
        entry.cdw13 ^= 1u << rng.below(32);
        break;
      case 3:
        entry.cdw14 ^= 1u << rng.below(32);
        break;
      default:
        reinterpret_cast<std::byte*>(&d)[rng.below(sizeof d)] ^= std::byte{1} << rng.below(8);
        // A valid append would change the sequence.
        if ((d.flags & nvme::attend_flag::append) != 0) d.token |= 1u << 30;
        v.host.put(v.scratch.address, std::vector{d});
    }
    const nvme::Status got = v.run(entry, Bytes::mib(1));
    CAPTURE(i, nvme::status_name(got));
    CHECK(nvme::status_name(got) != "unknown");
    seen.insert(static_cast<std::uint16_t>(static_cast<std::uint16_t>(got.type) << 8 | got.code));
  }
  v.require_alive();
  CHECK(seen.size() >= 5);
}

}  // namespace test_kv_partial
