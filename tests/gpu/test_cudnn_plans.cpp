// cuDNN has a kernel for our graph, tested without a GPU: cuDNN takes a description of one instead, and a library of
// stubs in the place of the driver. Nothing is computed.
#include <array>
#include <string>
#include <vector>

#include "host_runtime/cuda/cudnn_graph.h"
#include "tests/gpu/harness.h"

namespace cudnn_frontend {
extern void* cudnn_dlhandle;
}

namespace {

using namespace csdsim::host::cuda;
namespace fe = cudnn_frontend;

/// A GPU as cuDNN describes it.
std::shared_ptr<fe::DeviceProperties> described(const char* name, int compute_capability, int multiprocessors,
                                                int shared_bytes, std::int64_t l2_bytes) {
  const auto number = [](auto value) { return std::to_string(value); };
  const std::string json =
      R"({"maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
      "multiProcessorCount": )" +
      number(multiprocessors) +
      R"(, "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": )" + number(shared_bytes) +
      R"(, "reservedSharedMemoryPerBlock": 1024, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
      "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,
      "totalGlobalMem": 85000000000, "smClockRateKHz": 1500000, "memClockRateKHz": 2600000, "l2CacheSize": )" +
      number(l2_bytes) + R"(, "cudaDeviceId": 0, "deviceVer": )" + number(10 * compute_capability) +
      R"(, "driverVer": 13000, "deviceName": ")" + name + "\"}";
  auto properties = std::make_shared<fe::DeviceProperties>();
  if (properties->deserialize({json.begin(), json.end()}).is_bad()) return nullptr;
  return properties;
}

bool has_kernel(const CudnnShape& shape, int compute_capability, std::shared_ptr<fe::DeviceProperties> gpu) {
  const auto graph = cudnn_graph(shape, compute_capability);
  graph->set_device_properties(std::move(gpu));
  return graph->validate().is_good() && graph->build_operation_graph().is_good() &&
         graph->create_execution_plans({fe::HeurMode_t::A}).is_good() && graph->check_support().is_good();
}

GPU_TEST("cuDNN has kernels for prompts of fused projections, of several sequences, on H100 and A100") {
  struct Gpu {
    const char* name;
    int compute_capability, multiprocessors, shared_bytes;
    std::int64_t l2_bytes;
  };
  for (const Gpu& gpu : {Gpu{"NVIDIA H100 80GB HBM3", 90, 132, 232448, std::int64_t{50} << 20},
                         Gpu{"NVIDIA A100-SXM4-80GB", 80, 108, 166912, std::int64_t{40} << 20}}) {
    const auto properties =
        described(gpu.name, gpu.compute_capability, gpu.multiprocessors, gpu.shared_bytes, gpu.l2_bytes);
    EXPECT(properties != nullptr);
    if (properties == nullptr) return;
    const std::array shapes{CudnnShape{false, 1, 1024, 32, 8, 128, 6144, 6144, 4096},
                            CudnnShape{true, 3, 512, 16, 16, 64, 3072, 3072, 1024},
                            CudnnShape{false, 2, 64, 32, 32, 80, 7680, 7680, 2560},
                            CudnnShape{false, 1, 16384, 32, 32, 128, 12288, 12288, 4096}};
    for (const CudnnShape& shape : shapes) EXPECT(has_kernel(shape, gpu.compute_capability, properties));
    EXPECT(!has_kernel({false, 1, 256, 4, 4, 20, 240, 240, 80}, gpu.compute_capability, properties));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const CudnnShape shape{false, 1, 64, 1, 1, 64, 192, 192, 64};
  // Without a GPU there is no plan, and no failure.
  const bool planned = plan_with_cudnn(shape, {.compute_capability = 90}) != nullptr;
  if (!present_device() && planned) return 1;
  if (cudnn_frontend::cudnn_dlhandle == nullptr || cudnn_frontend::detail::get_backend_version() < 91100) {
    std::printf("skipped: no cuDNN, or one that cannot be asked without a GPU\n");
    return gpu_test::kSkipped;
  }
  return gpu_test::run(argc, argv, false);
}
