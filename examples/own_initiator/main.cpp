// The drive in a SystemC platform of your own: your initiator on its BAR0, your memory behind its DMA, your interrupt
// handler. The host below does by hand what an NVMe driver does (NVMe Base Specification 1.4, sections 3.1 and 7.6.1):
// it takes the wire format from nvme_if/spec and nothing else from csdsim.
//
// Exit code 0: the block that was read is the block that was written.
#include <tlm_utils/simple_initiator_socket.h>
#include <tlm_utils/simple_target_socket.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <systemc>
#include <tlm>
#include <vector>

#include "csd_model/drive.h"
#include "nvme_if/spec/encode.h"
#include "nvme_if/spec/identify.h"
#include "nvme_if/spec/registers.h"

using namespace csdsim::nvme;
using sc_core::sc_time;

/// Host DRAM: 1 MiB from address 0, 80 ns per access. The latency is annotated on the delay; a b_transport that waits
/// would also work, since the drive calls it from a thread.
class HostMemory : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<HostMemory> socket{"socket"};
  std::vector<unsigned char> bytes = std::vector<unsigned char>(1 << 20);

  explicit HostMemory(const sc_core::sc_module_name& name) : sc_module(name) {
    socket.register_b_transport(this, &HostMemory::b_transport);
  }

 private:
  void b_transport(tlm::tlm_generic_payload& payload, sc_time& delay) {
    const std::uint64_t address = payload.get_address();
    const unsigned length = payload.get_data_length();
    if (address > bytes.size() || length > bytes.size() - address)
      return payload.set_response_status(tlm::TLM_ADDRESS_ERROR_RESPONSE);  // the command gets data_transfer_error
    if (payload.is_write())
      std::memcpy(&bytes[address], payload.get_data_ptr(), length);
    else
      std::memcpy(payload.get_data_ptr(), &bytes[address], length);
    delay += sc_time(80, sc_core::SC_NS);
    payload.set_response_status(tlm::TLM_OK_RESPONSE);
  }
};

/// A pair of rings in host memory. Queue `id` completes to completion queue `id` with interrupt vector `id`.
struct QueuePair {
  QueueId id;
  std::uint64_t sq;  ///< address of the 64-byte submission entries
  std::uint64_t cq;  ///< address of the 16-byte completion entries
  std::uint32_t depth;
  std::uint32_t tail = 0;
  std::uint32_t head = 0;
  bool phase = true;  ///< phase bit of new entries; the queue's memory starts zeroed
};

/// The host's processor and its program. It may wait, because it is an SC_THREAD; raise() may not.
class Host : public sc_core::sc_module, public InterruptIf {
 public:
  tlm_utils::simple_initiator_socket<Host> bar{"bar"};
  std::string failure = "the program did not come to its end";

  Host(const sc_core::sc_module_name& name, HostMemory& memory) : sc_module(name), memory_(memory) { SC_THREAD(run); }

  void raise(InterruptVector) override { interrupt_.notify(sc_core::SC_ZERO_TIME); }

 private:
  SC_HAS_PROCESS(Host);

  void run() {
    try {
      program();
      failure.clear();
    } catch (const std::exception& error) {
      failure = error.what();
    }
  }

  void program() {
    // Reset: CC.EN to 0, wait for CSTS.RDY = 0. Then the admin queues, CC.EN to 1, wait for CSTS.RDY = 1.
    const Cap cap = Cap::decode(read(reg::cap, 8));
    stride_ = cap.dstrd;
    write(reg::cc, 4, 0);
    wait_for_ready(false);
    QueuePair admin{.id = QueueId{0}, .sq = 0x1000, .cq = 0x2000, .depth = 16};
    const auto entries = static_cast<std::uint16_t>(admin.depth - 1);
    write(reg::aqa, 4, encode_aqa(entries, entries));
    write(reg::asq, 8, admin.sq);
    write(reg::acq, 8, admin.cq);
    write(reg::cc, 4, Cc{.en = true, .iosqes = 6, .iocqes = 4}.encode());  // entries of 2^6 and 2^4 bytes
    wait_for_ready(true);

    constexpr std::uint64_t kIdentify = 0x10000;
    execute(admin, encode_identify(cns::identify_controller), kIdentify);
    IdentifyController controller;
    std::memcpy(&controller, &memory_.bytes[kIdentify], sizeof controller);
    std::printf("model      %.40s\n", controller.mn.data());
    std::printf("KV cache   %s\n", controller.kv_magic == kKvMagic ? "yes: attention runs in this drive" : "no");
    execute(admin, encode_identify(cns::identify_namespace, NamespaceId{1}), kIdentify);
    IdentifyNamespace name_space;
    std::memcpy(&name_space, &memory_.bytes[kIdentify], sizeof name_space);
    const std::size_t block = std::size_t{1} << name_space.lbaf[name_space.flbas & 0xF].lbads;
    std::printf("namespace  %llu blocks of %zu bytes\n", static_cast<unsigned long long>(name_space.nsze), block);

    // The completion queue comes first: the submission queue names it. PRP1 of both is where the ring lies.
    QueuePair io{.id = QueueId{1}, .sq = 0x3000, .cq = 0x4000, .depth = 32};
    execute(admin, encode_create_io_cq(io.id, io.depth, InterruptVector{io.id.value}), io.cq);
    execute(admin, encode_create_io_sq(io.id, io.depth, io.id), io.sq);

    // A block that fits a memory page (4 KiB) needs PRP1 only; two pages need PRP2, more of them a list.
    if (block > 4096) throw std::runtime_error("this program expects blocks of at most 4 KiB");
    constexpr std::uint64_t kOut = 0x20000, kBack = 0x30000;
    for (std::size_t i = 0; i < block; ++i) memory_.bytes[kOut + i] = static_cast<unsigned char>(i * 131 + (i >> 8));
    const sc_time written = execute(io, encode_block_io(nvm_opcode::write, NamespaceId{1}, Lba{42}, 1), kOut);
    const sc_time read_back = execute(io, encode_block_io(nvm_opcode::read, NamespaceId{1}, Lba{42}, 1), kBack);
    std::printf("write      %.3f us\nread       %.3f us\n", written.to_seconds() * 1e6, read_back.to_seconds() * 1e6);
    if (std::memcmp(&memory_.bytes[kOut], &memory_.bytes[kBack], block) != 0)
      throw std::runtime_error("what was read is not what was written");
  }

  void wait_for_ready(bool ready) {
    while (Csts::decode(static_cast<std::uint32_t>(read(reg::csts, 4))).rdy != ready) wait(1, sc_core::SC_US);
  }

  /// Puts a command into the ring, rings the doorbell, and sleeps until its completion is there. Returns how long that
  /// took.
  sc_time execute(QueuePair& queue, SubmissionEntry entry, std::uint64_t prp1) {
    const sc_time start = sc_core::sc_time_stamp();
    entry.cid = next_cid_++;
    entry.prp1 = prp1;
    std::memcpy(&memory_.bytes[queue.sq + queue.tail * sizeof entry], &entry, sizeof entry);
    queue.tail = (queue.tail + 1) % queue.depth;
    write(sq_tail_doorbell(queue.id, stride_), 4, queue.tail);

    CompletionEntry done;
    for (;;) {
      std::memcpy(&done, &memory_.bytes[queue.cq + queue.head * sizeof done], sizeof done);
      if (done.phase() == queue.phase) break;
      wait(interrupt_);
    }
    queue.head = (queue.head + 1) % queue.depth;
    if (queue.head == 0) queue.phase = !queue.phase;
    write(cq_head_doorbell(queue.id, stride_), 4, queue.head);
    if (done.cid != entry.cid) throw std::runtime_error("completion of another command");
    if (!done.code().ok()) throw std::runtime_error("status " + std::string(status_name(done.code())));
    return sc_core::sc_time_stamp() - start;
  }

  // Registers are accessed in 4 or 8 bytes; the drive answers without waiting.
  std::uint64_t read(std::uint64_t offset, unsigned size) { return access(tlm::TLM_READ_COMMAND, offset, size, 0); }
  void write(std::uint64_t offset, unsigned size, std::uint64_t value) {
    access(tlm::TLM_WRITE_COMMAND, offset, size, value);
  }
  std::uint64_t access(tlm::tlm_command command, std::uint64_t offset, unsigned size, std::uint64_t value) {
    tlm::tlm_generic_payload payload;
    payload.set_command(command);
    payload.set_address(offset);
    payload.set_data_ptr(reinterpret_cast<unsigned char*>(&value));
    payload.set_data_length(size);
    payload.set_streaming_width(size);
    sc_time delay;
    bar->b_transport(payload, delay);
    if (!payload.is_response_ok()) throw std::runtime_error("BAR0: " + payload.get_response_string());
    return value;
  }

  HostMemory& memory_;
  sc_core::sc_event interrupt_;
  std::uint8_t stride_ = 0;  ///< CAP.DSTRD
  std::uint16_t next_cid_ = 0;
};

int sc_main(int, char*[]) {
  HostMemory memory("memory");
  Host host("host", memory);
  csd_model::Drive drive("drive", csd_model::DriveConfig{});
  host.bar.bind(drive.bar);
  drive.dma.bind(memory.socket);
  drive.interrupt.bind(host);

  sc_core::sc_start();
  std::printf("flash      %llu page operations\n", static_cast<unsigned long long>(drive.totals().page_ops));
  if (!host.failure.empty()) std::fprintf(stderr, "own_initiator: %s\n", host.failure.c_str());
  return host.failure.empty() ? 0 : 1;
}
