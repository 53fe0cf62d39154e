// The contents of Tensor and Weight on the CPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fp16.h"
#include "host_runtime/core/backend.h"

namespace csdsim::host {

struct CpuTensor final : Storage {
  std::unique_ptr<float[]> values;
};

/// Exactly one of the two is filled: `half` for fp16 matrices, `full` for everything else.
struct CpuWeight final : Storage {
  std::vector<Half> half;
  std::vector<float> full;
};

inline float* data(Tensor& tensor) { return static_cast<CpuTensor&>(*tensor.storage).values.get(); }
inline const float* data(const Tensor& tensor) { return static_cast<const CpuTensor&>(*tensor.storage).values.get(); }
inline const CpuWeight& data(const Weight& weight) { return static_cast<const CpuWeight&>(*weight.storage); }

inline void require(bool shapes_agree, const char* where) {
  if (!shapes_agree) throw InternalError(std::string("cpu backend: shapes do not agree in ") + where);
}

}  // namespace csdsim::host
