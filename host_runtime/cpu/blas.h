// Matrix products of OpenBLAS. The library is loaded with the first use: most runs compute nothing, and loading it
// takes longer than everything else at their start.
#pragma once

namespace csdsim::host::blas {

/// Threads of later products, a setting of the whole process. Throws UserError if OpenBLAS cannot be loaded.
void set_threads(int threads);

enum class Second : bool { as_stored, transposed };

/// c = alpha * a * b, all row-major in fp32: a has rows x inner elements, c rows x cols. b has inner x cols elements,
/// or cols x inner if it is transposed. lda, ldb, ldc: elements from one row to the next. Errors as set_threads().
void multiply(Second second, int rows, int cols, int inner, float alpha, const float* a, int lda, const float* b,
              int ldb, float* c, int ldc);

/// y = a * x: a has rows x cols elements without gaps. Errors as set_threads().
void multiply(const float* a, int rows, int cols, const float* x, float* y);

}  // namespace csdsim::host::blas
