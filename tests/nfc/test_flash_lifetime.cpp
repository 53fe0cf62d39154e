// The event loop of flash modules ends with the last one, and wrong parameters are refused. No SC_THREAD in this
// program: once one has run, the address sanitizer has lost the bounds of the main stack and reports exceptions on it.
#include <catch2/catch.hpp>

#include "base/error.h"
#include "nfc/sysc/at_flash.h"
#include "nfc/sysc/fast_flash.h"
#include "tests/nfc/random_workload.h"
#include "tests/support/sysc_fixture.h"

namespace csdsim::test {
namespace {

using nfc::AtFlash;
using nfc::FastFlash;

constexpr const char* kLoop = "csdsim_event_loop";

TEST_CASE("the event loop is shared, stands at top level, and is gone with the last drive") {
  SyscFixture context;
  {
    FastFlash one("one", FlashGeometry{}, nfc::FlashTiming{});
    {
      AtFlash two("two", FlashGeometry{}, nfc::FlashTiming{});
      REQUIRE(sc_core::sc_find_object(kLoop) != nullptr);
    }
    REQUIRE(sc_core::sc_find_object(kLoop) != nullptr);
    CHECK(sc_core::sc_find_object(kLoop)->get_parent_object() == nullptr);
  }
  CHECK(sc_core::sc_find_object(kLoop) == nullptr);
}

TEST_CASE("parameters out of range are refused, and the other drives of the context live on") {
  SyscFixture context;
  const Workload w = random_workload(3);
  FastFlash good("good", w.geometry, w.timing);
  FlashGeometry no_channels;
  no_channels.channels = 0;
  nfc::FlashTiming no_bandwidth;
  no_bandwidth.channel_bandwidth = {};
  CHECK_THROWS_AS(FastFlash("bad", no_channels, nfc::FlashTiming{}), UserError);
  CHECK_THROWS_AS(AtFlash("bad", no_channels, nfc::FlashTiming{}), UserError);
  CHECK_THROWS_AS(FastFlash("bad", FlashGeometry{}, no_bandwidth), UserError);
  CHECK_THROWS_AS(AtFlash("bad", FlashGeometry{}, no_bandwidth), UserError);
  RandomInitiator initiator("initiator", w, 1);
  initiator.sockets[0]->bind(good.socket);
  sc_core::sc_start();
  CHECK(initiator.log.size() == w.batches);
}

TEST_CASE("a time resolution other than 1 ps is refused") {
  SyscFixture context;
  sc_core::sc_set_time_resolution(10, sc_core::SC_PS);
  CHECK_THROWS_AS(FastFlash("flash", FlashGeometry{}, nfc::FlashTiming{}), UserError);
}

}  // namespace
}  // namespace csdsim::test
