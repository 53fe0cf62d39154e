// A test runner that needs only a compiler, because tests that run on a bare CUDA machine cannot use Catch2. Exit
// status: 0 all passed, 1 some failed, 77 there is no GPU and nothing ran.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace gpu_test {

inline constexpr int kSkipped = 77;
/// True if kernels run on the CPU, where only small shapes finish in time.
#ifdef CSDSIM_GPU_TEST_EMULATED
inline constexpr bool kEmulated = true;
#else
inline constexpr bool kEmulated = false;
#endif

struct Test {
  std::string name;
  std::function<void()> body;
};
std::vector<Test>& tests();

struct Register {
  Register(std::string name, std::function<void()> body) { tests().push_back({std::move(name), std::move(body)}); }
};

/// Counts a failure of the running test and prints it.
void report(const std::string& message, const char* file, int line);
/// Prints a remark of the running test.
void note(const std::string& message);

/// Runs the tests whose names contain one of the arguments (all without). `needs_gpu`: skip if there is none.
int run(int argc, char** argv, bool needs_gpu);

/// Same seed, same values, on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  /// Nearly normal: the sum of 12 uniform numbers, minus 6, times `scale`.
  float value(float scale = 1) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += uniform();
    return static_cast<float>(sum) * scale;
  }
  std::vector<float> values(std::size_t count, float scale = 1) {
    std::vector<float> result(count);
    for (float& v : result) v = value(scale);
    return result;
  }
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(uniform() * n); }

 private:
  std::mt19937_64 engine_;
};

/// The largest |found - expected| over the largest |expected|.
inline double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
  double worst = 0, largest = 1e-30;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double off = std::abs(double{found.at(i)} - double{expected[i]});
    worst = std::isnan(off) ? INFINITY : std::max(worst, off);
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  return found.size() == expected.size() ? worst / largest : INFINITY;
}

}  // namespace gpu_test

#define GPU_TEST_NAME2(line) gpu_test_##line
#define GPU_TEST_NAME(line) GPU_TEST_NAME2(line)
#define GPU_TEST_REGISTER2(line) register_##line
#define GPU_TEST_REGISTER(line) GPU_TEST_REGISTER2(line)
#define GPU_TEST(name)                                                                        \
  static void GPU_TEST_NAME(__LINE__)();                                                      \
  static const gpu_test::Register GPU_TEST_REGISTER(__LINE__)(name, GPU_TEST_NAME(__LINE__)); \
  static void GPU_TEST_NAME(__LINE__)()

#define EXPECT(condition) \
  if (!(condition)) gpu_test::report(#condition, __FILE__, __LINE__)
/// The relative error of two vectors of floats.
#define EXPECT_WITHIN(found, expected, bound)                                                                 \
  if (const double error_ = gpu_test::relative_error(found, expected); !(error_ <= (bound)))                  \
  gpu_test::report(#found ": relative error " + std::to_string(error_) + " exceeds " + std::to_string(bound), \
                   __FILE__, __LINE__)
