#include "launch/ranks.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"

namespace csdsim::launch {
namespace {

constexpr const char* kFile = "libcsdsim_mpi.so";
constexpr const char* kEntry = "csdsim_mpi_ranks";

/// By what Open MPI, other implementations (PMI) and srun put into the environment.
bool started_with_others() {
  for (const char* const name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"})
    if (const char* const size = std::getenv(name); size != nullptr && std::atol(size) > 1) return true;
  return false;
}

std::filesystem::path module_path() {
  std::error_code ignored;
  const std::filesystem::path directory = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& place : {directory / kFile, directory.parent_path() / "lib" / kFile})
    if (std::filesystem::exists(place, ignored)) return place;
  throw UserError(
      fmt::format("this csdsim has no MPI: {} is not beside the program (build where libboost-mpi-dev is "
                  "installed); --shard I/N runs parts of a sweep without it",
                  kFile));
}

}  // namespace

std::unique_ptr<Ranks> ranks_of_this_process() {
  if (!started_with_others()) return nullptr;
  const std::filesystem::path path = module_path();
  // Never closed, and global: MPI loads plugins that need its symbols.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (handle == nullptr) throw UserError(fmt::format("{}: cannot be loaded: {}", path.string(), dlerror()));
  void* const entry = dlsym(handle, kEntry);
  if (entry == nullptr) throw UserError(fmt::format("{}: is not csdsim's MPI module", path.string()));
  std::unique_ptr<Ranks> ranks(reinterpret_cast<Ranks* (*)()>(entry)());
  return ranks->size() > 1 ? std::move(ranks) : nullptr;
}

}  // namespace csdsim::launch
