#include "host_runtime/cuda/operator_timer.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "host_runtime/cuda/measuring.h"

namespace csdsim::host::cuda {
namespace {

constexpr std::uint32_t kHead = 128, kHeads = 32;

std::uint32_t round_up(double value, std::uint32_t unit) {
  return std::max(1u, static_cast<std::uint32_t>(std::ceil(value / unit))) * unit;
}

}  // namespace

MeasuredSeconds OperatorTimer::product(const ComputeWork& work) {
  // 2 rows n k operations on 2 n k bytes of weights.
  const std::uint32_t kernels = std::max(1u, work.launches);
  const double weights = static_cast<double>(work.weights.value) / kernels;
  const auto rows = static_cast<std::size_t>(
      std::max(1.0, std::round(static_cast<double>(work.flops) / static_cast<double>(work.weights.value))));
  const std::uint32_t side = round_up(std::sqrt(weights / 2), 64);
  const auto w = made_up_values(context_, std::size_t{side} * side * kernels),
             x = made_up_values(context_, rows * side);
  const DeviceBuffer<__half> out(context_.pool, rows * side);
  const double share = weights / (2.0 * side * side);  // the side was rounded up
  return share * operator_seconds(context_, [&] {
           for (std::uint32_t i = 0; i < kernels; ++i) {
             const __half* matrix = w.data() + std::size_t{i} * side * side;
             if (rows <= kGemvRows) {
               gemv<__half, __half>(context_.stream, context_.device, x.data(), matrix, rows, side, side, {},
                                    out.data());
             } else {
               context_.gemm.multiply<__half, __half>(context_.stream, x.data(), matrix, rows, side, side, {},
                                                      out.data());
             }
           }
         });
}

MeasuredSeconds OperatorTimer::prompt_attention(const ComputeWork& work) {
  // 2 n^2 d operations per head, the masked half not counted.
  const double exact = std::sqrt(static_cast<double>(work.flops) / (2.0 * kHead * kHeads));
  const std::uint32_t tokens = round_up(exact, 128);
  const PrefillWork attention(context_, tokens, kHeads, kHead);
  return exact * exact / (1.0 * tokens * tokens) * operator_seconds(context_, [&] { attention.run(); });
}

MeasuredSeconds OperatorTimer::token_attention(const ComputeWork& work) {
  // Keys and values of one sequence: 4 d bytes per token and head.
  const double exact = static_cast<double>(work.bytes().value) / (4.0 * kHead * kHeads);
  const std::uint32_t tokens = round_up(exact, 64);
  const DecodeWork attention(context_, 1, {kHeads, kHeads, kHead, tokens});
  return exact / tokens * operator_seconds(context_, [&] { attention.run(); });
}

MeasuredSeconds OperatorTimer::elementwise(const ComputeWork& work) {
  // An addition reads two values and writes one.
  const std::uint32_t kernels = std::max(1u, work.launches);
  const std::size_t count = std::max<std::size_t>(1, work.bytes().value / 6 / kernels);
  const auto x = made_up_values(context_, count * kernels), y = made_up_values(context_, count * kernels);
  return operator_seconds(context_, [&] {
    for (std::uint32_t i = 0; i < kernels; ++i) {
      add<__half>(context_.stream, x.data() + i * count, y.data() + i * count, count);
    }
  });
}

MeasuredSeconds OperatorTimer::seconds(const ComputeWork& work) {
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
