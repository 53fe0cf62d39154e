// Dies whose planes read on their own and program together, in closed form, at t - 1 ps and at t.
#include <catch2/catch.hpp>
#include <vector>

#include "base/error.h"
#include "played.h"

namespace test_independent_reads {

using namespace csdsim;
using namespace csdsim::nfc;

TEST_CASE("planes read on their own, and a program or an erase takes the whole die") {
  FlashTiming t = coarse();
  t.plane_mode = PlaneMode::independent_reads;
  const auto page = [](PageOpKind kind, std::uint32_t plane, std::uint32_t number) {
    return op(kind, plane, OpClass::host, number);
  };
  // Reads of two planes overlap, whatever their pages and times.
  CHECK(play(t, {{read(0), 0_ps}, {page(PageOpKind::read, 1, 3), 1_ps}}).done == Times{180_ps, 250_ps});
  // A read waits for a program or erase of the die, but not for one of another die.
  CHECK(play(t, {{program(0), 0_ps}, {read(1), 1_ps}}).done == Times{1074_ps, 1074_ps + 180_ps});
  CHECK(play(t, {{erase(0), 0_ps}, {read(1), 1_ps}}).done == Times{5010_ps, 5010_ps + 180_ps});
  CHECK(play(t, {{program(0), 0_ps}, {read(2), 1_ps}}).done == Times{1074_ps, 74_ps + 180_ps});
  // A program waits until all planes of the die are empty: plane 0 is at 180.
  CHECK(play(t, {{read(0), 0_ps}, {program(1), 1_ps}}).done == Times{180_ps, 180_ps + 1074_ps});
  CHECK(play(t, {{read(0), 0_ps}, {program(1), 179_ps}}).done == Times{180_ps, 180_ps + 1074_ps});
  CHECK(play(t, {{read(0), 0_ps}, {program(1), 181_ps}}).done == Times{180_ps, 181_ps + 1074_ps});
  // A failed read keeps its plane.
  CHECK(play(t, {{read_again(0, 1), 0_ps}, {program(1), 1_ps}}).done == Times{360_ps, 360_ps + 1074_ps});
  // Programs of one page number join, if they ask at the same time, and erases of any blocks.
  const Played joined = play(t, {{program(0), 0_ps}, {program(1), 0_ps}});
  CHECK(joined.done == Times{148_ps + 1000_ps, 148_ps + 1000_ps});
  CHECK(joined.statistics.joined_ops == 1);
  CHECK(play(t, {{program(0), 0_ps}, {program(1), 1_ps}}).done == Times{1074_ps, 2148_ps});
  CHECK(play(t, {{program(0), 0_ps}, {page(PageOpKind::program, 1, 1), 0_ps}}).done == Times{1074_ps, 2148_ps});
  CHECK(play(t, {{erase(0), 0_ps}, {page(PageOpKind::erase, 1, 3), 0_ps}}).done == Times{5020_ps, 5020_ps});
}

TEST_CASE("operations of a die whose planes read on their own go by their order") {
  FlashTiming t = coarse();
  t.plane_mode = PlaneMode::independent_reads;
  // A read that comes after a program of another plane waits for it.
  CHECK(play(t, {{read(0), 0_ps}, {program(1), 1_ps}, {read(0), 2_ps}}).done ==
        Times{180_ps, 180_ps + 1074_ps, 1254_ps + 180_ps});
  // One that comes before does not, and the program waits for both.
  CHECK(play(t, {{read(0), 0_ps}, {read(0), 1_ps}, {program(1), 2_ps}}).done ==
        Times{180_ps, 360_ps, 360_ps + 1074_ps});
  t.plane_order = PlaneOrder::reads_first;
  CHECK(play(t, {{read(0), 0_ps}, {program(1), 1_ps}, {read(0), 180_ps}}).done ==
        Times{180_ps, 360_ps + 1074_ps, 360_ps});
  CHECK(play(t, {{read(0), 0_ps}, {program(1), 1_ps}, {read(0), 181_ps}}).done ==
        Times{180_ps, 180_ps + 1074_ps, 1254_ps + 180_ps});
  t.plane_order = PlaneOrder::arrival;
  t.class_priority = {OpClass::host};
  CHECK(play(t, {{read(0), 0_ps}, {program(1, OpClass::gc), 1_ps}, {read(0), 2_ps}}).done ==
        Times{180_ps, 360_ps + 1074_ps, 360_ps});
  CHECK(play(t, {{read(0), 0_ps}, {read(0, OpClass::gc), 1_ps}, {program(1), 2_ps}}).done ==
        Times{180_ps, 1254_ps + 180_ps, 180_ps + 1074_ps});
}

TEST_CASE("a read that an urgent one lets through asks for the bus at that time") {
  FlashTiming t = coarse();
  t.plane_mode = PlaneMode::independent_reads;
  t.class_priority = {OpClass::host};
  FlashGeometry geometry = small();
  geometry.planes_per_die = 3;
  // The program waits for plane 2, and the read of plane 1 for the program, until plane 0 offers a read in its place.
  // Plane 2 has the bus from 110 to 180 ps; then the urgent read gets it, and the program holds the other one back.
  const Played played =
      play(t, {{read(2), 0_ps}, {program(0, OpClass::gc), 1_ps}, {read(1, OpClass::gc), 2_ps}, {read(0), 120_ps}},
           FlashTimeline::Rules::general, geometry);
  CHECK(played.done == Times{180_ps, 360_ps + 1074_ps, 1434_ps + 180_ps, 360_ps});
  CHECK(played.stages[2][at(FlashStage::bus_wait)] == 60_ps);
}

TEST_CASE("reads of all planes of a die share a suspension, and the die resumes when none is left") {
  FlashTiming t = coarse();
  t.plane_mode = PlaneMode::independent_reads;
  t.suspend = SuspendConfig{.latency = 20_ps, .resume_latency = 5_ps};
  // The array runs from 74 to 1074. The suspend is over at 510, with 564 left; at 530 the die takes reads.
  CHECK(play(t, {{program(0), 0_ps}, {read(1), 500_ps}}).done == Times{710_ps + 15_ps + 564_ps, 710_ps});
  const Played both = play(t, {{program(0), 0_ps}, {read(1), 500_ps}, {read(0), 501_ps}});
  CHECK(both.done == Times{780_ps + 15_ps + 564_ps, 710_ps, 780_ps});
  CHECK(both.statistics.suspends == 1);
  // A read that comes while another plane reads is taken, too, once the bus is free at 710. At 711 the resume has been
  // sent.
  CHECK(play(t, {{program(0), 0_ps}, {read(1), 500_ps}, {read(0), 709_ps}}).done ==
        Times{890_ps + 15_ps + 564_ps, 710_ps, 890_ps});
  CHECK(play(t, {{program(0), 0_ps}, {read(1), 500_ps}, {read(0), 710_ps}}).done ==
        Times{890_ps + 15_ps + 564_ps, 710_ps, 890_ps});
  CHECK(play(t, {{program(0), 0_ps}, {read(1), 500_ps}, {read(0), 711_ps}}).done ==
        Times{1289_ps, 710_ps, 1289_ps + 180_ps});
  // The order among planes does not count meanwhile: the program of plane 1 came before the read of plane 0.
  CHECK(play(t, {{program(0), 0_ps}, {program(1), 400_ps}, {read(0), 500_ps}}).done ==
        Times{1289_ps, 1289_ps + 1074_ps, 710_ps});
}

TEST_CASE("planes do not read while the data of the next program comes in") {
  FlashTiming t = coarse();
  t.plane_mode = PlaneMode::independent_reads;
  t.cache = CacheConfig{.read = false, .busy_time = 3_ps};
  // The array is idle from 1074 on, the data of the second program is in at 1124.
  CHECK(play(t, {{program(0), 0_ps}, {program(0), 1050_ps}, {read(1), 1060_ps}}).done ==
        Times{1074_ps, 2127_ps, 2127_ps + 180_ps});
}

}  // namespace test_independent_reads
