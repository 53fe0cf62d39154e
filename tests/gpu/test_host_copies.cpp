// Rows between GPU and host on streams beside the one that computes. On the emulated GPU also: the same values in every
// order that the events allow, none of the waits can be left out, and copies run beside products.
#include <algorithm>
#include <cstring>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "host_runtime/cuda/host_copies.h"
#include "tests/gpu/device_values.h"
#include "tests/gpu/harness.h"
#ifdef CSDSIM_GPU_TEST_EMULATED
#include "tests/gpu/emulation/streams.h"
#endif

namespace {

using namespace csdsim;
using namespace gpu_test;

constexpr std::size_t kRounds = 14, kUnderway = 6;  // more than there are places for rows on their way in

Floats sent(std::size_t round) {
  Random random(70 + round);
  return rounded(random.values(40 + 900 * (round % 3)), Format::f16);
}

std::vector<Half> as_halves(const Floats& values) {
  std::vector<Half> halves;
  for (const float value : values) halves.push_back(float_to_half(value));
  return halves;
}

/// Sends rows, doubles them on the GPU and fetches them, some downloads behind. Everything is made here, so that
/// streams and events have the same numbers in every run.
std::vector<Floats> doubled() {
  const Stream compute;
  DevicePool pool(compute);
  HostCopies copies(compute);
  std::vector<Floats> results;
  struct Underway {
    DeviceBuffer<__half> rows;
    std::unique_ptr<HostCopies::Arriving> arriving;
  };
  std::deque<Underway> underway;
  const auto fetch = [&] {
    const auto bytes = underway.front().arriving->wait();
    Floats values;
    for (std::size_t i = 0; i < bytes.size(); i += sizeof(Half)) {
      Half half;
      std::memcpy(&half, bytes.data() + i, sizeof half);
      values.push_back(half_to_float(half));
    }
    results.push_back(std::move(values));
    underway.pop_front();
  };
  for (std::size_t round = 0; round < kRounds; ++round) {
    const std::vector<Half> rows = as_halves(sent(round));
    Underway next{DeviceBuffer<__half>(pool, rows.size()), nullptr};
    copies.in(std::as_bytes(std::span(rows)), [&](const std::byte* landed) {
      CSDSIM_CUDA(cudaMemcpyAsync(next.rows.data(), landed, rows.size() * sizeof(Half), cudaMemcpyDeviceToDevice,
                                  compute.get()));
    });
    copies.compute([&] { add<__half>(compute, next.rows.data(), next.rows.data(), rows.size()); });
    next.arriving = copies.start_out(next.rows.data(), rows.size() * sizeof(Half));
    underway.push_back(std::move(next));
    if (underway.size() > kUnderway) fetch();
  }
  while (!underway.empty()) fetch();
  return results;
}

std::vector<Floats> expected() {
  std::vector<Floats> all;
  for (std::size_t round = 0; round < kRounds; ++round) {
    Floats values = sent(round);
    for (float& value : values) value *= 2;
    all.push_back(rounded(values, Format::f16));
  }
  return all;
}

GPU_TEST("rows go to the GPU and come back, in the order in which they were sent") { EXPECT(doubled() == expected()); }

GPU_TEST("tensors go to the GPU and come back, in fp16 and in fp32; downloads may be dropped") {
  const auto test = [](auto&& backend, Format format) {
    const Floats values = rounded(sent(4), format);
    host::Tensor tensor = backend.allocate(4, values.size() / 4);
    backend.upload(as_halves(values), tensor);
    backend.start_download(tensor);  // dropped
    const auto started = backend.start_download(tensor);
    const auto halves = started->wait();
    EXPECT(std::vector<Half>(halves.begin(), halves.end()) == as_halves(rounded(values, Format::f16)));
    backend.add(tensor, tensor);
    Floats found(values.size());
    backend.download(tensor, std::span<float>(found));
    Floats twice = values;
    for (float& value : twice) value *= 2;
    EXPECT(found == rounded(twice, format));
  };
  test(CudaBackend<__half>(context()), Format::f16);
  if (has(Format::bf16)) test(CudaBackend<__nv_bfloat16>(context()), Format::bf16);
}

#ifdef CSDSIM_GPU_TEST_EMULATED
std::vector<Floats> ordered(std::uint64_t seed, std::function<bool(const emulation::Wait&)> left_out = nullptr) {
  context().stream.synchronise();
  emulation::restart(seed);
  emulation::leave_out(std::move(left_out));
  std::vector<Floats> found = doubled();
  emulation::leave_out(nullptr);
  return found;
}

GPU_TEST("the same rows in every order that the events allow, and none of the waits can be left out") {
  constexpr std::uint64_t kSeeds = 24;
  const std::vector<Floats> right = expected();
  std::set<std::uint32_t> streams;
  for (std::uint64_t seed = 1; seed < 8; ++seed) EXPECT(ordered(seed) == right);
  for (const emulation::Wait& wait : emulation::waits()) streams.insert(wait.first);
  EXPECT(streams.size() == 3);  // the one that computes waits for rows, the others for what it does with them
  for (const std::uint32_t stream : streams) {
    std::uint64_t seed = 1;
    while (seed <= kSeeds && ordered(seed, [&](const emulation::Wait& wait) { return wait.first == stream; }) == right)
      ++seed;
    if (seed > kSeeds) report("stream " + std::to_string(stream) + " need not wait", __FILE__, __LINE__);
  }
}

GPU_TEST("a copy runs beside a product, and the times are those of the emulated clock") {
  const Stream compute;
  DevicePool pool(compute);
  Gemm gemm(pool, context().device);
  HostCopies copies(compute);
  const std::uint32_t rows = 16, side = 64;
  const auto x = narrowed<__half>(Floats(rows * side, 1)), w = narrowed<__half>(Floats(side * side, 1));
  const DeviceBuffer<__half> out(pool, rows * side);
  context().stream.synchronise();
  const auto multiply = [&] {
    gemm.multiply<__half, __half>(compute, x.data(), w.data(), rows, side, side, {}, out.data());
  };
  multiply();
  Event before, after;
  before.record(compute);
  const auto arriving = copies.start_out(w.data(), w.size() * sizeof(__half));
  copies.compute(multiply);
  after.record(compute);
  after.synchronise();
  arriving->wait();
  const double product_s = 2e-12 * rows * side * side, copy_s = 1e-9 * side * side * sizeof(__half);
  const host::DeviceTimes times = copies.times();
  const auto near = [](double found, double exact) { return std::abs(found - exact) <= 1e-4 * exact + 1e-12; };
  EXPECT(near(1e-3 * static_cast<double>(after.milliseconds_since(before)), product_s));
  EXPECT(near(times.compute_s, product_s) && near(times.copies_out_s, copy_s) && times.copies_in_s == 0);
  EXPECT(times.bytes_out == side * side * sizeof(__half) && times.bytes_in == 0);
}
#endif

}  // namespace

int main(int argc, char** argv) { return gpu_test::run(argc, argv, true); }
