// Random KV commands, right and wrong, many at a time, against what they must answer.
#include <catch2/catch.hpp>

#include <functional>
#include <map>
#include <string_view>

#include "tests/drive/drive_host.h"

namespace test_kv_random {

using namespace csdsim;
using namespace csdsim::test;
using nvme::AttendMethod;
namespace status = nvme::status;

namespace {

/// Any KV commands, some of them wrong, on four queues at a time. Content depends on sequence and token only, so that
/// whatever an attend, score or fetch answers with success can be checked, in whatever order commands took effect.
class RandomKv {
 public:
  RandomKv(DriveHost& host, std::uint64_t seed) : host_(host), rng_(seed) {}

  void run(std::uint32_t commands, std::uint32_t depth) {
    left_ = commands;
    for (std::uint32_t i = 0; i < depth; ++i) next();
    DriveHost::settle();
    REQUIRE(left_ == 0);
    REQUIRE(host_.driver().issued() == host_.driver().completed());
    REQUIRE(host_.drive().controller().commands_inside() == 0);
  }

  std::map<std::string_view, std::uint32_t> statuses;
  std::uint32_t attends = 0, scores = 0, fetches = 0;  ///< that succeeded and were checked
  double worst = 0;
  std::uint64_t wrong = 0;

 private:
  static constexpr std::uint32_t kSequences = 4, kLayers = 2, kHeads = 3;

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(rng_.below(n)); }
  bool rarely() { return below(25) == 0; }
  std::uint32_t tokens(std::uint32_t sequence, std::uint32_t layer, std::uint32_t head) {
    const HeadKey key{SequenceId{sequence}, LayerId{layer}, KvHead{head}};
    return host_.drive().kv_ftl().check(key) == ftl::KvStatus::ok ? host_.drive().kv_ftl().tokens(key) : 0;
  }

  void send(const nvme::SubmissionEntry& entry, nvme::Segment b, std::function<void()> check) {
    const std::span<const nvme::Segment> segments(&b, b.length.value == 0 ? 0 : 1);
    host_.driver().submit(nvme::QueueId{static_cast<std::uint16_t>(1 + below(4))}, entry, segments,
                          [this, check = std::move(check)](const nvme::CompletionEntry& cqe, SimTime) {
                            ++statuses[nvme::status_name(cqe.code())];
                            if (cqe.code().ok() && check) check();
                            next();
                          });
  }

  void next() {
    if (left_ == 0) return;
    --left_;
    const std::uint32_t sequence = below(kSequences) + (rarely() ? 7 : 0);
    const std::uint32_t layer = below(kLayers) + (rarely() ? 2 : 0);
    const std::uint32_t first = below(kHeads);
    const std::uint32_t heads = 1 + below(kHeads - first) + (rarely() ? 1 : 0);
    const std::uint32_t have = tokens(sequence, layer, first);
    const std::uint32_t dice = below(100);
    if (dice < 10) return send(DriveHost::create_entry(sequence, kLayers, kHeads, 16, below(2) & 1), {}, {});
    if (dice < 12) return send(DriveHost::free_entry(sequence), {}, {});
    if (dice < 40) {
      const nvme::KvAppend c =
          DriveHost::append_command(sequence, layer, have + (rarely() ? 1 : 0), 1 + below(70), first, heads);
      const nvme::Segment b = host_.buffer(nvme::append_size(c, 16));
      for (const auto kind : {Content::key, Content::value})
        host_.put(b.address + Bytes{kind == Content::key ? 0 : b.length.value / 2},
                  host_.content.rows(kind, sequence, layer, first, heads, c.first_token.value, c.token_count));
      return send(nvme::encode(kNamespace, c, 16), b, {});
    }
    if (dice < 75) return attend(sequence, layer, first, heads);
    if (dice < 87) return score(sequence, layer, first, heads, have);
    return fetch(sequence, layer, first, heads, have);
  }

  void attend(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t heads) {
    const bool sparf = below(2) == 0;
    const auto descriptor = [&](std::uint32_t s) {
      const std::uint32_t have = tokens(s, layer, first);
      const bool append = have == 0 || below(3) != 0;
      const std::uint32_t token = have - (append ? 0 : 1) + (rarely() ? 1 : 0);
      nvme::AttendDescriptor d =
          heads_of(s, token, static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(heads), append);
      if (sparf) {
        d.r = static_cast<std::uint16_t>(1 + below(rarely() ? 20 : 16));
        d.k = 1 + below(80);
        d.l = below(30);
      }
      return d;
    };
    std::vector<nvme::AttendDescriptor> descriptors{descriptor(sequence)};
    if (below(2) == 0) descriptors.push_back(descriptor(below(kSequences)));
    auto a = host_.prepare_attend(layer, descriptors, sparf ? AttendMethod::sparf : AttendMethod::dense,
                                  static_cast<std::uint8_t>(1 + below(2)));
    const nvme::Segment b = a.sent->buffer;
    send(nvme::encode(kNamespace, a.command), b, [this, a] {
      ++attends;
      // Where two tokens score nearly the same, double precision may choose the other one.
      if (a.command.method == AttendMethod::dense) worst = std::max(worst, host_.error(a));
    });
  }

  void score(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t heads,
             std::uint32_t have) {
    if (have == 0) have = 1;
    const nvme::KvScore c{LayerId{layer}, 1, AttendMethod::dense, 1, 16, heads, heads * have};
    const nvme::ScoreLayout layout = nvme::score_layout(c);
    const nvme::Segment b = host_.buffer(layout.size);
    host_.put(b.address, std::vector{heads_of(sequence, have - 1, static_cast<std::uint16_t>(first),
                                              static_cast<std::uint16_t>(heads))});
    const auto q = host_.content.rows(Content::query, sequence, layer, first, heads, have, 1);
    host_.put(b.address + layout.q, q);
    send(nvme::encode(kNamespace, c), b, [=, this] {
      ++scores;
      const auto found = host_.get<float>(b.address + layout.scores, c.total_scores);
      for (std::uint32_t h = 0; h < heads; ++h)
        for (std::uint32_t token = 0; token < have; ++token) {
          double expected = 0;
          for (std::uint32_t i = 0; i < 16; ++i)
            expected +=
                double{half_to_float(q[h * 16 + i])} *
                double{half_to_float(host_.content.element(Content::key, sequence, layer, first + h, token, i))};
          if (std::abs(expected - double{found[h * have + token]}) > 1e-4) ++wrong;
        }
    });
  }

  void fetch(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first, std::uint32_t heads,
             std::uint32_t have) {
    std::vector<std::uint32_t> wanted(1 + below(9));
    for (std::uint32_t& token : wanted) token = below(have + (rarely() ? 2 : 0) + (have == 0 ? 1 : 0));
    const nvme::KvFetch c{LayerId{layer}, 16, static_cast<std::uint32_t>(wanted.size()),
                          static_cast<std::uint16_t>(heads)};
    const nvme::FetchLayout layout = nvme::fetch_layout(c);
    const nvme::Segment b = host_.buffer(layout.size);
    host_.put(b.address,
              std::vector{heads_of(sequence, 0, static_cast<std::uint16_t>(first), static_cast<std::uint16_t>(heads))});
    host_.put(b.address + layout.tokens, wanted);
    send(nvme::encode(kNamespace, c), b, [=, this] {
      ++fetches;
      for (const auto& [kind, at] : {std::pair{Content::key, layout.k}, std::pair{Content::value, layout.v}}) {
        std::vector<Half> expected;
        for (std::uint32_t h = first; h < first + heads; ++h)
          for (const std::uint32_t token : wanted) {
            const auto row = host_.content.row(kind, sequence, layer, h, token);
            expected.insert(expected.end(), row.begin(), row.end());
          }
        if (host_.get<Half>(b.address + at, expected.size()) != expected) ++wrong;
      }
    });
  }

  DriveHost& host_;
  Rng rng_;
  std::uint32_t left_ = 0;
};

}  // namespace

TEST_CASE("random KV commands, right and wrong, many at a time: every answer is right, and everything comes back") {
  const std::uint64_t seed = GENERATE(range(1, 9));
  INFO("seed " << seed);
  auto config = tiny_drive();
  config.geometry.blocks_per_plane = 24;
  config.kv.tail = seed % 2 == 0 ? ftl::TailPolicy::token_index : ftl::TailPolicy::dram;
  config.dram = Bytes::kib(seed % 4 < 2 ? 24 : 4096);
  config.write_buffer = Bytes::kib(seed % 3 * 8);
  config.lookup_time = SimTime::nanoseconds(static_cast<std::int64_t>(seed % 2) * 300);
  config.fidelity = seed == 8 ? csd_model::Fidelity::at : csd_model::Fidelity::fast;
  DriveHost host(config);
  RandomKv work(host, seed);
  work.run(2500, 12);
  for (const auto& [name, count] : work.statuses) UNSCOPED_INFO(name << ": " << count);
  CHECK(work.wrong == 0);
  CHECK(work.worst < kOutputTolerance);
  CHECK(work.attends > 50);
  CHECK(work.scores > 20);
  CHECK(work.fetches > 20);
  CHECK(work.statuses.size() > 5);
  CHECK((work.statuses.contains("kv_out_of_dram") || seed % 4 >= 2));
  CHECK(host.integrity_errors() == 0);
  CHECK(host.drive().kv_ftl().verify() == 0);
  for (std::uint32_t s = 0; s < 11; ++s) host.run(DriveHost::free_entry(s));
  CHECK(host.drive().dram().used() == Bytes{});
  CHECK(host.drive().kv_ftl().pending_flushes() == 0);
}

}  // namespace test_kv_random
