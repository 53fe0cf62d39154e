#include "csd_model/firmware/peer_reads.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "attention_engine/core/phase_intake.h"
#include "base/error.h"
#include "base/param.h"
#include "base/statistics.h"
#include "nfc/sysc/flash_payload.h"
#include "simulation/sim_time.h"

namespace csdsim::csd_model {

void describe(ParamVisitor& v, PeerReadConfig& c) {
  v.param("request_size", c.request_size, {Bytes{512}, Bytes::gib(1)},
          "Largest read request to the SSD controller; a head's pages of a phase are read in such requests. A multiple "
          "of a "
          "page, or of a codeword where pages have them.",
          assumed("where the published rates of single requests are near their maximum"));
  v.param("command_time", c.command_time, {SimTime{}, SimTime::milliseconds(10)},
          "Time of a request before its first page is read.", assumed("that of a command in the SSD controller"));
  v.param("outstanding", c.outstanding, {1, 65'536}, "Requests on their way at the same time.",
          assumed("enough to keep the link busy"));
  v.param(
      "bandwidth", c.bandwidth, {Bandwidth{1'000'000}, Bandwidth{10'000'000'000'000}},
      "Of the link between the SSD controller and the switch, in each direction: requests of the FPGA, data of block "
      "commands and appended K and V share it.",
      paper("HillInfer 5.2: 3.2 GB/s peak"));
  v.param("request_bandwidth", c.request_bandwidth, {Bandwidth{1'000'000}, Bandwidth{10'000'000'000'000}},
          "Of one request.", calibrated("published: 2.36 GB/s with one request of 128 MiB at a time"));
  v.param("dram_bandwidth", c.dram_bandwidth, {Bandwidth{1'000'000}, Bandwidth{10'000'000'000'000}},
          "Of the FPGA's DRAM, to which each page is written and from which it is read once.",
          assumed("one channel of DDR4-2400, 64 bits wide; HillInfer states 4 GB of DDR4"));
}

PeerReads::PeerReads(const sc_core::sc_module_name& name, const PeerReadConfig& config, const Pieces& pieces,
                     FlashIo& flash, InternalLink& link, MapLookups& lookups, DriveActivity& activity)
    : sc_module(name),
      config_(config),
      pieces_(pieces),
      request_pieces_(config.request_size.value / pieces.size.value),
      flash_(flash),
      link_(link),
      lookups_(lookups),
      activity_(activity) {
  engine.register_nb_transport_fw(this, &PeerReads::from_engine);
}

tlm::tlm_sync_enum PeerReads::from_engine(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time&) {
  if (phase != tlm::BEGIN_REQ) return tlm::TLM_COMPLETED;  // END_RESP
  const auto* batch = payload.get_extension<nfc::FlashBatch>();
  if (batch == nullptr || batch->ops.empty()) {
    payload.set_response_status(tlm::TLM_GENERIC_ERROR_RESPONSE);
    return tlm::TLM_COMPLETED;
  }
  hold_.engage();
  if (payload.has_mm()) payload.acquire();
  activity_.engine_pages(+1, sim_time_now());
  const auto respond = [this, &payload](Bytes, bool last) {
    if (!last) return;
    activity_.engine_pages(-1, sim_time_now());
    payload.set_response_status(tlm::TLM_OK_RESPONSE);
    tlm::tlm_phase response = tlm::BEGIN_RESP;
    sc_core::sc_time no_delay;
    engine->nb_transport_bw(payload, response, no_delay);
    if (payload.has_mm()) payload.release();
  };
  read(batch->ops, batch->lookups, respond);
  phase = tlm::END_REQ;
  return tlm::TLM_UPDATED;
}

void PeerReads::read(std::span<const PageOp> ops, std::uint64_t lookups, Arrived arrived) {
  const std::uint32_t batch = batches_.put({0, std::move(arrived)});
  std::vector<Found> found(1);
  std::vector<PageOp> request;
  std::uint64_t room = request_pieces_;
  const auto add = [&] {
    found.back().requests.push_back(add_request(batch, std::move(request)));
    request.clear();
    room = request_pieces_;
  };
  for (std::size_t page = 0; page < ops.size(); ++page) {
    PageOp op = ops[page];
    if (!found.back().requests.empty()) found.push_back({.first = page, .end = page, .requests = {}});
    ++found.back().end;
    // A page may begin in one request and end in others.
    for (std::uint64_t left = op.channel_bytes; left > 0;) {
      const std::uint64_t taken = std::min(left, room * pieces_.size.value);
      op.channel_bytes = static_cast<std::uint32_t>(taken);
      request.push_back(op);
      left -= taken;
      room -= (taken + pieces_.size.value - 1) / pieces_.size.value;
      if (room == 0) add();
    }
  }
  if (!request.empty()) add();
  for (Found& part : found)
    lookups_.run(engine::lookups_of_pages(lookups, ops.size(), part.first, part.end), nullptr,
                 [this, requests = std::move(part.requests)] {
                   waiting_.insert(waiting_.end(), requests.begin(), requests.end());
                   start_requests();
                 });
}

std::uint32_t PeerReads::add_request(std::uint32_t batch, std::vector<PageOp>&& ops) {
  const std::size_t pages = ops.size();
  Bytes size;
  for (const PageOp& op : ops) size += Bytes{op.channel_bytes};
  ++batches_[batch].requests;
  return requests_.put(
      {.batch = batch, .ops = std::move(ops), .size = size, .missing = pages, .arrivals = {}, .stored = {}});
}

void PeerReads::start_requests() {
  while (running_ < config_.outstanding && !waiting_.empty()) {
    const std::uint32_t request = waiting_.front();
    waiting_.pop_front();
    ++running_;
    ++stats_.requests;
    timed_.at(sim_time_now() + config_.command_time, [this, request] { read_pages(request); });
  }
}

void PeerReads::read_pages(std::uint32_t request) {
  const std::vector<PageOp> ops = std::move(requests_[request].ops);
  for (const PageOp& op : ops) {
    activity_.begin_reads({&op, 1}, sim_time_now());
    flash_.submit({&op, 1}, *this, std::uint64_t{request} << 32 | op.channel_bytes);
  }
}

void PeerReads::flash_done(std::uint64_t tag, const FlashStages& stages) {
  activity_.end_reads(stages, sim_time_now());
  Request& request = requests_[tag >> 32];
  // The pieces of a page came one after the other, the last one now.
  std::uint64_t left = tag & 0xFFFF'FFFF;
  stats_.bytes += left;
  const auto before = static_cast<std::int64_t>((left - 1) / pieces_.size.value);
  for (SimTime at = sim_time_now() - pieces_.interval * before; left > 0; at += pieces_.interval) {
    const Bytes piece = std::min(pieces_.size, Bytes{left});
    const SimTime crossing = transfer_time(piece, config_.bandwidth);
    stats_.busy += crossing;
    request.arrivals.push_back({at, piece});
    // The engine, or the DMA of a fetch, reads it once.
    const SimTime crossed = link_.pass(nvme::LinkDirection::to_host, piece, at + crossing);
    request.stored = std::max(request.stored, dram_.pass(piece * 2, config_.dram_bandwidth, crossed));
    left -= piece.value;
  }
  if (--request.missing > 0) return;
  timed_.at(end_of(request), [this, number = static_cast<std::uint32_t>(tag >> 32)] { request_done(number); });
}

/// When all pieces have passed at the rate of a request, in the order of their arrival, and are in the FPGA's DRAM.
SimTime PeerReads::end_of(Request& request) const {
  std::ranges::sort(request.arrivals, {}, &Arrival::at);
  SimTime end{};
  for (const Arrival& piece : request.arrivals)
    end = std::max(end, piece.at) + transfer_time(piece.size, config_.request_bandwidth);
  return std::max(end, request.stored);
}

void PeerReads::request_done(std::uint32_t request) {
  const std::uint32_t number = requests_[request].batch;
  const Bytes size = requests_[request].size;
  requests_.give_back(request);
  --running_;
  start_requests();
  const bool last = --batches_[number].requests == 0;
  // The callback may read more, which moves the batches.
  Arrived arrived = std::move(batches_[number].arrived);
  arrived(size, last);
  if (last)
    batches_.give_back(number);
  else
    batches_[number].arrived = std::move(arrived);
}

void PeerReads::register_statistics(Statistics& s) const {
  s.counter("requests", stats_.requests, "requests", "Read requests of the FPGA to the SSD controller.");
  s.counter("bytes", stats_.bytes, "B", "Bytes of pages that crossed the switch to the FPGA's DRAM.");
  s.time("busy", stats_.busy, "Time that these pages took on the link from the SSD controller to the switch.");
  s.counter("dram_bytes", dram_.stats().bytes, "B", "Bytes written to the FPGA's DRAM, and read from it.");
  s.time("dram_busy", dram_.stats().busy, "Time that the FPGA's DRAM moved them.");
}

}  // namespace csdsim::csd_model
