// A small platform around the controller: host DRAM, GPU memory, fabric, DMA, and a drive whose medium is RAM.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "nvme_if/spec/encode.h"
#include "nvme_if/sysc/nvme_controller.h"
#include "nvme_if/sysc/nvme_driver.h"
#include "nvme_if/sysc/pcie_fabric.h"
#include "nvme_if/sysc/physical_memory.h"
#include "nvme_if/sysc/sc_sim_time.h"
#include "tests/support/sysc_fixture.h"

namespace csdsim::nvme::test {

inline constexpr PhysicalAddress kHostBase{0x1000'0000};
inline constexpr Bytes kHostSize = Bytes::mib(256);
inline constexpr PhysicalAddress kGpuBase{0x40'0000'0000};
inline constexpr Bytes kGpuSize = Bytes::mib(64);
/// The upper half of host DRAM holds the driver's queues, the lower half data.
inline constexpr PhysicalAddress kQueueBase{kHostBase.value + kHostSize.value / 2};

/// Executes block commands on RAM at once. What it does not know it completes with success (KV commands), after reading
/// and writing the whole buffer, so that every PRP is used.
class RamHandler : public CommandHandler {
 public:
  explicit RamHandler(const ControllerParams& params)
      : medium(params.namespace_blocks * params.block_size.value), params_(params) {}

  void execute(CommandPtr c) override {
    ++executed;
    if (hold) {
      held.push_back(c);
      return;
    }
    run(c);
  }

  void run(CommandPtr c) {
    const std::uint64_t block = params_.block_size.value;
    if (const auto* read = c->as<BlockRead>()) {
      c->complete_with_data(Bytes{0}, at(read->slba.value * block, c->io().data.value), [](Status) {});
    } else if (const auto* write = c->as<BlockWrite>()) {
      c->read_host(Bytes{0}, at(write->slba.value * block, c->io().data.value), [c](Status s) { c->complete(s); });
    } else if (c->io().data.value == 0) {
      c->complete(status::success);
    } else {
      auto buffer = std::make_shared<std::vector<std::byte>>(c->io().data.value);
      c->read_host(Bytes{0}, *buffer, [c, buffer](Status s) { c->complete(s); });
    }
  }

  void release() {
    hold = false;
    for (CommandPtr c : std::exchange(held, {})) run(c);
  }

  std::span<std::byte> at(std::uint64_t offset, std::uint64_t length) { return {medium.data() + offset, length}; }

  DriveHealth health() const override { return flash; }

  FdpCounts placement_counts() const override { return {.host_written = 1000, .media_written = 3000}; }

  DriveHealth flash;
  bool hold = false;
  std::vector<CommandPtr> held;
  std::uint64_t executed = 0;
  std::vector<std::byte> medium;

 private:
  ControllerParams params_;
};

struct PlatformParams {
  NvmeControllerParams controller = small_controller();
  NvmeDriverParams driver = small_driver();
  LinkConfig link;

  static NvmeControllerParams small_controller() {
    NvmeControllerParams p;
    p.controller.namespace_blocks = 8192;
    return p;
  }
  static NvmeDriverParams small_driver() {
    NvmeDriverParams p;
    p.queue_memory = {kQueueBase, Bytes{kHostSize.value / 2}};
    return p;
  }
};

/// Counts interrupts where no driver is bound.
class InterruptCounter : public sc_core::sc_module, public InterruptIf {
 public:
  explicit InterruptCounter(const sc_core::sc_module_name& name) : sc_module(name) {}
  void raise(InterruptVector vector) override { ++raised[vector.value]; }
  std::map<std::uint16_t, int> raised;
};

/// Drive, fabric and memories; the host side is up to the test.
struct Drive {
  csdsim::test::SyscFixture context;
  MemoryMap map;
  RegionId host_region = map.add({"host", kHostBase, kHostSize, RegionKind::host_dram});
  RegionId gpu_region = map.add({"gpu", kGpuBase, kGpuSize, RegionKind::gpu_memory});
  PhysicalMemory host{"host", kHostSize};
  PhysicalMemory gpu{"gpu", kGpuSize};
  PcieFabric fabric{"fabric", map};
  PcieDma dma;
  RamHandler handler;
  NvmeController controller;

  explicit Drive(const PlatformParams& p = {})
      : dma("dma", p.link, &map),
        handler(p.controller.controller),
        controller("controller", p.controller, dma, handler) {
    fabric.region(host_region).bind(host.target);
    fabric.region(gpu_region).bind(gpu.target);
    dma.memory.bind(fabric.target);
  }

  std::byte* host_at(PhysicalAddress a) { return host.bytes().data() + (a.value - kHostBase.value); }
  std::byte* gpu_at(PhysicalAddress a) { return gpu.bytes().data() + (a.value - kGpuBase.value); }
};

/// The whole platform with the driver.
struct Platform : Drive {
  NvmeDriver driver;

  explicit Platform(const PlatformParams& p = {}) : Drive(p), driver("driver", p.driver) {
    driver.bar.bind(controller.bar);
    driver.memory.bind(fabric.target);
    controller.interrupt.bind(driver);
  }

  /// Runs until nothing more happens.
  void run() {
    sc_core::sc_start();
    if (!driver.failure().empty()) throw std::runtime_error(driver.failure());
  }
};

/// A host of the user's own: raw accesses to BAR0 and its own rings in host memory, no NvmeDriver.
class RawHost : public sc_core::sc_module {
 public:
  tlm_utils::simple_initiator_socket<RawHost> bar;

  RawHost(const sc_core::sc_module_name& name, Drive& drive) : sc_module(name), bar("bar"), drive_(drive) {
    bar.bind(drive.controller.bar);
  }

  tlm::tlm_response_status access(bool write, std::uint64_t offset, void* data, unsigned size) {
    tlm::tlm_generic_payload p;
    p.set_command(write ? tlm::TLM_WRITE_COMMAND : tlm::TLM_READ_COMMAND);
    p.set_address(offset);
    p.set_data_ptr(static_cast<unsigned char*>(data));
    p.set_data_length(size);
    p.set_streaming_width(size);
    sc_core::sc_time delay;
    bar->b_transport(p, delay);
    return p.get_response_status();
  }
  std::uint32_t read32(std::uint64_t offset) {
    std::uint32_t v = 0;
    if (access(false, offset, &v, 4) != tlm::TLM_OK_RESPONSE) throw std::runtime_error("read refused");
    return v;
  }
  void write32(std::uint64_t offset, std::uint32_t v) {
    if (access(true, offset, &v, 4) != tlm::TLM_OK_RESPONSE) throw std::runtime_error("write refused");
  }
  void write64(std::uint64_t offset, std::uint64_t v) {
    if (access(true, offset, &v, 8) != tlm::TLM_OK_RESPONSE) throw std::runtime_error("write refused");
  }

  struct Ring {
    PhysicalAddress sq, cq;
    std::uint32_t depth = 0;
    std::uint32_t tail = 0;
    std::uint32_t head = 0;
    bool phase = true;
  };
  std::map<std::uint16_t, Ring> rings;
  PhysicalAddress next_page = kQueueBase;

  PhysicalAddress page(std::uint64_t bytes = 4096) {
    const PhysicalAddress p = next_page;
    next_page = p + Bytes{(bytes + 4095) / 4096 * 4096};
    return p;
  }

  /// Enables the controller with admin queues of `depth` entries.
  void enable(std::uint32_t depth = 16, Cc cc = {.en = true, .iosqes = 6, .iocqes = 4}) {
    Ring& r = rings[0] = {page(depth * 64u), page(depth * 16u), depth};
    std::memset(drive_.host_at(r.cq), 0, depth * 16u);
    write32(reg::aqa, encode_aqa(static_cast<std::uint16_t>(depth - 1), static_cast<std::uint16_t>(depth - 1)));
    write64(reg::asq, r.sq.value);
    write64(reg::acq, r.cq.value);
    write32(reg::cc, cc.encode());
  }

  void put(std::uint16_t queue, SubmissionEntry e, std::uint16_t cid) {
    e.cid = cid;
    put(queue, e);
  }
  void put(std::uint16_t queue, const SubmissionEntry& e) {
    Ring& r = rings.at(queue);
    std::memcpy(drive_.host_at(r.sq + Bytes{r.tail * 64u}), &e, 64);
    r.tail = (r.tail + 1) % r.depth;
  }
  void ring_sq(std::uint16_t queue) { write32(sq_tail_doorbell(QueueId{queue}, dstrd), rings.at(queue).tail); }
  void ring_cq(std::uint16_t queue) { write32(cq_head_doorbell(QueueId{queue}, dstrd), rings.at(queue).head); }

  /// Completions that have arrived; leaves the head doorbell alone.
  std::vector<CompletionEntry> reap(std::uint16_t queue) {
    Ring& r = rings.at(queue);
    std::vector<CompletionEntry> out;
    for (;;) {
      CompletionEntry e;
      std::memcpy(&e, drive_.host_at(r.cq + Bytes{r.head * 16u}), 16);
      if (e.phase() != r.phase) return out;
      out.push_back(e);
      if (++r.head == r.depth) {
        r.head = 0;
        r.phase = !r.phase;
      }
    }
  }

  /// Submits one command, runs the simulation and returns its completion.
  CompletionEntry execute(std::uint16_t queue, SubmissionEntry e) {
    put(queue, e);
    ring_sq(queue);
    sc_core::sc_start(sc_core::sc_time(1, sc_core::SC_MS));
    const std::vector<CompletionEntry> done = reap(queue);
    if (done.size() != 1) throw std::runtime_error("expected one completion, found " + std::to_string(done.size()));
    if (done[0].cid != e.cid) throw std::runtime_error("completion of another command");
    ring_cq(queue);
    return done[0];
  }
  Status admin(SubmissionEntry e) { return execute(0, e).code(); }

  /// Creates I/O queue pair `id`.
  void create_queue(std::uint16_t id, std::uint32_t depth) {
    Ring& r = rings[id] = {page(depth * 64u), page(depth * 16u), depth};
    std::memset(drive_.host_at(r.cq), 0, depth * 16u);
    SubmissionEntry e = encode_create_io_cq(QueueId{id}, depth, InterruptVector{id});
    e.prp1 = r.cq.value;
    if (!admin(e).ok()) throw std::runtime_error("create cq");
    e = encode_create_io_sq(QueueId{id}, depth, QueueId{id});
    e.prp1 = r.sq.value;
    if (!admin(e).ok()) throw std::runtime_error("create sq");
  }

  std::uint8_t dstrd = 0;

 private:
  Drive& drive_;
};

struct RawPlatform : Drive {
  RawHost raw{"raw", *this};
  InterruptCounter interrupts{"interrupts"};

  explicit RawPlatform(const PlatformParams& p = {}) : Drive(p) { controller.interrupt.bind(interrupts); }
};

/// A controller that its raw host has enabled.
struct EnabledPlatform : RawPlatform {
  explicit EnabledPlatform(const PlatformParams& p = {}) : RawPlatform(p) {
    sc_core::sc_start(sc_core::SC_ZERO_TIME);
    raw.enable();
  }
};

inline void run_a_while() { sc_core::sc_start(sc_core::sc_time(1, sc_core::SC_MS)); }

inline SubmissionEntry flush(std::uint16_t cid) {
  SubmissionEntry e = encode_flush(NamespaceId{1});
  e.cid = cid;
  return e;
}

}  // namespace csdsim::nvme::test
