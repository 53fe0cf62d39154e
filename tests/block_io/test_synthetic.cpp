// Requests of the patterns: where, how large, how many of which kind, when.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"
#include "experiment/block_io/requests/flow_requests.h"

namespace test_synthetic {

using namespace csdsim;
using namespace csdsim::experiment::workload;

namespace {

SyntheticConfig config() {
  SyntheticConfig c;
  c.sizes = {Bytes::kib(4)};
  c.block = Bytes::kib(4);
  c.working_set = Bytes::mib(1);
  return c;
}

}  // namespace

TEST_CASE("random requests lie in the working set, aligned, and reach all of it") {
  SyntheticConfig c = config();
  c.working_set = Bytes::kib(67);  // 16 places of 4 KiB
  SyntheticRequests source(c);
  CHECK(source.footprint() == Bytes::kib(64));
  std::map<std::uint64_t, int> seen;
  for (int i = 0; i < 4000; ++i) ++seen[source.next(0)->offset.value];
  CHECK(seen.size() == 16);
  CHECK(seen.rbegin()->first == 60 * 1024);
  for (const auto& [offset, count] : seen) {
    CHECK(offset % 4096 == 0);
    CHECK(count > 150);
  }
}

TEST_CASE("sequential requests follow one another and wrap; alignment leaves gaps") {
  SyntheticConfig c = config();
  c.placement = Placement::sequential;
  c.working_set = Bytes::kib(16);
  SyntheticRequests source(c);
  for (const std::uint64_t kib : {0, 4, 8, 12, 0, 4}) CHECK(source.next(0)->offset == Bytes::kib(kib));
  c.working_set = Bytes::kib(40);
  c.alignment = Bytes::kib(16);
  SyntheticRequests gaps(c);
  for (const std::uint64_t kib : {0, 16, 32, 0}) CHECK(gaps.next(0)->offset == Bytes::kib(kib));
}

TEST_CASE("random requests of explicit alignment use every multiple at which they fit") {
  SyntheticConfig c = config();
  c.sizes = {Bytes::kib(16)};
  c.alignment = Bytes::kib(4);
  c.working_set = Bytes::kib(32);
  SyntheticRequests source(c);
  std::map<std::uint64_t, int> seen;
  for (int i = 0; i < 500; ++i) ++seen[source.next(0)->offset.value / 1024];
  std::vector<std::uint64_t> places;
  for (const auto& [kib, count] : seen) places.push_back(kib);
  CHECK(places == std::vector<std::uint64_t>{0, 4, 8, 12, 16});
}

TEST_CASE("streams keep to their parts of the working set and to themselves") {
  SyntheticConfig c = config();
  c.placement = Placement::sequential;
  c.working_set = Bytes::kib(50);
  c.streams = 3;
  SyntheticRequests source(c);
  CHECK(source.footprint() == Bytes::kib(48));
  for (const std::uint64_t kib : {0, 4, 8, 12, 0}) CHECK(source.next(0)->offset == Bytes::kib(kib));
  CHECK(source.next(2)->offset == Bytes::kib(32));
  CHECK(source.next(1)->offset == Bytes::kib(16));
  CHECK(source.next(2)->offset == Bytes::kib(36));
}

TEST_CASE("sizes come by their weights, each aligned to itself") {
  SyntheticConfig c = config();
  c.sizes = {Bytes::kib(4), Bytes::kib(64), Bytes::kib(8)};
  c.weights = {6, 3, 0};
  SyntheticRequests source(c);
  std::map<std::uint64_t, int> seen;
  for (int i = 0; i < 9000; ++i) {
    const BlockRequest r = *source.next(0);
    CHECK(r.offset.value % r.length.value == 0);
    CHECK(r.offset + r.length <= c.working_set);
    ++seen[r.length.value >> 10];
  }
  CHECK(seen.size() == 2);
  CHECK(std::abs(seen[4] - 6000) < 150);
}

TEST_CASE("reads, writes and TRIMs come in the shares asked for") {
  SyntheticConfig c = config();
  c.reads = 0.25;
  c.trims = 0.2;
  SyntheticRequests source(c);
  std::array<int, kRequestKinds> seen{};
  for (int i = 0; i < 20'000; ++i) ++seen[static_cast<std::size_t>(source.next(0)->kind)];
  CHECK(std::abs(seen[0] - 4'000) < 200);
  CHECK(std::abs(seen[1] - 12'000) < 250);
  CHECK(std::abs(seen[2] - 4'000) < 200);
}

TEST_CASE("zipf patterns address few places often, scattered over the working set") {
  SyntheticConfig c = config();
  c.placement = Placement::zipf;
  c.zipf_exponent = 1.2;
  SyntheticRequests source(c);
  std::map<std::uint64_t, int> seen;
  for (int i = 0; i < 20'000; ++i) ++seen[source.next(0)->offset.value];
  std::vector<std::pair<int, std::uint64_t>> hot;
  for (const auto& [offset, count] : seen) hot.push_back({count, offset});
  std::ranges::sort(hot, std::greater<>());
  CHECK(hot[0].first > 4'500);  // 1/H(256, 1.2) = 0.26
  CHECK(hot[0].first < 6'000);
  std::vector<std::uint64_t> top;
  for (int i = 0; i < 8; ++i) top.push_back(hot[static_cast<std::size_t>(i)].second);
  CHECK_FALSE(std::ranges::is_sorted(top));
  CHECK(*std::ranges::max_element(top) > c.working_set.value / 2);
}

TEST_CASE("open loops arrive at their rate") {
  SyntheticConfig c = config();
  c.arrivals = Arrivals{.mean = SimTime::microseconds(10), .exponential = false};
  SyntheticRequests fixed(c);
  for (int i = 0; i < 5; ++i) CHECK(fixed.next(0)->at == SimTime::microseconds(10 * i));
  c.arrivals->exponential = true;
  SyntheticRequests poisson(c);
  constexpr int kCount = 100'000;
  SimTime last;
  double squares = 0;
  for (int i = 0; i <= kCount; ++i) {
    const SimTime at = poisson.next(0)->at;
    CHECK(at >= last);
    const double gap = (at - last).seconds() * 1e6;
    squares += gap * gap;
    last = at;
  }
  CHECK(last.seconds() * 1e6 / kCount == Approx(10).epsilon(0.02));
  CHECK(squares / kCount == Approx(200).epsilon(0.05));  // E[x^2] = 2 mean^2
}

TEST_CASE("the same seed makes the same requests, another seed others") {
  SyntheticConfig c = config();
  c.reads = 0.5;
  c.sizes = {Bytes::kib(4), Bytes::kib(8)};
  SyntheticRequests a(c), b(c);
  c.seed = 2;
  SyntheticRequests other(c);
  int equal = 0;
  for (int i = 0; i < 100; ++i) {
    const BlockRequest x = *a.next(0), y = *b.next(0), z = *other.next(0);
    CHECK((x.offset == y.offset && x.length == y.length && x.kind == y.kind));
    equal += x.offset == z.offset && x.length == z.length && x.kind == z.kind;
  }
  CHECK(equal < 20);
}

TEST_CASE("a working set without a place for a request is refused") {
  SyntheticConfig c = config();
  c.sizes = {Bytes::mib(2)};
  CHECK_THROWS_AS(SyntheticRequests(c), UserError);
  c.sizes = {Bytes::kib(256)};
  c.streams = 5;
  CHECK_THROWS_WITH(SyntheticRequests(c), Catch::Contains("holds no request of 262144 B"));
}

TEST_CASE("flows have parts of the working set of their own, aligned to their requests") {
  std::vector<FlowRequests::Flow> flows;
  for (const auto& [size, part] : {std::pair{Bytes::kib(4), Bytes::kib(67)}, {Bytes::kib(16), Bytes::kib(200)}}) {
    SyntheticConfig c = config();
    c.sizes = {size};
    c.working_set = part;
    flows.push_back({c, size});
  }
  FlowRequests source(flows);
  CHECK(source.footprint() == Bytes::kib(64 + 192));
  for (int i = 0; i < 2000; ++i) {
    for (std::uint32_t flow = 0; flow < 2; ++flow) {
      const BlockRequest request = *source.next(flow);
      const Bytes begin = flow == 0 ? Bytes{} : Bytes::kib(64), end = flow == 0 ? Bytes::kib(64) : Bytes::kib(256);
      if (request.stream != flow || request.offset < begin || request.offset + request.length > end ||
          request.offset.value % request.length.value != 0)
        FAIL("a request of flow " << flow << " at " << request.offset.value);
    }
  }
}

TEST_CASE("flows of an open loop are merged in the order of their times") {
  std::vector<FlowRequests::Flow> flows;
  for (const auto& [seed, mean] : {std::pair{1, SimTime::microseconds(10)}, {2, SimTime::microseconds(30)}}) {
    SyntheticConfig c = config();
    c.sizes = {Bytes::kib(4)};
    c.arrivals = {.mean = mean};
    c.seed = static_cast<std::uint64_t>(seed);
    flows.push_back({c, Bytes::kib(4)});
  }
  // The times of each flow are those that it has alone.
  std::vector<SyntheticRequests> alone;
  for (const FlowRequests::Flow& flow : flows) alone.emplace_back(flow.config);
  FlowRequests source(flows);
  SimTime last{};
  std::array<int, 2> count{};
  for (int i = 0; i < 4000; ++i) {
    const BlockRequest request = *source.next(0);
    const BlockRequest own = *alone[request.stream].next(0);
    if (request.at < last || request.at != own.at) FAIL("request " << i << " at " << request.at.ps);
    last = request.at;
    ++count[request.stream];
  }
  CHECK(count[0] == Approx(3000).margin(100));
}

}  // namespace test_synthetic
