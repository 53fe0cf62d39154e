#include "host_runtime/cpu/blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <new>
#include <string>

#include "base/error.h"

namespace csdsim::host::blas {
namespace {

constexpr const char* kFile = "libopenblas.so.0";

struct OpenBlas {
  decltype(&openblas_set_num_threads) set_threads;
  decltype(&cblas_sgemm) gemm;
  decltype(&cblas_sgemv) gemv;
};

volatile std::sig_atomic_t no_memory_for_threads = 0;
extern "C" void note_no_memory(int) { no_memory_for_threads = 1; }

/// OpenBLAS starts its threads while it is loaded. Where `ulimit -v` leaves no memory for them it raises SIGINT, as if
/// somebody had stopped the program.
void* open_library() {
  rlimit space{};
  const bool limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
  const auto before = limited ? std::signal(SIGINT, note_no_memory) : SIG_DFL;
  void* const handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (limited) std::signal(SIGINT, before);
  if (no_memory_for_threads != 0) throw std::bad_alloc();
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
