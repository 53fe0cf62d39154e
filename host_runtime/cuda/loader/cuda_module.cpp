#include "host_runtime/cuda/loader/cuda_module.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"

namespace csdsim::host {
namespace {

constexpr const char* kFile = "libcsdsim_cuda.so";
constexpr const char* kEntry = "csdsim_cuda_module";

std::filesystem::path module_path() {
  if (const char* set = std::getenv("CSDSIM_CUDA_MODULE"); set != nullptr && *set != '\0') return set;
  std::error_code ignored;
  const std::filesystem::path directory = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& place :
       {directory / kFile, directory.parent_path() / kFile, directory.parent_path() / "lib" / kFile}) {
    if (std::filesystem::exists(place, ignored)) return place;
  }
  throw UserError(fmt::format(
      "this csdsim has no CUDA: {} is not beside the program (build where nvcc is found, or set CSDSIM_CUDA_MODULE); "
      "the cpu backend needs none",
      kFile));
}

std::shared_ptr<CudaModule> open_module() {
  const std::filesystem::path path = module_path();
  // Never closed: CUDA registers its kernels for the lifetime of the process.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) throw UserError(fmt::format("{}: cannot be loaded: {}", path.string(), dlerror()));
  void* const entry = dlsym(handle, kEntry);
  if (entry == nullptr) throw UserError(fmt::format("{}: is not csdsim's CUDA module", path.string()));
  return std::shared_ptr<CudaModule>(reinterpret_cast<CudaModule* (*)()>(entry)());
}

}  // namespace

std::shared_ptr<CudaModule> load_cuda_module() {
  // Never destroyed: at the end of the process CUDA may be gone already.
  static const auto* const module = new std::shared_ptr<CudaModule>(open_module());
  return *module;
}

}  // namespace csdsim::host
