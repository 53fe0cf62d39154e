// A separate file, because CUB takes long to compile.
#include <cub/device/device_segmented_radix_sort.cuh>

#include "host_runtime/cuda/attention/choosing.h"

namespace csdsim::host::cuda {

void sort_lists(const Stream& stream, DevicePool& pool, const float* scores, const std::uint32_t* indices,
                std::size_t total, std::size_t segments, const int* begins, const int* ends, std::uint32_t* sorted) {
  const DeviceBuffer<float> keys(pool, total);
  std::size_t bytes = 0;
  const auto sort = [&](void* workspace) {
    CSDSIM_CUDA(cub::DeviceSegmentedRadixSort::SortPairsDescending(
        workspace, bytes, scores, keys.data(), indices, sorted, static_cast<int>(total), static_cast<int>(segments),
        begins, ends, 0, 32, stream.get()));
  };
  sort(nullptr);  // returns the size of the workspace
  const DeviceBuffer<> workspace(pool, bytes);
  sort(workspace.data());
}

}  // namespace csdsim::host::cuda
