#include "host_runtime/cuda/timing.h"

#include <algorithm>
#include <vector>

#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

MeasuredSeconds measure_seconds(const Stream& stream, DevicePool& pool, const DeviceInfo& device,
                                const Measurement& measurement, const std::function<void()>& work) {
  const DeviceBuffer<> other(pool, measurement.cold ? 2 * device.l2_bytes : 0);
  const DeviceBuffer<std::uint32_t> sink(pool, 1);
  if (other.size() > 0) CSDSIM_CUDA(cudaMemsetAsync(other.data(), 1, other.size(), stream.get()));
  std::vector<double> times;
  Event before, after;
  for (int i = 0; i < measurement.warm_ups + measurement.runs; ++i) {
    read_values(stream, other.data(), other.size(), sink.data());
    before.record(stream);
    work();
    after.record(stream);
    after.synchronise();
    if (i >= measurement.warm_ups) times.push_back(1e-3 * static_cast<double>(after.milliseconds_since(before)));
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front(), times.back()};
}

}  // namespace csdsim::host::cuda
