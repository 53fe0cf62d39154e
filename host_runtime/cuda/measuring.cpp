#include "host_runtime/cuda/measuring.h"

#include <algorithm>
#include <vector>

namespace csdsim::host::cuda {

DeviceBuffer<std::uint32_t> on_device(Context& context, const std::vector<std::uint32_t>& values) {
  DeviceBuffer<std::uint32_t> buffer(context.pool, values.size());
  copy_to_device(context.stream, std::span<const std::uint32_t>(values), buffer.data());
  return buffer;
}

DeviceBuffer<__half> made_up_values(Context& context, std::size_t count) {
  std::vector<float> pattern(std::min(count, std::size_t{1} << 20));
  std::uint32_t state = 1;
  for (float& value : pattern) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<float>(static_cast<int>(state >> 8) - (1 << 23)) * 0x1p-23f;
  }
  const DeviceBuffer<float> wide(context.pool, pattern.size());
  copy_to_device(context.stream, std::span<const float>(pattern), wide.data());
  DeviceBuffer<__half> values(context.pool, count);
  for (std::size_t at = 0; at < count; at += pattern.size()) {
    convert(context.stream, static_cast<const float*>(wide.data()), values.data() + at,
            std::min(pattern.size(), count - at));
  }
  return values;
}

MeasuredSeconds seconds_of(Context& context, const std::function<void()>& work, int warm_ups, int runs, bool cold) {
  return measure_seconds(context.stream, context.pool, context.device, {warm_ups, runs, cold}, work);
}

MeasuredSeconds operator_seconds(Context& context, const std::function<void()>& work) {
  constexpr int kWarmUps = 3, kRuns = 11;
  return seconds_of(context, work, kWarmUps, kRuns, true);
}

MeasuredSeconds copy_seconds(Context& context, std::size_t bytes, bool to_device) {
  constexpr int kWarmUps = 2, kRuns = 7;
  const PinnedBuffer<std::byte> host(bytes);
  const DeviceBuffer<> device(context.pool, bytes);
  return seconds_of(
      context,
      [&] {
        if (to_device)
          CSDSIM_CUDA(cudaMemcpyAsync(device.data(), host.data(), bytes, cudaMemcpyHostToDevice, context.stream.get()));
        else
          CSDSIM_CUDA(cudaMemcpyAsync(host.data(), device.data(), bytes, cudaMemcpyDeviceToHost, context.stream.get()));
      },
      kWarmUps, kRuns, false);
}

MeasuredRates recomputation_rates(Context& context, std::uint32_t k, std::uint32_t n, std::size_t rows) {
  constexpr int kWarmUps = 2, kRuns = 5;
  constexpr std::size_t kBytes = std::size_t{32} << 20;
  MeasuredRates rates{.link = kBytes / copy_seconds(context, kBytes, true).median};
  // Fewer rows are another kernel, whose time the weights determine.
  rows = std::max<std::size_t>(rows, kGemvRows + 1);
  const auto x = made_up_values(context, rows * k), w = made_up_values(context, std::size_t{n} * k);
  const DeviceBuffer<__half> out(context.pool, rows * n);
  const auto product = [&] {
    context.gemm.multiply<__half, __half>(context.stream, x.data(), w.data(), rows, n, k, {}, out.data());
  };
  rates.gemm = 2.0 * static_cast<double>(rows) * n * k / seconds_of(context, product, kWarmUps, kRuns, false).median;
  return rates;
}

DecodeWork::DecodeWork(Context& context, std::size_t sequences, const CacheShape& shape)
    : context_(context),
      shape_(shape),
      q_(made_up_values(context, sequences * shape.heads * shape.d)),
      keys_(made_up_values(context, sequences * shape.kv_heads * shape.capacity * shape.d)),
      values_(made_up_values(context, keys_.size())),
      out_(context.pool, q_.size()),
      lengths_(on_device(context, std::vector<std::uint32_t>(sequences, shape.capacity))) {
  query_.q = q_.data();
  query_.q_stride = query_.out_stride = std::size_t{shape.heads} * shape.d;
  query_.out = out_.data();
  query_.sequences = sequences;
  query_.keys = keys_.data();
  query_.values = values_.data();
  query_.lengths = lengths_.data();
}

void DecodeWork::run(std::uint32_t splits) const {
  decode_attention(context_.stream, context_.pool, context_.device, query_, shape_, shape_.capacity, splits);
}

PrefillWork::PrefillWork(Context& context, std::uint32_t tokens, std::uint32_t heads, std::uint32_t d)
    : context_(context),
      q_(made_up_values(context, std::size_t{tokens} * heads * d)),
      k_(made_up_values(context, q_.size())),
      v_(made_up_values(context, q_.size())),
      out_(context.pool, q_.size()),
      starts_(on_device(context, {0, tokens})) {
  query_.q = q_.data();
  query_.k = k_.data();
  query_.v = v_.data();
  query_.out = out_.data();
  query_.rows = tokens;
  query_.q_stride = query_.kv_stride = query_.out_stride = std::size_t{heads} * d;
  query_.starts = starts_.data();
  query_.sequences = 1;
  query_.longest = tokens;
  query_.heads = query_.kv_heads = heads;
  query_.d = d;
}

void PrefillWork::run(PrefillKernel kernel) const {
  prefill_attention(context_.stream, context_.device, query_, kernel);
}

}  // namespace csdsim::host::cuda
