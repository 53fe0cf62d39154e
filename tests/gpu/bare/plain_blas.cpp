#include <cblas.h>

#include <cstddef>

void openblas_set_num_threads(int) {}

void cblas_sgemm(CBLAS_ORDER, CBLAS_TRANSPOSE, CBLAS_TRANSPOSE trans_b, blasint m, blasint n, blasint k, float alpha,
                 const float* a, blasint lda, const float* b, blasint ldb, float beta, float* c, blasint ldc) {
  const auto at = [](blasint row, blasint stride, blasint column) {
    return static_cast<std::ptrdiff_t>(row) * stride + column;
  };
  for (blasint i = 0; i < m; ++i) {
    for (blasint j = 0; j < n; ++j) {
      double sum = 0;
      for (blasint l = 0; l < k; ++l) {
        sum += double{a[at(i, lda, l)]} * double{trans_b == CblasTrans ? b[at(j, ldb, l)] : b[at(l, ldb, j)]};
      }
      float& to = c[at(i, ldc, j)];
      to = alpha * static_cast<float>(sum) + (beta == 0 ? 0.0f : beta * to);
    }
  }
}

void cblas_sgemv(CBLAS_ORDER order, CBLAS_TRANSPOSE, blasint m, blasint n, float alpha, const float* a, blasint lda,
                 const float* x, blasint, float beta, float* y, blasint) {
  cblas_sgemm(order, CblasNoTrans, CblasTrans, 1, m, n, alpha, x, n, a, lda, beta, y, m);
}
