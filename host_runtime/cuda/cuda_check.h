// Errors of CUDA and its libraries as exceptions that name the call and where it stands.
#pragma once

#include <cuda_runtime_api.h>

#include <source_location>
#include <stdexcept>
#include <string>

namespace csdsim::host::cuda {

/// A call into CUDA failed: "cudaMalloc(&p, n): out of memory (cudaErrorMemoryAllocation) at pool.cpp:40".
class CudaError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws CudaError for `what`, the text of a status, at `where`.
[[noreturn]] void fail(const char* call, const std::string& what,
                       std::source_location where = std::source_location::current());

inline void check(cudaError_t status, const char* call, std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // an error that is not sticky must not be reported again by the next call
  fail(call, std::string(cudaGetErrorString(status)) + " (" + cudaGetErrorName(status) + ")", where);
}

/// Call after a kernel launch: throws if the kernel could not be started.
inline void check_launch(const char* kernel, std::source_location where = std::source_location::current()) {
  check(cudaGetLastError(), kernel, where);
}

}  // namespace csdsim::host::cuda

#define CSDSIM_CUDA(call) ::csdsim::host::cuda::check((call), #call)
