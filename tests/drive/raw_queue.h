// An I/O queue pair that a test keeps itself: any 64 bytes can be submitted, malformed PRPs included.
#pragma once

#include "tests/drive/drive_host.h"

namespace csdsim::test {

/// Takes the driver's last queue pair away from it and makes one of 8 entries in its place.
class RawQueue {
 public:
  explicit RawQueue(DriveHost& host)
      : host_(host), id_{host.driver().queues()}, sq_(host.buffer(Bytes::kib(4))), cq_(host.buffer(Bytes::kib(4))) {
    admin(nvme::encode_delete_io_sq(id_), {});
    admin(nvme::encode_delete_io_cq(id_), {});
    admin(nvme::encode_create_io_cq(id_, kDepth, nvme::InterruptVector{0}, false), cq_);
    admin(nvme::encode_create_io_sq(id_, kDepth, id_), sq_);
  }

  nvme::QueueId id() const { return id_; }

  /// Submits the entry as it is and runs until it is done.
  nvme::Status run(nvme::SubmissionEntry entry) {
    entry.cid = static_cast<std::uint16_t>(0x100 + tail_);
    host_.put(sq_.address + Bytes{tail_ * sizeof entry}, std::vector{entry});
    tail_ = (tail_ + 1) % kDepth;
    ring(nvme::sq_tail_doorbell(id_, 0), tail_);
    DriveHost::settle();
    const auto cqe = host_.get<nvme::CompletionEntry>(cq_.address + Bytes{head_ * sizeof(nvme::CompletionEntry)}, 1)[0];
    if (cqe.phase() != phase_ || cqe.cid != entry.cid) throw std::runtime_error("no completion");
    if (++head_ == kDepth) {
      head_ = 0;
      phase_ = !phase_;
    }
    ring(nvme::cq_head_doorbell(id_, 0), head_);
    return cqe.code();
  }

  /// A 4-byte write to BAR0.
  tlm::tlm_response_status ring(std::uint64_t offset, std::uint32_t value) {
    tlm::tlm_generic_payload p;
    p.set_command(tlm::TLM_WRITE_COMMAND);
    p.set_address(offset);
    p.set_data_ptr(reinterpret_cast<unsigned char*>(&value));
    p.set_data_length(4);
    p.set_streaming_width(4);
    sc_core::sc_time delay;
    host_.driver().bar->b_transport(p, delay);
    return p.get_response_status();
  }

  std::uint32_t tail() const { return tail_; }
  static constexpr std::uint32_t kDepth = 8;

 private:
  void admin(const nvme::SubmissionEntry& entry, nvme::Segment page) {
    if (!host_.run(entry, page, 0).ok()) throw std::runtime_error("admin command failed");
  }

  DriveHost& host_;
  nvme::QueueId id_;
  nvme::Segment sq_, cq_;
  std::uint32_t tail_ = 0;
  std::uint32_t head_ = 0;
  bool phase_ = true;
};

}  // namespace csdsim::test
