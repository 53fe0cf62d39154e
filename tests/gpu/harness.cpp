#include "tests/gpu/harness.h"

#include <exception>

#include "host_runtime/cuda/device.h"

namespace gpu_test {
namespace {

int failures = 0;

}  // namespace

std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

void report(const std::string& message, const char* file, int line) {
  ++failures;
  std::printf("  %s:%d: %s\n", file, line, message.c_str());
}

void note(const std::string& message) { std::printf("  %s\n", message.c_str()); }

int run(int argc, char** argv, bool needs_gpu) {
  if (needs_gpu) {
    const auto device = csdsim::host::cuda::present_device();
    if (!device) {
      std::printf("skipped: no GPU\n");
      return kSkipped;
    }
    std::printf("%s, compute capability %d, driver %d\n", device->name.c_str(), device->compute_capability,
                device->driver_version);
  }
  int ran = 0, failed = 0;
  for (const Test& test : tests()) {
    bool wanted = argc < 2;
    for (int i = 1; i < argc; ++i) wanted |= test.name.find(argv[i]) != std::string::npos;
    if (!wanted) continue;
    std::printf("%s\n", test.name.c_str());
    std::fflush(stdout);
    const int before = failures;
    try {
      test.body();
    } catch (const std::exception& error) {
      report(std::string("threw: ") + error.what(), test.name.c_str(), 0);
    }
    ++ran;
    failed += failures > before;
  }
  std::printf("%d tests, %d failed\n", ran, failed);
  return failed > 0 || ran == 0 ? 1 : 0;
}

}  // namespace gpu_test
