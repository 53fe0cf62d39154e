// The contents of Tensor and Weight on the CPU.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fp16.h"
#include "host_runtime/core/decoder/backend.h"

namespace csdsim::host {

struct CpuTensor final : Storage {
  std::unique_ptr<float[]> values;
};

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
/// Elements in memory of std::aligned_alloc().
template <class Element>
using AlignedArray = std::unique_ptr<Element[], FreeMemory>;

/// Matrices of 16 bits stay as they are stored, in `half` or `brain`; everything else is in `full`. The other two are
/// null or empty.
struct CpuWeight final : Storage {
  AlignedArray<Half> half;
  AlignedArray<Bf16> brain;
  std::vector<float> full;
};

inline float* data(Tensor& tensor) { return static_cast<CpuTensor&>(*tensor.storage).values.get(); }
inline const float* data(const Tensor& tensor) { return static_cast<const CpuTensor&>(*tensor.storage).values.get(); }
inline const CpuWeight& data(const Weight& weight) { return static_cast<const CpuWeight&>(*weight.storage); }

inline void require(bool shapes_agree, const char* where) {
  if (!shapes_agree) throw InternalError(std::string("cpu backend: shapes do not agree in ") + where);
}

}  // namespace csdsim::host
