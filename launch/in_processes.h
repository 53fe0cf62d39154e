// Computes numbers in several processes at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

namespace csdsim::launch {

/// Calls `run` for 0 to count - 1, in `jobs` copies of this process (with one job in this process itself), and returns
/// what it returns, in order. Copies end with this process. Throws what `run` throws: a UserError with its message,
/// anything else as an InternalError. No other thread may exist.
std::vector<std::vector<double>> run_in_processes(std::size_t count, std::size_t jobs,
                                                  const std::function<std::vector<double>(std::size_t)>& run);

}  // namespace csdsim::launch
