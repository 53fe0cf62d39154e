#include "host_runtime/cuda/cudnn_plan.h"

#ifdef CSDSIM_HAS_CUDNN
#include <dlfcn.h>

#include <exception>
#include <mutex>
#include <string>
#include <unordered_map>

#include "host_runtime/cuda/cudnn_graph.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // declared by the frontend, which looks up every function here
}
#endif

namespace csdsim::host::cuda {

#ifndef CSDSIM_HAS_CUDNN

std::unique_ptr<CudnnPlan> plan_with_cudnn(const CudnnShape&, const DeviceInfo&) { return nullptr; }

#else

namespace {

namespace fe = cudnn_frontend;

constexpr std::size_t kOldestVersion = 90500;  // the first whose offsets may have 64 bits

/// The handle of the loaded library; null where there is none, or an old one. Kept to the end of the process.
cudnnHandle_t library() {
  static std::once_flag once;
  static cudnnHandle_t handle = nullptr;
  std::call_once(once, [] {
    fe::cudnn_dlhandle = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (fe::cudnn_dlhandle == nullptr || fe::detail::get_backend_version() < kOldestVersion) return;
    if (fe::detail::create_handle(&handle) != CUDNN_STATUS_SUCCESS) handle = nullptr;
  });
  return handle;
}

class GraphPlan final : public CudnnPlan {
 public:
  GraphPlan(cudnnHandle_t handle, std::shared_ptr<fe::graph::Graph> graph, std::size_t workspace)
      : handle_(handle), graph_(std::move(graph)), workspace_(workspace) {}

  std::size_t workspace_bytes() const override { return workspace_; }

  void run(const Stream& stream, const CudnnOperands& o, void* workspace) const override {
    if (fe::detail::set_stream(handle_, stream.get()) != CUDNN_STATUS_SUCCESS) fail("cudnnSetStream", "failed");
    const auto input = [](const auto* values) { return const_cast<void*>(static_cast<const void*>(values)); };
    std::unordered_map<std::int64_t, void*> tensors{
        {kCudnnQ, input(o.q)},
        {kCudnnK, input(o.k)},
        {kCudnnV, input(o.v)},
        {kCudnnOut, o.out},
        {kCudnnQOffsets, input(o.q_offsets)},
        {kCudnnKvOffsets, input(o.kv_offsets)},
        {kCudnnOutOffsets, input(o.out_offsets)},
        {kCudnnLengths, input(o.lengths)},
    };
    fe::error_t status = graph_->execute(handle_, tensors, workspace);
    if (status.is_bad()) fail("cuDNN attention", status.get_message());
  }

 private:
  cudnnHandle_t handle_;
  std::shared_ptr<fe::graph::Graph> graph_;
  std::size_t workspace_;
};

}  // namespace

std::unique_ptr<CudnnPlan> plan_with_cudnn(const CudnnShape& shape, const DeviceInfo& device) {
  // The frontend throws where a function is missing, of cuDNN or of the CUDA runtime that it loads.
  try {
    const cudnnHandle_t handle = library();
    if (handle == nullptr) return nullptr;
    auto graph = cudnn_graph(shape, device.compute_capability);
    std::int64_t workspace = 0;
    if (graph->build(handle, {fe::HeurMode_t::A}).is_bad() || graph->get_workspace_size(workspace).is_bad()) {
      return nullptr;
    }
    return std::make_unique<GraphPlan>(handle, std::move(graph), static_cast<std::size_t>(workspace));
  } catch (const std::exception&) {
    return nullptr;
  }
}

#endif

}  // namespace csdsim::host::cuda
