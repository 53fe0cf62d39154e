// In place of cudnn_plan.cpp: attention of prompts by its definition, from the operands that cuDNN gets.
#include "host_runtime/cuda/cudnn_plan.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/gpu/emulation/streams.h"

namespace {

bool is_installed = false;
std::size_t made_plans = 0;

}  // namespace

namespace emulation {

void install_cudnn(bool installed) {
  is_installed = installed;
  made_plans = 0;
}
std::size_t cudnn_plans() { return made_plans; }

}  // namespace emulation

namespace csdsim::host::cuda {
namespace {

float widened(__half value) { return __half2float(value); }
float widened(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
void attend(const CudnnShape& s, const CudnnOperands& o) {
  const auto at = [](const void* values, std::int64_t i) { return widened(static_cast<const T*>(values)[i]); };
  for (std::int64_t sequence = 0; sequence < s.sequences; ++sequence) {
    const std::int64_t tokens = std::min<std::int64_t>(o.lengths[sequence], s.longest);
    for (std::int64_t i = 0; i < tokens; ++i) {
      for (std::int64_t head = 0; head < s.heads; ++head) {
        const std::int64_t q = o.q_offsets[sequence] + i * s.q_stride + head * s.d;
        const std::int64_t out = o.out_offsets[sequence] + i * s.out_stride + head * s.d;
        const auto kv = [&](std::int64_t token) {
          return o.kv_offsets[sequence] + token * s.kv_stride + head / (s.heads / s.kv_heads) * s.d;
        };
        std::vector<double> weights;
        double top = -INFINITY, total = 0;
        for (std::int64_t token = 0; token <= i; ++token) {
          double score = 0;
          for (std::int64_t e = 0; e < s.d; ++e) score += double{at(o.q, q + e)} * double{at(o.k, kv(token) + e)};
          weights.push_back(score / std::sqrt(static_cast<double>(s.d)));
          top = std::max(top, weights.back());
        }
        for (double& weight : weights) total += weight = std::exp(weight - top);
        for (std::int64_t e = 0; e < s.d; ++e) {
          double sum = 0;
          for (std::int64_t token = 0; token <= i; ++token)
            sum += weights[static_cast<std::size_t>(token)] * double{at(o.v, kv(token) + e)};
          const auto value = static_cast<float>(sum / total);
          if constexpr (std::is_same_v<T, __half>)
            static_cast<T*>(o.out)[out + e] = __float2half_rn(value);
          else
            static_cast<T*>(o.out)[out + e] = __float2bfloat16_rn(value);
        }
      }
    }
  }
}

class EmulatedPlan final : public CudnnPlan {
 public:
  explicit EmulatedPlan(const CudnnShape& shape) : shape_(shape) {}
  std::size_t workspace_bytes() const override { return 1024; }
  void run(const Stream& stream, const CudnnOperands& operands, void* workspace) const override {
    emulation::submit(stream.get(), [shape = shape_, operands, workspace] {
      static_cast<char*>(workspace)[1023] = 0;
      shape.bf16 ? attend<__nv_bfloat16>(shape, operands) : attend<__half>(shape, operands);
    });
  }

 private:
  CudnnShape shape_;
};

}  // namespace

std::unique_ptr<CudnnPlan> plan_with_cudnn(const CudnnShape& shape, const DeviceInfo&) {
  if (!is_installed || shape.d > 128) return nullptr;
  ++made_plans;
  return std::make_unique<EmulatedPlan>(shape);
}

}  // namespace csdsim::host::cuda
