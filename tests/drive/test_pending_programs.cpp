// Pending programs that an erase waits for, against a plain list of them.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "base/rng.h"
#include "csd_model/firmware/pending_programs.h"

namespace test_pending_programs {

using namespace csdsim;

namespace {

/// The programs of a word line in the order of their plans, and the blocks that they replace pages of.
struct Line {
  std::vector<std::uint64_t> plans;
  std::set<std::uint32_t> replaced;
};
using Lines = std::map<std::uint64_t, Line>;

std::vector<std::uint64_t> replacing(const Lines& lines, std::uint32_t block, std::uint64_t plan) {
  std::vector<std::uint64_t> found;
  for (const auto& [number, line] : lines)
    if (line.plans.front() < plan && line.replaced.contains(block)) found.push_back(number);
  return found;
}

}  // namespace

TEST_CASE("the word lines that replace pages of a block are those of a plain list") {
  const std::uint64_t seed = GENERATE(1, 2, 3);
  CAPTURE(seed);
  Rng rng(seed);
  csd_model::PendingPrograms pending;
  Lines expected;
  std::size_t found = 0;
  for (std::uint64_t plan = 1; plan < 20'000; ++plan) {
    const std::uint64_t line = rng.below(12);
    const auto block = static_cast<std::uint32_t>(rng.below(6));
    const std::uint64_t what = rng.below(8);
    if (what < 3) {
      pending.expect(line, plan);
      expected[line].plans.push_back(plan);
    } else if (what < 5) {
      pending.note_replaced(line, BlockId{block});
      if (expected.contains(line)) expected[line].replaced.insert(block);
    } else if (expected.contains(line)) {
      CHECK(pending.complete(line).empty());
      std::vector<std::uint64_t>& plans = expected[line].plans;
      plans.erase(plans.begin());
      if (plans.empty()) expected.erase(line);
    }
    const std::uint64_t until = plan - rng.below(10);
    const std::vector<std::uint64_t> lines = pending.replacing(BlockId{block}, until);
    REQUIRE(lines == replacing(expected, block, until));
    found += lines.size();
  }
  CHECK(found > 10'000);
  pending.forget();
  for (std::uint32_t block = 0; block < 6; ++block) CHECK(pending.replacing(BlockId{block}, 20'000).empty());
}

}  // namespace test_pending_programs
