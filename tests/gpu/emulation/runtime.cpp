// As much of the CUDA runtime as the backend calls, on the host: memory is memory, streams and events are those of
// streams.h.
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "host_runtime/cuda/kernels/prefill_hopper.cuh"
#include "host_runtime/cuda/launch.cuh"
#include "host_runtime/cuda/prefill_hopper.h"

namespace {

cudaError_t last_error = cudaSuccess;

cudaError_t result(bool good) { return last_error = good ? cudaSuccess : cudaErrorInvalidValue; }

/// Pinned host memory by its start: [start, end). Never destroyed.
std::map<const char*, const char*>& pinned() {
  static auto* const ranges = new std::map<const char*, const char*>;
  return *ranges;
}
bool is_pinned(const void* pointer) {
  const auto* const at = static_cast<const char*>(pointer);
  auto after = pinned().upper_bound(at);
  return after != pinned().begin() && at < (--after)->second;
}

/// A block of a memory pool, with NaN in every type.
struct PoolBlock {
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> data;
  std::size_t bytes;

  explicit PoolBlock(std::size_t size) : data(std::aligned_alloc(256, (size + 255) / 256 * 256)), bytes(size) {}
  void forget() const { std::memset(data.get(), 0xFF, bytes); }
};
/// Blocks in use by their start. Never destroyed.
std::map<const void*, std::shared_ptr<PoolBlock>>& pool_blocks() {
  static auto* const blocks = new std::map<const void*, std::shared_ptr<PoolBlock>>;
  return *blocks;
}

/// A copy of `rows` rows. Only between the device and pinned memory it is asynchronous: what is read from pageable
/// memory is read before the call returns, and what is written to it is written before.
void copy_rows(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch, std::size_t width,
               std::size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  std::shared_ptr<std::vector<char>> staged;
  if (kind == cudaMemcpyHostToDevice && !is_pinned(from)) {
    staged = std::make_shared<std::vector<char>>(width * rows);
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(staged->data() + row * width, static_cast<const char*>(from) + row * from_pitch, width);
    from = staged->data();
    from_pitch = width;
  }
  emulation::submit(
      stream,
      [=] {
        const auto kept = staged;
        for (std::size_t row = 0; row < rows; ++row)
          std::memcpy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch,
                      width);
      },
      emulation::time_to_copy(width * rows));
  if (kind == cudaMemcpyDeviceToHost && !is_pinned(to)) emulation::synchronise(stream);
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  *p = {};
  std::strcpy(p->name, "emulated GPU");
  p->major = 9;
  p->multiProcessorCount = 4;
  p->sharedMemPerBlockOptin = std::size_t{227} << 10;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = 1000;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int) {
  std::strncpy(id, "0000:17:00.0", static_cast<std::size_t>(bytes));
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* version) {
  *version = 0;
  return cudaSuccess;
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
const char* cudaGetErrorString(cudaError_t) { return "emulated error"; }
const char* cudaGetErrorName(cudaError_t) { return "emulated"; }

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  // What new memory holds is not known: NaN in every type.
  if (*pointer != nullptr) std::memset(*pointer, 0xFF, bytes);
  return result(!emulation::recording() && *pointer != nullptr);
}
cudaError_t cudaFree(void* pointer) {
  emulation::synchronise_device();
  std::free(pointer);
  return cudaSuccess;
}
// Memory in the order of a stream. It holds NaN from its allocation on, in that order, and again when it is given back:
// what another stream wrote before is lost.
cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps*) {
  *pool = reinterpret_cast<cudaMemPool_t>(new int);
  return cudaSuccess;
}
cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  delete reinterpret_cast<int*>(pool);
  return cudaSuccess;
}
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
cudaError_t cudaMallocFromPoolAsync(void** pointer, std::size_t bytes, cudaMemPool_t, cudaStream_t stream) {
  const auto block = std::make_shared<PoolBlock>(bytes);
  *pointer = block->data.get();
  pool_blocks().emplace(*pointer, block);
  emulation::submit(stream, [block] { block->forget(); }, {0});
  return result(*pointer != nullptr);
}
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
  const auto it = pool_blocks().find(pointer);
  if (it == pool_blocks().end()) return result(false);
  // A graph keeps the memory of blocks that it allocates: the recorded work holds them.
  emulation::submit(stream, [block = it->second] { block->forget(); }, {0});
  pool_blocks().erase(it);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  const cudaError_t status = cudaMalloc(pointer, bytes);
  const auto* const start = static_cast<const char*>(*pointer);
  if (status == cudaSuccess) pinned().emplace(start, start + bytes);
  return status;
}
cudaError_t cudaFreeHost(void* pointer) {
  pinned().erase(static_cast<const char*>(pointer));
  return cudaFree(pointer);
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  if (to == nullptr || from == nullptr) return result(false);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes > 0) copy_rows(to, bytes, from, bytes, bytes, 1, kind, stream);
  return cudaSuccess;
}
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from, std::size_t from_pitch,
                              std::size_t width, std::size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return result(false);
  if (width > 0 && height > 0) copy_rows(to, to_pitch, from, from_pitch, width, height, kind, stream);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  emulation::submit(stream, [=] { std::memset(to, value, bytes); });
  return cudaSuccess;
}

}  // extern "C"

namespace csdsim::host::cuda {

// In place of prefill_hopper.cu, which asks the driver for tensor maps.
template <class T>
void prefill_hopper(const Stream& stream, const PrefillQuery<T>& q) {
  const auto map = [&](const T* values, std::uint32_t heads, std::size_t stride) {
    return TensorMap{reinterpret_cast<const std::uint16_t*>(values), stride, q.d, heads, q.rows, kHopperTile};
  };
  const HopperArguments<T> arguments{q.out, q.starts, q.out_stride, q.heads / q.kv_heads,
                                     1.4426950408889634f / std::sqrt(static_cast<float>(q.d))};
  launch("prefill_hopper", prefill_hopper_kernel<T>,
         dim3((q.longest + kHopperTile - 1) / kHopperTile, q.heads, static_cast<unsigned>(q.sequences)), kHopperThreads,
         kHopperSharedBytes, stream, map(q.q, q.heads, q.q_stride), map(q.k, q.kv_heads, q.kv_stride),
         map(q.v, q.kv_heads, q.kv_stride), arguments);
}
template void prefill_hopper(const Stream&, const PrefillQuery<__half>&);
template void prefill_hopper(const Stream&, const PrefillQuery<__nv_bfloat16>&);

}  // namespace csdsim::host::cuda
