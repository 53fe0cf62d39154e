#include "platform/platform_config.h"

#include "platform/platform.h"

namespace csdsim::platform {
AttachedGpu::AttachedGpu() = default;

void describe(ParamVisitor& v, AttachedGpu& c) {
  describe(v, static_cast<host::GpuConfig&>(c));
  v.param("count", c.count, {1, 8},
          "GPUs, each with its own memory and link. Mini-batch m of a generation runs on GPU m modulo count; every GPU "
          "has all weights. Drives, host cores and host memory are shared.",
          paper("InstInfer VI-A: one GPU"));
  v.section(
      "link", c.link,
      "The PCIe link of each GPU: generation and lanes, or bandwidth. It carries copies between host and GPU, and what "
      "drives read and write in GPU memory (nvme.transfer: p2p).");
}

void describe(ParamVisitor& v, HostConfig& c) {
  v.preset("host", c.preset);
  v.param("cores", c.cores, {1, 4096}, "CPU cores: the I/O queues share them, or io_cores of them.",
          datasheet("Intel Xeon Gold 5320"));
  v.param("memory", c.memory, {Bytes::mib(1), Bytes::gib(16'384)}, "Host memory.", paper("InstInfer VI-A"));
  v.optional("gpu_lanes", c.gpu_lanes, "as many as the GPUs have", {1, 1024},
             "PCIe lanes that the host has for GPUs. More GPUs, each with the lanes of its link (16 where the link is "
             "given as a bandwidth), are an error; those behind a switch do not count.",
             assumed("hosts that are sold with GPUs have lanes for them"));
  v.param("memory_bandwidth", c.memory_bandwidth, {Bandwidth{1'000'000'000}, Bandwidth{100'000'000'000'000}},
          "Peak bandwidth of host memory: copies between host and GPU are no faster.",
          datasheet("8 channels of DDR4-2933"));
  v.param("core_rate", c.core_rate, {ComputeRate{1'000'000'000}, ComputeRate{1'000'000'000'000'000}},
          "Peak rate of one core, in FP32: work that a system gives to the host.",
          datasheet("Intel Xeon Gold 5320: 2.2 GHz, 64 FP32 operations per cycle with AVX-512"));
  v.param("efficiency", c.efficiency, {Ratio::of(1, 1000), Ratio{1, 1}},
          "Share of the peaks of cores and memory that operators of the host reach.", assumed("streaming kernels"));
  v.param("io_overhead", c.io_overhead, {SimTime{}, SimTime::milliseconds(100)},
          "CPU time to submit a command and take its completion.", assumed("0: not stated by any paper"));
  v.optional("io_cores", c.io_cores, "auto", {1, 4096},
             "Cores that submit commands and take completions, for the I/O queues of all drives together; auto: all "
             "cores. With one, the CPU time of all commands adds up, however many drives there are.",
             assumed("every queue may have a core of its own"));
  v.section("file", c.file, "Files on the drives, for systems that keep data in files.");
  v.section("swap", c.swap, "Swapping of host memory to the drives, for systems whose data may exceed host memory.");
}

void describe(ParamVisitor& v, RootComplexConfig& c) {
  v.optional("bandwidth", c.bandwidth, "unlimited", {Bandwidth{1'000'000}, Bandwidth{100'000'000'000'000}},
             "Payload bytes per second of everything that passes the root complex, in each direction: from all drives "
             "and GPUs together, and to them. A transfer between two devices passes in both directions, unless both "
             "are behind the switch.",
             assumed("vendors state no such limit; memory bandwidth is an upper bound"));
}

void describe(ParamVisitor& v, SwitchConfig& c) {
  v.param("bandwidth", c.bandwidth, {Bandwidth{1'000'000}, Bandwidth{10'000'000'000'000}},
          "Payload bytes per second of the upstream link, in each direction.",
          assumed("PCIe 4.0 x16, packets of 256 B of payload"));
  v.optional("drives", c.drives, "all", {1, 64}, "Drives behind the switch: the first ones.",
             assumed("a switch for all drives"));
  v.param("gpus", c.gpus, {0, 8},
          "GPUs behind the switch, the first ones: transfers between them and the drives behind it do not cross the "
          "upstream link.",
          assumed("GPUs have root ports of their own"));
}

void describe(ParamVisitor& v, OverlapConfig& c) {
  v.param("mini_batches", c.mini_batches,
          "Mini-batches run side by side: one uses the GPU while another one waits for drives or host. If false, each "
          "begins a layer when the one before it has finished its layer.",
          assumed("the purpose of mini-batches"));
  v.param("engine_flash", c.engine_flash,
          "The engine of a drive works while pages are read. If false, they take turns: the engine works when no page "
          "read is outstanding, and further reads wait until it has done what it had to do.",
          assumed("kernels and flash channels are separate hardware"));
  v.param("host_drive", c.host_drive,
          "A drive starts with the first command of an operation. If false, the host places the commands of an "
          "operation in the drive's queues when its CPU part (host.io_overhead) is done for all of them.",
          assumed("a driver rings the doorbell for each command"));
}

void describe(ParamVisitor& v, PlatformConfig& c) {
  v.section("gpu", c.gpu, "The GPUs that compute everything but the offloaded part.");
  v.section("host", c.host, "The host.");
  v.section("root_complex", c.root_complex, "What joins host memory and all devices.");
  v.optional_section("switch", c.upstream, "none",
                     "A PCIe switch: the drives behind it share its upstream link to the root complex.",
                     assumed("every drive has a root port of its own"));
  v.section("device", c.device, "The drives.");
  v.section("overlap", c.overlap,
            "Which stages of a layer of a mini-batch run side by side. If false, they run one after the other; reads "
            "of a stage stay in flight together.");
}

PlatformParams platform_params(const PlatformConfig& config, const csd_model::DriveConfig& drive) {
  PlatformParams params;
  params.drive = drive;
  params.drive.engine.overlap_flash = config.overlap.engine_flash;
  params.drives = config.device.count;
  params.host_memory = config.host.memory;
  params.gpu_memory = config.gpu.memory;
  params.gpus = config.gpu.count;
  params.shared.gpu_link = config.gpu.link.peer_to_peer_bandwidth();
  params.shared.root_complex = config.root_complex.bandwidth;
  if (const auto& upstream = config.upstream)
    params.shared.upstream = SwitchParams{.bandwidth = upstream->bandwidth,
                                          .drives = upstream->drives.value_or(config.device.count),
                                          .gpus = upstream->gpus};
  params.io_overhead = config.host.io_overhead;
  params.io_cores = config.host.io_cores.value_or(config.host.cores);
  params.overlap_host_drive = config.overlap.host_drive;
  params.queues = static_cast<std::uint16_t>(config.device.nvme.queues);
  params.queue_depth = config.device.nvme.queue_depth;
  params.coalescing = config.device.nvme.coalescing();
  params.data_pointer = config.device.nvme.data_pointer;
  params.priorities = config.device.nvme.priorities();
  params.timeout = config.device.nvme.timeout;
  params.loss = config.device.nvme.loss;
  params.power = config.device.nvme.power;
  return params;
}

}  // namespace csdsim::platform
