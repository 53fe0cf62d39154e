// Kernels take in the pieces of a phase.
#include <catch2/catch.hpp>
#include <cstdint>
#include <random>

#include "attention_engine/core/phase_intake.h"

namespace test_phase_intake {

using namespace csdsim::engine;

TEST_CASE("the cycles of a phase are divided evenly over its pieces, in either order of intake") {
  std::mt19937_64 rng(7);
  for (int round = 0; round < 500; ++round) {
    const std::size_t pieces = 1 + rng() % 40;
    const std::uint64_t cycles = rng() % 1000;
    PhaseIntake intake;
    intake.start(pieces, cycles, round % 2 == 0);
    for (std::size_t i = pieces; i-- > 0;) intake.arrive(i);
    CAPTURE(round, pieces, cycles);
    for (std::size_t i = 0; i < pieces; ++i) {
      REQUIRE(intake.ready());
      // Any i pieces take floor(cycles i / pieces) cycles.
      REQUIRE(intake.begin() == cycles * (i + 1) / pieces - cycles * i / pieces);
      REQUIRE(intake.end() == (round % 2 == 0 ? pieces - 1 - i : i));
    }
    REQUIRE(intake.over());
  }
}

}  // namespace test_phase_intake
