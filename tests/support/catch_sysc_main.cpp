#include <systemc>

int run_catch(int argc, char* argv[]);

int sc_main(int argc, char* argv[]) {
  // One elaboration a context: tests make their own contexts (tests/support/sysc_fixture.h).
  return run_catch(argc, argv);
}
