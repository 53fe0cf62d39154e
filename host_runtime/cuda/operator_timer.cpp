#include "host_runtime/cuda/operator_timer.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {
namespace {

constexpr int kWarmUps = 3, kRuns = 11;
constexpr std::uint32_t kHead = 128, kHeads = 32;

// Memory of zeros: contents do not matter for what is bound by memory, and denormals or NaN must not appear.
template <class T>
DeviceBuffer<T> zeros(Context& context, std::size_t count) {
  DeviceBuffer<T> buffer(context.pool, count);
  CSDSIM_CUDA(cudaMemsetAsync(buffer.data(), 0, count * sizeof(T), context.stream.get()));
  return buffer;
}

// Values of either sign between 2^-3 and 2^-2: products of zeros would let the clocks rise.
DeviceBuffer<__half> values(Context& context, std::size_t count) {
  std::vector<std::uint16_t> pattern(std::min<std::size_t>(count, std::size_t{1} << 16));
  std::uint32_t state = 1;
  for (std::uint16_t& bits : pattern) {
    state = state * 1664525u + 1013904223u;
    bits = static_cast<std::uint16_t>((state >> 16 & 0x8000u) | 0x3000u | (state >> 20 & 0x3FFu));
  }
  DeviceBuffer<__half> buffer(context.pool, count);
  for (std::size_t at = 0; at < count; at += pattern.size()) {
    const std::size_t part = std::min(pattern.size(), count - at);
    CSDSIM_CUDA(cudaMemcpyAsync(buffer.data() + at, pattern.data(), part * sizeof(__half), cudaMemcpyHostToDevice,
                                context.stream.get()));
  }
  context.stream.synchronise();
  return buffer;
}

std::uint32_t round_up(double value, std::uint32_t unit) {
  return std::max(1u, static_cast<std::uint32_t>(std::ceil(value / unit))) * unit;
}

}  // namespace

double OperatorTimer::median(const std::function<void()>& work) {
  const DeviceBuffer<> flushed(context_.pool, 2 * context_.device.l2_bytes + (std::size_t{1} << 20));
  std::vector<double> times;
  Event before, after;
  for (int i = 0; i < kWarmUps + kRuns; ++i) {
    CSDSIM_CUDA(cudaMemsetAsync(flushed.data(), i & 255, flushed.size(), context_.stream.get()));
    before.record(context_.stream);
    work();
    after.record(context_.stream);
    after.synchronise();
    if (i >= kWarmUps) times.push_back(1e-3 * after.milliseconds_since(before));
  }
  std::nth_element(times.begin(), times.begin() + kRuns / 2, times.end());
  return times[kRuns / 2];
}

double OperatorTimer::product(const ComputeWork& work) {
  // 2 rows n k operations on 2 n k bytes of weights.
  const std::uint32_t kernels = std::max(1u, work.launches);
  const double weights = static_cast<double>(work.weights.value) / kernels;
  const auto rows = static_cast<std::size_t>(
      std::max(1.0, std::round(static_cast<double>(work.flops) / static_cast<double>(work.weights.value))));
  const std::uint32_t side = round_up(std::sqrt(weights / 2), 64);
  const auto w = values(context_, std::size_t{side} * side * kernels), x = values(context_, rows * side);
  const DeviceBuffer<__half> out(context_.pool, rows * side);
  const double share = weights / (2.0 * side * side);  // the side was rounded up
  return share * median([&] {
           for (std::uint32_t i = 0; i < kernels; ++i) {
             const __half* matrix = w.data() + std::size_t{i} * side * side;
             if (rows <= kGemvRows) {
               gemv<__half, __half>(context_.stream, context_.device, x.data(), matrix, rows, side, side, {},
                                    out.data());
             } else {
               context_.gemm.multiply(context_.stream, static_cast<const __half*>(x.data()), matrix, rows, side, side,
                                      false, out.data());
             }
           }
         });
}

double OperatorTimer::prompt_attention(const ComputeWork& work) {
  // 2 n^2 d operations a head, the masked half not counted.
  const double exact = std::sqrt(static_cast<double>(work.flops) / (2.0 * kHead * kHeads));
  const std::uint32_t tokens = round_up(exact, 128);
  const std::size_t cols = std::size_t{kHeads} * kHead;
  const auto q = values(context_, tokens * cols), k = values(context_, tokens * cols),
             v = values(context_, tokens * cols);
  const DeviceBuffer<__half> out(context_.pool, tokens * cols);
  const std::vector<std::uint32_t> bounds{0, tokens};
  const DeviceBuffer<std::uint32_t> starts(context_.pool, 2);
  copy_to_device(context_.stream, std::span<const std::uint32_t>(bounds), starts.data());
  context_.stream.synchronise();
  PrefillQuery<__half> query;
  query.q = q.data();
  query.k = k.data();
  query.v = v.data();
  query.out = out.data();
  query.rows = tokens;
  query.q_stride = query.kv_stride = query.out_stride = cols;
  query.starts = starts.data();
  query.sequences = 1;
  query.longest = tokens;
  query.heads = query.kv_heads = kHeads;
  query.d = kHead;
  return exact * exact / (1.0 * tokens * tokens) *
         median([&] { prefill_attention(context_.stream, context_.device, query); });
}

double OperatorTimer::token_attention(const ComputeWork& work) {
  // Keys and values of one sequence: 4 d bytes a token and head.
  const double exact = static_cast<double>(work.bytes().value) / (4.0 * kHead * kHeads);
  const std::uint32_t tokens = round_up(exact, 64);
  const std::size_t cols = std::size_t{kHeads} * kHead;
  const auto q = values(context_, cols), keys = values(context_, tokens * cols), v = values(context_, tokens * cols);
  const DeviceBuffer<__half> out(context_.pool, cols);
  const std::vector<std::uint32_t> length{tokens};
  const DeviceBuffer<std::uint32_t> lengths(context_.pool, 1);
  copy_to_device(context_.stream, std::span<const std::uint32_t>(length), lengths.data());
  context_.stream.synchronise();
  DecodeQuery<__half> query;
  query.q = q.data();
  query.q_stride = query.out_stride = cols;
  query.out = out.data();
  query.sequences = 1;
  query.keys = keys.data();
  query.values = v.data();
  query.lengths = lengths.data();
  return exact / tokens * median([&] {
           decode_attention(context_.stream, context_.pool, context_.device, query, {kHeads, kHeads, kHead, tokens},
                            tokens);
         });
}

double OperatorTimer::elementwise(const ComputeWork& work) {
  // An addition reads two values and writes one.
  const std::uint32_t kernels = std::max(1u, work.launches);
  const std::size_t count = std::max<std::size_t>(1, work.bytes().value / 6 / kernels);
  const auto x = zeros<__half>(context_, count * kernels), y = zeros<__half>(context_, count * kernels);
  return median([&] {
    for (std::uint32_t i = 0; i < kernels; ++i) {
      add<__half>(context_.stream, x.data() + i * count, y.data() + i * count, count);
    }
  });
}

double OperatorTimer::seconds(const ComputeWork& work) {
  switch (work.op) {
    case OperatorClass::gemm:
      return work.weights.value == 0 ? elementwise(work) : product(work);
    case OperatorClass::attention:
      return work.flops > 64 * work.bytes().value ? prompt_attention(work) : token_attention(work);
    case OperatorClass::elementwise:
      return elementwise(work);
  }
  throw InternalError("unknown class of operator");
}

}  // namespace csdsim::host::cuda
