#include "scenario/platform.h"

namespace csdsim::scenario {
namespace {
constexpr SimTime ms(std::int64_t v) { return SimTime::milliseconds(v); }
}  // namespace

Bandwidth LinkConfig::raw_bandwidth() const {
  if (bandwidth) return *bandwidth;
  // Transfers a second and lane in units of 10^6, and the share of them that the line code leaves.
  constexpr std::uint64_t kMegatransfers[] = {2'500, 5'000, 8'000, 16'000, 32'000};
  const std::uint32_t g = generation.value();
  const std::uint64_t bits = kMegatransfers[g - 1] * 1'000'000 * lanes.value();
  return {g <= 2 ? bits * 8 / 10 / 8 : bits / 8 * 128 / 130};
}

Bandwidth LinkConfig::payload_bandwidth() const {
  if (bandwidth) return *bandwidth;
  const std::uint64_t packet = max_payload.value + tlp_overhead.value + dllp_overhead.value;
  return {static_cast<std::uint64_t>(static_cast<unsigned __int128>(raw_bandwidth().bytes_per_second) *
                                     max_payload.value / packet)};
}

Bytes DeviceConfig::usable_capacity() const {
  const std::uint64_t pages = flash.geometry.pages();
  return flash.geometry.page_size * (pages - ftl.over_provisioning.floor_of(pages));
}

void describe(ParamVisitor& v, EngineConfig& c) {
  v.param("clock", c.clock, {Frequency{1'000'000}, Frequency{10'000'000'000}}, "Clock of the attention engine.",
          paper("InstInfer V-A, of the prototype"));
  v.param("kernels", c.kernels, {1, 1024}, "Attention kernels (GeMV and softmax) side by side.",
          paper("InstInfer IV-B"));
  v.param("macs_per_cycle", c.macs_per_cycle, {1, 1'048'576}, "FP16 multiply-accumulates of a kernel in a cycle.",
          assumed("a kernel has 768 DSPs; the figures of InstInfer fit 123 a cycle over both kernels"));
  v.param("softmax_per_cycle", c.softmax_per_cycle, {1, 1'048'576}, "Exponentials of a kernel in a cycle.",
          assumed("no paper states it"));
  v.param("argtopk_per_cycle", c.argtopk_per_cycle, {1, 1'048'576}, "Elements that the argtopk unit takes in a cycle.",
          assumed("no paper states it"));
  v.param("jobs_in_flight", c.jobs_in_flight, {1, 65'536}, "Heads that the engine works on at the same time.",
          assumed("enough to hide a tR; no paper states it"));
  v.param("buffer", c.buffer, {Bytes{512}, Bytes::gib(16)}, "Memory for pages on their way into the kernels.",
          assumed("of the order of the Zynq-7045's block RAM"));
  v.param("buffer_memory", c.buffer_memory,
          "Where that memory is. In DRAM, it takes its share of the capacity, and what a head keeps there is written "
          "and read once.",
          assumed("block RAM of the FPGA"));
  v.param("intake", c.intake, "What a kernel takes in at once.",
          assumed("finite page buffers need not hold a phase; InstInfer does not say when a kernel starts"));
}

void describe(ParamVisitor&, SingleInterrupts&) {}

void describe(ParamVisitor& v, CoalescedInterrupts& c) {
  v.param("completions", c.completions, {2, 256}, "So many since the last interrupt of the queue bring the next one.",
          assumed("a burst of 16 entries is what the controller fetches at once"));
  v.param("time", c.time, {SimTime::microseconds(100), SimTime::microseconds(25'500)},
          "How long the first of them waits for the others at most: a multiple of 100 us.",
          datasheet("NVMe Base 1.4, 5.21.1.8: the least"));
}

void describe(ParamVisitor& v, NvmeConfig& c) {
  v.param("queues", c.queues, {1, 1024}, "Pairs of I/O queues.", assumed("a host with a few submitting threads"));
  v.param("queue_depth", c.queue_depth, {2, 65'536}, "Entries of an I/O queue.", assumed("common driver default"));
  v.choice("interrupts", c.interrupts, "When the controller interrupts the host.",
           assumed("drivers leave coalescing off"));
  v.param("mdts", c.mdts, {Bytes::kib(4), Bytes::gib(1)}, "Largest data transfer of a command: a power of two.",
          assumed("common for data-centre drives"));
  v.param("block_size", c.block_size, {Bytes{512}, Bytes::kib(64)}, "Logical block of the namespace: a power of two.",
          assumed("the usual page"));
  v.param("firmware_time", c.firmware_time, {SimTime{}, ms(100)}, "Firmware work of a command before it runs.",
          assumed("0: not stated by any paper"));
  v.param("pipeline_time", c.pipeline_time, {SimTime{}, ms(100)},
          "Time of a command in the controller that keeps no other waiting, beside firmware_time.",
          assumed("0: data sheets state latencies as a whole"));
  v.param("firmware_cores", c.firmware_cores, {1, 64}, "Cores that do it, each one command at a time.",
          assumed("one is the least"));
  v.param("granularity", c.granularity, "What one attention command covers.",
          assumed("fewest commands; the paper states none"));
  v.param("transfer", c.transfer, "How K, V and attention outputs travel between GPU and drive.",
          assumed("the drive reaches GPU memory through the switch"));
}

namespace {

void describe_lanes(ParamVisitor& v, LinkConfig& c) {
  v.optional("generation", c.generation, "auto", {1, 5}, "PCIe generation; auto where bandwidth is given.",
             paper("InstInfer: drive 3.0 x4 (V-A, prototype), GPU 4.0 x16 (VI-A)"));
  v.optional("lanes", c.lanes, "auto", {1, 32}, "PCIe lanes: a power of two; auto where bandwidth is given.",
             paper("InstInfer: drive 3.0 x4 (V-A, prototype), GPU 4.0 x16 (VI-A)"));
  v.optional("bandwidth", c.bandwidth, "auto", {Bandwidth{1'000'000}, Bandwidth{10'000'000'000'000}},
             "Payload bytes a second, in place of generation, lanes and overheads.",
             assumed("follows from generation and lanes"));
  v.param("max_payload", c.max_payload, {Bytes{128}, Bytes::kib(4)}, "Largest payload of a TLP: a power of two.",
          assumed("common root complexes"));
  v.param("tlp_overhead", c.tlp_overhead, {Bytes{0}, Bytes{128}}, "Header, framing and CRC bytes of a TLP.",
          datasheet("PCIe base specification: 4 DW header, sequence number, LCRC, framing"));
  v.param("dllp_overhead", c.dllp_overhead, {Bytes{0}, Bytes{128}},
          "Share of acknowledge and flow-control packets, charged to each TLP.", assumed("one of 8 B for two TLPs"));
  v.param("latency", c.latency, {SimTime{}, ms(1)}, "Flight time from end to end, each way.",
          assumed("0: a short trace"));
}

}  // namespace

void describe(ParamVisitor& v, LinkConfig& c) {
  describe_lanes(v, c);
  v.param("max_read_request", c.max_read_request, {Bytes{128}, Bytes::kib(4)},
          "Bytes that one read request asks for at most: a power of two.", assumed("common root complexes"));
  v.optional("outstanding_reads", c.outstanding_reads, "unlimited", {1, 1024},
             "Read requests of the drive on their way at a time: so much data comes in a round trip at most.",
             assumed("never the bottleneck; PCIe has 32 to 256 tags, 768 from generation 4 on"));
}

void describe(ParamVisitor& v, GpuLinkConfig& c) { describe_lanes(v, c); }

void describe(ParamVisitor& v, DramConfig& c) {
  v.param("capacity", c.capacity, {Bytes::mib(1), Bytes::gib(1024)},
          "Controller DRAM for group buffers, maps and the write buffer.", assumed("the prototype has 2 GB"));
  v.optional("bandwidth", c.bandwidth, "unlimited", {Bandwidth{1'000'000}, Bandwidth{10'000'000'000'000}},
             "What host data, flash data, mapping entries and unflushed K and V share.",
             assumed("unlimited: no paper states it"));
}

void describe(ParamVisitor&, ImmediateFlush&) {}

void describe(ParamVisitor& v, ThresholdFlush& c) {
  v.param("fill", c.fill, {Ratio::of(1, 1000), Ratio{1, 1}}, "Share of the capacity.", assumed("half full"));
}

void describe(ParamVisitor& v, IdleFlush& c) {
  v.param("delay", c.delay, {SimTime{1}, SimTime::milliseconds(10'000)},
          "From the last block command on. A write that finds no room, and NVMe Flush, end the wait.",
          assumed("longer than a read"));
}

void describe(ParamVisitor& v, WriteBufferConfig& c) {
  v.param("capacity", c.capacity, {Bytes{0}, Bytes::gib(1024)},
          "DRAM in which block writes complete; 0 B: every write reaches flash first.", assumed("the slow, safe case"));
  v.choice("flush", c.flush,
           "When buffered block writes go to flash; groups of the KV cache go as soon as they are full.",
           assumed("keeps the buffer empty"));
}

void describe(ParamVisitor&, GreedyGc&) {}
void describe(ParamVisitor&, CostBenefitGc&) {}
void describe(ParamVisitor&, FifoGc&) {}

void describe(ParamVisitor& v, RandomGreedyGc& c) {
  v.param("choices", c.choices, {1, 1024}, "Blocks that are drawn.",
          assumed("Van Houdt (SIGMETRICS 2013): 10 come close to greedy"));
}

void describe(ParamVisitor& v, BackgroundGc& c) {
  v.param("free_blocks", c.free_blocks, {1, 1024},
          "Planes with at most this many free blocks collect in the background; more than gc_free_blocks.",
          assumed("two steps ahead of the writes"));
  v.param("step_pages", c.step_pages, {1, 65'536}, "Pages that one step moves at most.",
          assumed("a few programs between two pieces of host work"));
}

void describe(ParamVisitor&, IdealMap&) {}

void describe(ParamVisitor& v, CachedMap& c) {
  v.param("capacity", c.capacity, {Bytes{8}, Bytes::gib(1024)},
          "Controller DRAM for cached entries: 8 B each, logical and physical page.",
          assumed("DFTL evaluates some hundred KiB"));
}

void describe(ParamVisitor& v, GcConfig& c) {
  v.choice("policy", c.policy, "Which block of a plane is collected.",
           assumed("the least to move; common in products"));
  v.optional_section("background", c.background, "off",
                     "Collects in small steps between pieces of host work, before writes have to wait for it.",
                     assumed("off: a write that finds too few free blocks waits for whole blocks"));
}

void describe(ParamVisitor& v, WearLevellingConfig& c) {
  v.param("free_block", c.free_block, "Which free block of a plane is written next.",
          assumed("in turn: the simplest wear levelling"));
  v.param("spread", c.spread, {0, 1'000'000},
          "Static wear levelling: a plane whose erase counts lie further apart moves the data of its least worn block; "
          "0: never.",
          assumed("0: data that nobody overwrites stay where they are"));
}

void describe(ParamVisitor& v, FtlConfig& c) {
  v.choice("mapping", c.mapping, "How data is addressed in flash.", paper("InstInfer IV-C"));
  v.param("over_provisioning", c.over_provisioning, {Ratio{0, 1}, Ratio::of(9, 10)},
          "Share of the flash that data may not fill.", assumed("common for client drives"));
  v.param("gc_free_blocks", c.gc_free_blocks, {1, 1024},
          "Garbage collection starts at this many free blocks of a plane.", assumed("enough to collect into"));
  v.param("lookup_time", c.lookup_time, {SimTime{}, ms(1)}, "Firmware time to look up one mapping entry.",
          assumed("0: looked up ahead, in hardware"));
  v.param("lookup_cores", c.lookup_cores, {1, 64}, "Cores that look up, each one request at a time.",
          assumed("one is the least"));
  v.list("stripe_order", c.stripe_order, {3, 3}, "What changes first between consecutive pages: a permutation.",
         assumed("channels first gives one stream all channels"));
  v.param("allocation", c.allocation, "Which plane a page of the block namespace goes to.",
          assumed("dynamic keeps all planes busy whatever is written"));
  v.choice("map", c.map, "Where the page map of the block namespace is kept.",
           assumed("drives with a GB of DRAM for each TB hold it all"));
  v.section("gc", c.gc, "Garbage collection of the block namespace.");
  v.section("wear_levelling", c.wear_levelling, "How erases are spread over the blocks of a plane.");
  v.param("spare_blocks", c.spare_blocks, {0, 65'536}, "Blocks of a plane that are kept to replace bad ones.",
          assumed("0: no block is bad, and the drive is read-only after the first that fails"));
  v.param("factory_bad_blocks", c.factory_bad_blocks, {Ratio{0, 1}, Ratio::of(1, 10)},
          "Share of blocks that are bad from the start, drawn block by block; spare blocks stand in for them.",
          assumed("0; data sheets allow about 0.02"));
}

void describe(ParamVisitor& v, DeviceConfig& c) {
  v.preset("device", c.preset);
  v.param("count", c.count, {1, 64}, "Drives of this kind; K and V are sharded over them by KV head.",
          assumed("the smallest system"));
  v.param("fidelity", c.fidelity, "How the flash is simulated; completions are the same.", assumed("speed"));
  v.section("flash", c.flash, "The flash array and its channels.");
  v.section("engine", c.engine, "The attention engine in the drive.");
  v.section("nvme", c.nvme, "The NVMe front end and how the host uses it.");
  v.section("link", c.link, "The PCIe link: generation and lanes, or bandwidth.");
  v.section("dram", c.dram, "Controller DRAM.");
  v.section("write_buffer", c.write_buffer, "Writes and KV appends complete in it.");
  v.section("ftl", c.ftl, "The flash translation layer.");
  v.section("energy", c.energy, "What the parts of the drive draw. GPU and host are not modelled.");
}

void describe(ParamVisitor& v, GpuEfficiency& c) {
  const Range<Ratio> share{Ratio::of(1, 1000), Ratio{1, 1}};
  v.param("gemm", c.gemm, share, "Of the peak rate: matrix products of many rows.", assumed("large cuBLAS products"));
  v.param("gemv", c.gemv, share, "Of memory bandwidth: matrix products of few rows, bound by weights.",
          assumed("streaming kernels"));
  v.param("attention_prefill", c.attention_prefill, share, "Of the peak rate: attention over a prompt.",
          assumed("fused attention kernels"));
  v.param("attention_decode", c.attention_decode, share, "Of memory bandwidth: attention of single tokens.",
          assumed("published best is 83 % on H200"));
  v.param("elementwise", c.elementwise, share, "Of memory bandwidth: norms, activations, additions.",
          assumed("streaming kernels"));
}

void describe(ParamVisitor& v, GpuConfig& c) {
  v.preset("gpu", c.preset);
  v.param("timing", c.timing, "Where operator times come from.", assumed("works without a GPU"));
  v.optional("times", c.times, "none",
             "With timing: measured, result.json of an earlier run: its times are taken, and no GPU is needed.",
             assumed("the present GPU is timed"));
  v.param("fp16_rate", c.fp16_rate, {ComputeRate{1'000'000'000}, ComputeRate{1'000'000'000'000'000'000}},
          "Peak dense FP16 rate of the tensor cores.", datasheet("NVIDIA RTX A6000"));
  v.param("memory_bandwidth", c.memory_bandwidth, {Bandwidth{1'000'000'000}, Bandwidth{100'000'000'000'000}},
          "Peak bandwidth of GPU memory.", datasheet("NVIDIA RTX A6000"));
  v.param("memory", c.memory, {Bytes::mib(1), Bytes::gib(4096)}, "GPU memory.", paper("InstInfer VI-A"));
  v.param("kernel_launch", c.kernel_launch, {SimTime{}, ms(10)}, "Fixed time of an operator.",
          assumed("typical launch latency"));
  v.section("efficiency", c.efficiency, "Share of peak that operators reach.");
  v.section(
      "link", c.link,
      "The PCIe link: generation and lanes, or bandwidth. It carries what passes through host memory (nvme.transfer: "
      "host); peer to peer, the drives reach GPU memory over their own links.");
}

void describe(ParamVisitor& v, HostConfig& c) {
  v.preset("host", c.preset);
  v.param("cores", c.cores, {1, 4096}, "CPU cores: the I/O queues share them.", datasheet("Intel Xeon Gold 5320"));
  v.param("memory", c.memory, {Bytes::mib(1), Bytes::gib(65'536)}, "Host memory.", paper("InstInfer VI-A"));
  v.param("memory_bandwidth", c.memory_bandwidth, {Bandwidth{1'000'000'000}, Bandwidth{100'000'000'000'000}},
          "Peak bandwidth of host memory: copies between host and GPU are no faster.",
          datasheet("8 channels of DDR4-2933"));
  v.param("io_overhead", c.io_overhead, {SimTime{}, ms(100)}, "CPU time to submit a command and take its completion.",
          assumed("0: not stated by any paper"));
}

void describe(ParamVisitor& v, PlatformConfig& c) {
  v.section("gpu", c.gpu, "The GPU that computes everything but the offloaded part.");
  v.section("host", c.host, "The host.");
  v.section("device", c.device, "The drives.");
}

}  // namespace csdsim::scenario
