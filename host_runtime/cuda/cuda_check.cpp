#include "host_runtime/cuda/cuda_check.h"

#include <string_view>

namespace csdsim::host::cuda {

void fail(const char* call, const std::string& what, std::source_location where) {
  std::string_view file = where.file_name();
  file = file.substr(file.find_last_of('/') + 1);
  throw CudaError(std::string(call) + ": " + what + " at " + std::string(file) + ":" + std::to_string(where.line()));
}

}  // namespace csdsim::host::cuda
