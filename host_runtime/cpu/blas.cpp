#include "host_runtime/cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"

namespace csdsim::host::blas {
namespace {

constexpr const char* kFile = "libopenblas.so.0";

struct OpenBlas {
  decltype(&openblas_set_num_threads) set_threads;
  decltype(&cblas_sgemm) gemm;
  decltype(&cblas_sgemv) gemv;
};

/// OpenBLAS starts its threads while it is loaded. Where `ulimit -v` leaves no memory for them it raises SIGINT, as if
/// somebody had stopped the program.
extern "C" void out_of_memory_while_loading(int) {
  constexpr std::string_view kText = "csdsim: out of memory (ulimit -v limits it)\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  _exit(1);
}

void* open_library() {
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY) return dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  const auto before = std::signal(SIGINT, out_of_memory_while_loading);
  void* const handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  std::signal(SIGINT, before);
  return handle;
}

template <class Function>
Function function(void* handle, const char* name) {
  void* const found = dlsym(handle, name);
  if (found == nullptr) throw UserError(fmt::format("{}: has no function {}", kFile, name));
  return reinterpret_cast<Function>(found);
}

OpenBlas load(int threads) {
  // Without a number it starts a thread per core, which waits for work by spinning.
  setenv("OPENBLAS_NUM_THREADS", std::to_string(threads).c_str(), 0);
  void* const handle = open_library();  // never closed: its threads live as long as the process
  if (handle == nullptr)
    throw UserError(fmt::format("OpenBLAS cannot be loaded: {} (Debian: apt-get install libopenblas0)", dlerror()));
  return {function<decltype(OpenBlas::set_threads)>(handle, "openblas_set_num_threads"),
          function<decltype(OpenBlas::gemm)>(handle, "cblas_sgemm"),
          function<decltype(OpenBlas::gemv)>(handle, "cblas_sgemv")};
}

const OpenBlas& library(int threads = 1) {
  static const OpenBlas loaded = load(threads);
  return loaded;
}

}  // namespace

void set_threads(int threads) { library(threads).set_threads(threads); }

void multiply(Second second, int rows, int cols, int inner, float alpha, const float* a, int lda, const float* b,
              int ldb, float* c, int ldc) {
  library().gemm(CblasRowMajor, CblasNoTrans, second == Second::transposed ? CblasTrans : CblasNoTrans, rows, cols,
                 inner, alpha, a, lda, b, ldb, 0.0f, c, ldc);
}

void multiply(const float* a, int rows, int cols, const float* x, float* y) {
  library().gemv(CblasRowMajor, CblasNoTrans, rows, cols, 1.0f, a, cols, x, 1, 0.0f, y, 1);
}

}  // namespace csdsim::host::blas
