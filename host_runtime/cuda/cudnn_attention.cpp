#include "host_runtime/cuda/cudnn_attention.h"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace csdsim::host::cuda {
namespace {

constexpr std::uint32_t kShortest = 64;  // tokens that a plan is made for at least

}  // namespace

const CudnnPlan* CudnnAttention::plan(const CudnnShape& shape, const DeviceInfo& device) {
  const auto [entry, is_new] = plans_.try_emplace(shape);
  if (is_new) entry->second = plan_with_cudnn(shape, device);
  return entry->second.get();
}

template <class T>
bool CudnnAttention::run(const Stream& stream, const DeviceInfo& device, const PrefillQuery<T>& q) {
  if (device.compute_capability < 80 || q.d % 8 != 0 || q.rows == 0) return false;
  const auto wide = [](std::size_t size) { return static_cast<std::int64_t>(size); };
  const CudnnShape shape{.bf16 = !std::is_same_v<T, __half>,
                         .sequences = wide(q.sequences),
                         .longest = std::bit_ceil(std::max(q.longest, kShortest)),
                         .heads = q.heads,
                         .kv_heads = q.kv_heads,
                         .d = q.d,
                         .q_stride = wide(q.q_stride),
                         .kv_stride = wide(q.kv_stride),
                         .out_stride = wide(q.out_stride)};
  const CudnnPlan* const plan = this->plan(shape, device);
  if (plan == nullptr) return false;
  const std::size_t places = q.sequences + 1;
  const DeviceBuffer<std::int64_t> offsets(pool_, 3 * places);
  const DeviceBuffer<std::int32_t> lengths(pool_, q.sequences);
  locate_rows(stream, q, offsets.data(), lengths.data());
  const DeviceBuffer<> workspace(pool_, plan->workspace_bytes());
  plan->run(stream,
            {.q = q.q,
             .k = q.k,
             .v = q.v,
             .out = q.out,
             .q_offsets = offsets.data(),
             .kv_offsets = offsets.data() + places,
             .out_offsets = offsets.data() + 2 * places,
             .lengths = lengths.data()},
            workspace.data());
  return true;
}

template bool CudnnAttention::run(const Stream&, const DeviceInfo&, const PrefillQuery<__half>&);
template bool CudnnAttention::run(const Stream&, const DeviceInfo&, const PrefillQuery<__nv_bfloat16>&);

}  // namespace csdsim::host::cuda
