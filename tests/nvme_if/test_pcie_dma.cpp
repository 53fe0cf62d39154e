// The DMA engine on memories that answer at once, wait, annotate a delay, or refuse.
#include <catch2/catch.hpp>

#include "tests/nvme_if/platform.h"

namespace test_pcie_dma {

using namespace csdsim;
using namespace csdsim::nvme;
using namespace csdsim::nvme::test;

namespace {

/// A user's memory model with its own way of taking time.
class SlowMemory : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<SlowMemory> target;
  SlowMemory(const sc_core::sc_module_name& name, sc_core::sc_time waits, sc_core::sc_time annotates)
      : sc_module(name), target("target"), bytes(1 << 20), waits_(waits), annotates_(annotates) {
    target.register_b_transport(this, &SlowMemory::b_transport);
  }
  std::vector<unsigned char> bytes;
  int accesses = 0;
  int answered = 1 << 20;  ///< accesses after these get no response status

 private:
  void b_transport(tlm::tlm_generic_payload& p, sc_core::sc_time& delay) {
    ++accesses;
    if (waits_ != sc_core::SC_ZERO_TIME) wait(waits_);
    delay += annotates_;
    if (p.is_read())
      std::memcpy(p.get_data_ptr(), &bytes[p.get_address()], p.get_data_length());
    else
      std::memcpy(&bytes[p.get_address()], p.get_data_ptr(), p.get_data_length());
    if (accesses <= answered) p.set_response_status(tlm::TLM_OK_RESPONSE);
  }
  sc_core::sc_time waits_;
  sc_core::sc_time annotates_;
};

/// Runs a function in an SC_METHOD when the simulation starts.
class AtStart : public sc_core::sc_module {
 public:
  AtStart(const sc_core::sc_module_name& name, std::function<void()> f) : sc_module(name), f_(std::move(f)) {
    SC_METHOD(go);
  }

 private:
  SC_HAS_PROCESS(AtStart);
  void go() { f_(); }
  std::function<void()> f_;
};

class Initiator : public sc_core::sc_module {
 public:
  tlm_utils::simple_initiator_socket<Initiator> socket;
  explicit Initiator(const sc_core::sc_module_name& name) : sc_module(name), socket("socket") {}
};

constexpr LinkConfig kOneGigabyte{.bandwidth = Bandwidth{1'000'000'000}};  // 1 ns a byte

struct Done {
  Status status;
  SimTime at{-1};
};

}  // namespace

TEST_CASE("a transfer ends with the link, plus what the memory takes for each segment") {
  const auto waits = GENERATE(0, 1);
  csdsim::test::SyscFixture context;
  const sc_core::sc_time slow(300, sc_core::SC_NS);
  PcieDma dma("dma", kOneGigabyte);
  SlowMemory memory("memory", waits ? slow : sc_core::SC_ZERO_TIME, waits ? sc_core::SC_ZERO_TIME : slow);
  dma.memory.bind(memory.target);
  std::vector<std::byte> local(3000);
  for (std::size_t i = 0; i < local.size(); ++i) local[i] = static_cast<std::byte>(i * 7);
  const std::vector<Segment> segments{{PhysicalAddress{0x100}, Bytes{1000}}, {PhysicalAddress{0x2000}, Bytes{2000}}};
  Done write;
  Done read;
  std::vector<std::byte> back(3000);
  AtStart start("start", [&] {
    dma.write(segments, Bytes{0}, Bytes{3000}, local.data(), [&](Status s) {
      write = {s, sim_now()};
      dma.read(segments, Bytes{0}, Bytes{3000}, back.data(), [&](Status r) { read = {r, sim_now()}; });
    });
  });
  sc_core::sc_start();
  CHECK(write.status.ok());
  // First segment: 1000 + 300; second: the link is through at 3000, then 300 more.
  CHECK(write.at == SimTime::nanoseconds(3300));
  CHECK(read.at == SimTime::nanoseconds(6600));
  CHECK(back == local);
  CHECK(memory.accesses == 4);
}

TEST_CASE("a memory slower than the link sets the pace") {
  csdsim::test::SyscFixture context;
  PcieDma dma("dma", kOneGigabyte);
  SlowMemory memory("memory", sc_core::sc_time(5, sc_core::SC_US), sc_core::SC_ZERO_TIME);
  dma.memory.bind(memory.target);
  std::vector<std::byte> local(4096);
  const Segment a{PhysicalAddress{0}, Bytes{1000}};
  const Segment b{PhysicalAddress{4096}, Bytes{1000}};
  Done first;
  Done second;
  AtStart start("start", [&] {
    dma.write({&a, 1}, Bytes{0}, Bytes{1000}, local.data(), [&](Status s) { first = {s, sim_now()}; });
    dma.write({&b, 1}, Bytes{0}, Bytes{1000}, local.data(), [&](Status s) { second = {s, sim_now()}; });
  });
  sc_core::sc_start();
  CHECK(first.at == SimTime::nanoseconds(6000));
  CHECK(second.at == SimTime::nanoseconds(11000));
}

TEST_CASE("transfers of a direction pipeline, directions do not wait for each other") {
  RawPlatform drive({.link = kOneGigabyte});
  std::vector<std::byte> local(8192);
  const Segment s{kHostBase, Bytes{4096}};
  std::vector<SimTime> writes;
  SimTime read;
  AtStart start("start", [&] {
    for (int i = 0; i < 3; ++i)
      drive.dma.write({&s, 1}, Bytes{0}, Bytes{4096}, local.data(), [&](Status) { writes.push_back(sim_now()); });
    drive.dma.read({&s, 1}, Bytes{0}, Bytes{4096}, local.data() + 4096, [&](Status) { read = sim_now(); });
  });
  sc_core::sc_start();
  CHECK(writes == std::vector{SimTime::nanoseconds(4096), SimTime::nanoseconds(8192), SimTime::nanoseconds(12288)});
  CHECK(read == SimTime::nanoseconds(4096));
  CHECK(drive.map.traffic(drive.host_region).bytes_to_region == 3 * 4096);
  CHECK(drive.map.traffic(drive.host_region).bytes_from_region == 4096);
}

TEST_CASE("timing-only transfers take the same time and touch no memory") {
  const bool timing = GENERATE(false, true);
  csdsim::test::SyscFixture context;
  PcieDma dma("dma", LinkConfig{.generation = 4, .lanes = 4, .latency = SimTime::nanoseconds(200)});
  SlowMemory memory("memory", sc_core::SC_ZERO_TIME, sc_core::SC_ZERO_TIME);
  dma.memory.bind(memory.target);
  std::vector<std::byte> local(8192);
  const std::vector<Segment> segments{{PhysicalAddress{0x100}, Bytes{1000}}, {PhysicalAddress{0x2000}, Bytes{7192}}};
  Done done;
  AtStart start("start", [&] {
    dma.read(segments, Bytes{500}, Bytes{7000}, timing ? nullptr : local.data(), [&](Status s) {
      done = {s, sim_now()};
    });
  });
  sc_core::sc_start();
  PcieLink link(dma.link().config());
  link.reserve_read(Bytes{500}, SimTime{0});
  CHECK(done.at == link.reserve_read(Bytes{6500}, SimTime{0}).arrival);
  CHECK(memory.accesses == (timing ? 0 : 2));
}

TEST_CASE("memory that is not there fails the transfer, also in timing-only runs") {
  const bool timing = GENERATE(false, true);
  RawPlatform drive({.link = kOneGigabyte});
  std::vector<std::byte> local(8192);
  std::byte* buffer = timing ? nullptr : local.data();
  const std::vector<Segment> segments{{kHostBase, Bytes{4096}}, {PhysicalAddress{0x10}, Bytes{4096}}};
  Done bad;
  Done good;
  AtStart start("start", [&] {
    drive.dma.write(segments, Bytes{0}, Bytes{8192}, buffer, [&](Status s) { bad = {s, sim_now()}; });
    drive.dma.write(segments, Bytes{0}, Bytes{4096}, buffer, [&](Status s) { good = {s, sim_now()}; });
  });
  sc_core::sc_start();
  CHECK(bad.status == status::data_transfer_error);
  CHECK(bad.at == SimTime::nanoseconds(4096));
  CHECK(good.status.ok());
  CHECK(good.at == SimTime::nanoseconds(8192));
}

TEST_CASE("without a map the memory's refusal fails the transfer") {
  csdsim::test::SyscFixture context;
  PcieDma dma("dma", kOneGigabyte);
  PhysicalMemory memory("memory", Bytes{4096});
  dma.memory.bind(memory.target);
  std::vector<std::byte> local(16);
  const Segment s{PhysicalAddress{4090}, Bytes{16}};
  Done done;
  AtStart start("start", [&] {
    dma.read({&s, 1}, Bytes{0}, Bytes{16}, local.data(), [&](Status r) { done = {r, sim_now()}; });
  });
  sc_core::sc_start();
  CHECK(done.status == status::data_transfer_error);
}

TEST_CASE("an access without a response fails its transfer, also after one that succeeded") {
  csdsim::test::SyscFixture context;
  PcieDma dma("dma", kOneGigabyte);
  SlowMemory memory("memory", sc_core::SC_ZERO_TIME, sc_core::SC_ZERO_TIME);
  memory.answered = 1;
  dma.memory.bind(memory.target);
  std::vector<std::byte> local(16);
  const Segment s{PhysicalAddress{0}, Bytes{16}};
  Done first;
  Done second;
  AtStart start("start", [&] {
    dma.read({&s, 1}, Bytes{0}, Bytes{16}, local.data(), [&](Status r) { first = {r, sim_now()}; });
    dma.read({&s, 1}, Bytes{0}, Bytes{16}, local.data(), [&](Status r) { second = {r, sim_now()}; });
  });
  sc_core::sc_start();
  CHECK(memory.accesses == 2);
  CHECK(first.status.ok());
  CHECK(second.status == status::data_transfer_error);
}

TEST_CASE("the fabric routes, and grants direct access within a region") {
  RawPlatform drive;
  Initiator initiator("initiator");
  auto& host = initiator.socket;
  host.bind(drive.fabric.target);
  sc_core::sc_start(sc_core::SC_ZERO_TIME);
  tlm::tlm_generic_payload p;
  unsigned char value[4] = {1, 2, 3, 4};
  p.set_command(tlm::TLM_WRITE_COMMAND);
  p.set_data_ptr(value);
  p.set_data_length(4);
  p.set_streaming_width(4);
  p.set_address(kGpuBase.value + 100);
  CHECK(host->transport_dbg(p) == 4);
  CHECK(std::memcmp(drive.gpu_at(kGpuBase + Bytes{100}), value, 4) == 0);
  CHECK(p.get_address() == kGpuBase.value + 100);
  p.set_address(kGpuBase.value + kGpuSize.value - 2);
  CHECK(host->transport_dbg(p) == 0);
  sc_core::sc_time delay;
  host->b_transport(p, delay);
  CHECK(p.get_response_status() == tlm::TLM_ADDRESS_ERROR_RESPONSE);
  tlm::tlm_dmi dmi;
  p.set_address(kGpuBase.value + 100);
  REQUIRE(host->get_direct_mem_ptr(p, dmi));
  CHECK(dmi.get_start_address() == kGpuBase.value);
  CHECK(dmi.get_end_address() == kGpuBase.value + kGpuSize.value - 1);
  CHECK(dmi.get_dmi_ptr()[100] == 1);
  p.set_address(0);
  CHECK_FALSE(host->get_direct_mem_ptr(p, dmi));
}

}  // namespace test_pcie_dma
