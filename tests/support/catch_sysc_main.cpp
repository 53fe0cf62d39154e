#define CATCH_CONFIG_RUNNER
#include <catch2/catch.hpp>
#include <systemc>

int sc_main(int argc, char* argv[]) {
  // One elaboration a context: tests make their own contexts (tests/support/sysc_fixture.h).
  return Catch::Session().run(argc, argv);
}
