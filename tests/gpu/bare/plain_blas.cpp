#include <cstddef>

#include "host_runtime/cpu/blas.h"

namespace csdsim::host::blas {

void set_threads(int) {}

void multiply(Second second, int rows, int cols, int inner, float alpha, const float* a, int lda, const float* b,
              int ldb, float* c, int ldc) {
  const auto at = [](int row, int stride, int column) { return static_cast<std::ptrdiff_t>(row) * stride + column; };
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < cols; ++j) {
      double sum = 0;
      for (int l = 0; l < inner; ++l) {
        sum += double{a[at(i, lda, l)]} * double{second == Second::transposed ? b[at(j, ldb, l)] : b[at(l, ldb, j)]};
      }
      c[at(i, ldc, j)] = alpha * static_cast<float>(sum);
    }
  }
}

void multiply(const float* a, int rows, int cols, const float* x, float* y) {
  multiply(Second::transposed, 1, rows, cols, 1.0f, x, cols, a, cols, y, rows);
}

}  // namespace csdsim::host::blas
