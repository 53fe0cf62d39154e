// KV pages that cannot be read back, in a drive whose bit error rate is raised step by step: what each command reports
// is what the error model says of the pages that it reads.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "nfc/core/reliability.h"
#include "tests/drive/drive_host.h"

namespace test_kv_losses {

using namespace csdsim;
using namespace csdsim::test;
namespace status = nvme::status;

namespace {

constexpr std::uint32_t kSequences = 6, kTokens = 200, kHeads = 2;

/// A page is one codeword, which is lost where more than 72 of 9,200 bits are wrong: 0.0078 is the middle.
nfc::ReliabilityParams errors(double rber) {
  nfc::ReliabilityParams p;
  p.rber.base = rber;
  p.codewords = 1;
  p.max_retries = 0;
  p.pages_per_block = 16;
  p.seed = 11;
  return p;
}

struct Worn : DriveHost {
  explicit Worn(double rber) : DriveHost(config(rber)), model(errors(rber)) {
    for (std::uint32_t s = 0; s < kSequences; ++s) {
      REQUIRE(create(s, 1, kHeads) == status::success);
      REQUIRE(append(s, 0, 0, kTokens, 0, kHeads) == status::success);
    }
  }
  static csd_model::DriveConfig config(double rber) {
    auto c = tiny_drive();
    c.reliability = errors(rber);
    return c;
  }
  /// Lost pages of a sequence, in the order of records.
  std::set<ftl::KvPageId> lost(std::uint32_t sequence, bool embedding) {
    std::set<ftl::KvPageId> pages;
    drive().kv_ftl().visit_pages([&](const ftl::KvPageId& page, PhysicalPageAddress ppa) {
      if (page.key.sequence.value != sequence || (page.kind == ftl::PageKind::embedding) != embedding) return;
      if (model.read(ppa, 0, 0).uncorrectable) pages.insert(page);
    });
    return pages;
  }
  std::uint64_t rows_dropped() { return drive().kv_ftl().stats().rows_dropped; }

  nfc::Reliability model;
};

bool is_zero(const std::vector<Half>& out) {
  return std::ranges::all_of(out, [](Half h) { return h == Half{}; });
}

/// Largest difference from attention in double precision over the tokens that are not in `dropped`. SparF chooses
/// among those that are not in `unscored`; its mean of V is of all tokens.
double error_without(Worn& host, const DriveHost::Attend& a, const std::vector<bool>& unscored,
                     const std::vector<bool>& dropped, std::uint32_t head, std::span<const Half> out) {
  using namespace engine::test;
  const nvme::AttendDescriptor& d = a.descriptors.front();
  const Matrix k = host.content.matrix(Content::key, d.sequence, 0, head, d.token + 1);
  const Matrix v = host.content.matrix(Content::value, d.sequence, 0, head, d.token + 1);
  const Row q = matrix(host.content.row(Content::query, d.sequence, 0, head, d.token), 16).front();
  std::vector<std::uint32_t> scored, kept;
  for (std::uint32_t t = 0; t < k.size(); ++t) {
    if (!unscored[t]) scored.push_back(t);
    if (!dropped[t]) kept.push_back(t);
  }
  Row expected;
  if (a.command.method == nvme::AttendMethod::dense) {
    expected = attend(q, k, v, kept);
  } else {
    Matrix scored_k, scored_v;
    for (const std::uint32_t t : scored) {
      scored_k.push_back(k[t]);
      scored_v.push_back(v[t]);
    }
    const Sparq sparq = engine::test::sparq({q}, scored_k, scored_v, {.r = d.r, .k = d.k, .l = d.l});
    std::vector<std::uint32_t> chosen;
    double all = 0, share = 0;
    for (std::uint32_t i = 0; i < scored.size(); ++i) {
      if (dropped[scored[i]]) continue;
      all += sparq.shat[0][i];
      if (std::ranges::find(sparq.tokens, i) == sparq.tokens.end()) continue;
      chosen.push_back(scored[i]);
      share += sparq.shat[0][i];
    }
    expected = attend(q, k, v, chosen);
    for (std::size_t i = 0; i < 16; ++i) {
      double mean = 0;
      for (const Row& row : v) mean += row[i] / double(v.size());
      expected[i] = share / all * expected[i] + (1 - share / all) * mean;
    }
  }
  double worst = 0;
  for (std::size_t i = 0; i < 16; ++i) worst = std::max(worst, std::abs(expected[i] - half_to_float(out[i])));
  return worst;
}

std::vector<bool> dropped_tokens(Worn& host, std::uint32_t sequence, std::uint32_t head) {
  std::vector<bool> dropped(kTokens);
  for (const ftl::TokenSpan& span : host.drive().kv_ftl().dropped({SequenceId{sequence}, LayerId{0}, KvHead{head}}))
    std::fill(dropped.begin() + span.first, dropped.begin() + span.end, true);
  return dropped;
}

}  // namespace

TEST_CASE("an attend fails exactly when a page that it reads is lost, and names these pages") {
  std::size_t failures = 0, successes = 0;
  for (const double rber : {0.001, 0.0055, 0.006, 0.0065, 0.007, 0.008, 0.02}) {
    CAPTURE(rber);
    Worn host(rber);
    for (std::uint32_t s = 0; s < kSequences; ++s) {
      const auto lost = host.lost(s, false);
      auto a = host.prepare_attend(0, {heads_of(s, kTokens - 1, 0, 1), heads_of(s, kTokens - 1, 1, 1)});
      // Behind two descriptors, which as many records replace, up to the outputs.
      const auto behind = [&] {
        const Bytes records{2 * sizeof(nvme::KvLossRecord)};
        return host.get<std::byte>(a.sent->buffer.address + records, (a.layout.out - records).value);
      };
      const std::vector<std::byte> given = behind();
      host.send_attend(a);
      host.run(a.sent);
      CHECK(behind() == given);
      if (lost.empty()) {
        ++successes;
        CHECK(a.sent->status == status::success);
        CHECK(a.sent->dw0 == 0);
        CHECK(host.error(a) < kOutputTolerance);
        continue;
      }
      ++failures;
      CHECK(a.sent->status == status::unrecovered_read_error);
      CHECK(a.sent->dw0 == lost.size());
      CHECK(is_zero(host.output(a)));
      const auto records = host.get<nvme::KvLossRecord>(a.sent->buffer.address, std::min<std::size_t>(2, lost.size()));
      auto page = lost.begin();
      for (const nvme::KvLossRecord& record : records) {
        CHECK(record.sequence == s);
        CHECK(record.layer == 0);
        CHECK(record.first_head == page->key.head.value);
        CHECK(record.head_count == 1);
        CHECK(record.content == (page->kind == ftl::PageKind::token_v ? 1 : 0));
        CHECK(record.first_token == page->group * 32);
        CHECK(record.tokens == 32);
        ++page;
      }
    }
  }
  CHECK(failures > 5);
  CHECK(successes > 5);
}

TEST_CASE("SparF fails for lost embedding pages, scores and fetches for lost token pages that they read") {
  std::size_t failed = 0, passed = 0;
  for (const double rber : {0.0055, 0.006, 0.0065, 0.007, 0.0075}) {
    Worn host(rber);
    for (std::uint32_t s = 0; s < kSequences; ++s) {
      CAPTURE(rber, s);
      // r = d reads all components; few tokens are attended to.
      const auto sparf =
          host.attend(0, {sparse_heads_of(s, kTokens - 1, 0, kHeads, 16, 60, 8)}, nvme::AttendMethod::sparf);
      if (!host.lost(s, true).empty()) CHECK(sparf.sent->status == status::unrecovered_read_error);
      if (sparf.sent->status == status::success) {
        CHECK(host.error(sparf) < kOutputTolerance);
      } else {
        CHECK(host.lost(s, true).size() + host.lost(s, false).size() >= sparf.sent->dw0);
      }
      // Tokens 32 to 63 of head 0, K and V.
      const auto lost = host.lost(s, false);
      const HeadKey key{SequenceId{s}, LayerId{0}, KvHead{0}};
      const bool k_lost = lost.contains({key, ftl::PageKind::token_k, 1, 0});
      const bool v_lost = lost.contains({key, ftl::PageKind::token_v, 1, 0});
      const nvme::KvFetch fetch{LayerId{0}, 16, 2, 1};
      const nvme::FetchLayout layout = nvme::fetch_layout(fetch);
      const nvme::Segment buffer = host.buffer(layout.size);
      host.put(buffer.address, std::vector{nvme::AttendDescriptor{.sequence = s, .head_count = 1}});
      host.put(buffer.address + layout.tokens, std::vector<std::uint32_t>{40, 199});
      const SentPtr fetched = host.send(nvme::encode(kNamespace, fetch), buffer);
      const bool fails = k_lost || v_lost;
      CHECK(host.run(fetched) == (fails ? status::unrecovered_read_error : status::success));
      CHECK(fetched->dw0 == std::uint32_t{k_lost} + v_lost);
      (fails ? failed : passed) += 1;
      if (fails) CHECK(is_zero(host.get<Half>(buffer.address + layout.k, 32)));

      const nvme::KvScore score{
          .layer = LayerId{0}, .n = 1, .group = 1, .head_dim = 16, .total_heads = 1, .total_scores = 32};
      const nvme::ScoreLayout scores = nvme::score_layout(score);
      const nvme::Segment list = host.buffer(scores.size);
      host.put(list.address,
               std::vector{nvme::AttendDescriptor{.sequence = s, .token = 63, .head_count = 1, .first_token = 32}});
      CHECK(host.run(nvme::encode(kNamespace, score), list) ==
            (k_lost ? status::unrecovered_read_error : status::success));
    }
  }
  CHECK(failed > 1);
  CHECK(passed > 1);
}

TEST_CASE("with drop_lost, attention is that over the tokens that can be read, from then on") {
  std::size_t with_losses = 0, late = 0;
  for (const auto method : {nvme::AttendMethod::dense, nvme::AttendMethod::sparf}) {
    const bool sparf = method == nvme::AttendMethod::sparf;
    for (const double rber : {0.0053, 0.0056, 0.006, 0.0063, 0.0066}) {
      Worn host(rber);
      std::uint64_t rows = 0;
      for (std::uint32_t s = 0; s < kSequences; ++s) {
        CAPTURE(sparf, rber, s);
        // All components are read, so that a lost embedding page always shows.
        auto d = sparf ? sparse_heads_of(s, kTokens - 1, 0, kHeads, 16, 60, 8) : heads_of(s, kTokens - 1, 0, kHeads);
        d.flags = nvme::attend_flag::drop_lost;
        std::vector<std::vector<bool>> unscored(kHeads, std::vector<bool>(kTokens));
        for (const ftl::KvPageId& page : host.lost(s, sparf))
          std::fill_n(
              unscored[page.key.head.value].begin() + std::ptrdiff_t{sparf ? page.window * 64 : page.group * 32},
              sparf ? 64 : 32, true);
        for (int attempt = 0; attempt < 4; ++attempt) {
          const auto a = host.attend(0, {d}, method);
          REQUIRE(a.sent->status == status::success);
          const std::vector<Half> out = host.output(a);
          for (std::uint32_t h = 0; h < kHeads; ++h) {
            const std::vector<bool> dropped = dropped_tokens(host, s, h);
            const auto count = static_cast<std::uint64_t>(std::ranges::count(dropped, true));
            with_losses += count > 0 ? 1 : 0;
            late += dropped != unscored[h] ? 1 : 0;
            if (!sparf) CHECK(dropped == unscored[h]);
            const auto left = static_cast<std::uint64_t>(std::ranges::count(unscored[h], false));
            if (!sparf || left > 60)
              CHECK(error_without(host, a, unscored[h], dropped, h, std::span(out).subspan(h * 16, 16)) <
                    kOutputTolerance);
            // The next attend knows what this one has found.
            unscored[h] = dropped;
            if (attempt == 3) rows += count;
          }
        }
        const auto plain = host.attend(0, {heads_of(s, kTokens - 1, 0, kHeads)});
        CHECK((plain.sent->status == status::success) == (host.lost(s, false).empty() && host.lost(s, sparf).empty()));
      }
      CHECK(host.rows_dropped() == rows);
    }
  }
  CHECK(with_losses > 5);
  CHECK(late > 2);
}

TEST_CASE("descriptors of one command drop lost tokens together or not at all") {
  Worn host(0.001);
  auto dropping = heads_of(1, kTokens - 1, 0, 1);
  dropping.flags = nvme::attend_flag::drop_lost;
  CHECK(host.attend(0, {dropping, heads_of(1, kTokens - 1, 1, 1)}).sent->status == status::invalid_field);
  auto unknown = heads_of(1, kTokens - 1, 0, 1);
  unknown.flags = 1u << 2;
  CHECK(host.attend(0, {unknown}).sent->status == status::invalid_field);
}

TEST_CASE("rows that are written again are right from then on, and nothing else changes") {
  std::size_t lost_pages = 0;
  for (const double rber : {0.0056, 0.006, 0.0064}) {
    Worn host(rber);
    for (std::uint32_t s = 0; s < kSequences; ++s)
      for (const auto method : {nvme::AttendMethod::dense, nvme::AttendMethod::sparf}) {
        CAPTURE(rber, s, static_cast<int>(method));
        const bool sparf = method == nvme::AttendMethod::sparf;
        const auto d =
            sparf ? sparse_heads_of(s, kTokens - 1, 0, kHeads, 16, 60, 8) : heads_of(s, kTokens - 1, 0, kHeads);
        for (int attempt = 0;; ++attempt) {
          REQUIRE(attempt < 40);
          const std::uint64_t before = host.drive().kv_ftl().stats().pages_rewritten;
          const auto a = host.attend(0, {d}, method);
          if (a.sent->status == status::success) {
            CHECK(host.error(a) < kOutputTolerance);
            break;
          }
          REQUIRE(a.sent->status == status::unrecovered_read_error);
          ++lost_pages;
          const auto record = host.get<nvme::KvLossRecord>(a.sent->buffer.address, 1).front();
          const nvme::KvRewrite rewrite{{.sequence = SequenceId{s},
                                         .layer = LayerId{0},
                                         .first_token = TokenIndex{record.first_token},
                                         .token_count = static_cast<std::uint16_t>(record.tokens),
                                         .first_head = KvHead{record.first_head},
                                         .head_count = record.head_count}};
          const nvme::Segment rows = host.buffer(nvme::append_size(rewrite, 16));
          std::vector<Half> k, v;
          for (std::uint32_t t = record.first_token; t < record.first_token + record.tokens; ++t) {
            const auto key = host.content.row(Content::key, s, 0, record.first_head, t);
            const auto value = host.content.row(Content::value, s, 0, record.first_head, t);
            k.insert(k.end(), key.begin(), key.end());
            v.insert(v.end(), value.begin(), value.end());
          }
          k.insert(k.end(), v.begin(), v.end());
          host.put(rows.address, k);
          REQUIRE(host.run(nvme::encode(kNamespace, rewrite, 16), rows) == status::success);
          CHECK(host.drive().kv_ftl().stats().pages_rewritten > before);
        }
        CHECK(host.drive().kv_backing_store().integrity_errors() == 0);
      }
  }
  CHECK(lost_pages > 10);
}

}  // namespace test_kv_losses
