// Random flash workloads, each a pure function of its seed, and an initiator that plays them on one or more drives.
#pragma once

#include <tlm_utils/simple_initiator_socket.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <queue>
#include <random>
#include <systemc>
#include <tuple>
#include <vector>

#include "nfc/core/flash_timing.h"
#include "nfc/sysc/flash_payload.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::test {

class Rng {
 public:
  explicit Rng(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t below(std::uint64_t n) { return engine_() % n; }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
  }
  bool chance(int percent) { return below(100) < static_cast<std::uint64_t>(percent); }

 private:
  std::mt19937_64 engine_;
};

struct Workload {
  std::uint64_t seed;
  FlashGeometry geometry;
  nfc::FlashTiming timing;
  std::uint32_t batches;     ///< in all, over all drives
  std::uint32_t initial;     ///< batches injected at random times; the others come when something completes
  std::uint32_t max_batch;   ///< page operations
  SimTime arrival_span;      ///< initial ones arrive within
  std::uint32_t hot_planes;  ///< operations go to that many planes: small numbers make queues
  int read_percent, program_percent;
  int think_percent;      ///< reactions that come later rather than at the completion
  int annotated_percent;  ///< submissions with an annotated delay
  int late_end_percent;   ///< responses that the initiator ends later
  int retry_percent;      ///< reads with retries
  int hold_percent;       ///< batches that hold their page buffers, and are released at once or later
};

/// Switches each feature of the flash on or off; durations are multiples of `tick` up to `span`.
inline void random_features(Rng& rng, nfc::FlashTiming& t, SimTime tick, std::int64_t span) {
  const auto time = [&](std::int64_t low) { return tick * rng.between(low, span); };
  if (rng.chance(40)) t.retry_latency = time(0);
  if (rng.chance(50)) {
    nfc::PageTypesConfig& types = t.page_types.emplace();
    for (std::int64_t n = rng.between(1, 4); n > 0; --n) {
      types.read_latency.push_back(time(0));
      types.program_latency.push_back(5 * time(1));
    }
  }
  if (rng.chance(60)) t.plane_mode = rng.chance(50) ? nfc::PlaneMode::multi_plane : nfc::PlaneMode::independent_reads;
  t.cache = nfc::CacheConfig{.read = rng.chance(40), .program = rng.chance(40), .busy_time = {}};
  if (rng.chance(50)) t.cache->busy_time = time(0);
  if (rng.chance(45)) {
    t.suspend = nfc::SuspendConfig{.kinds = static_cast<nfc::Suspend>(rng.below(3)),
                                   .latency = time(0),
                                   .resume_latency = time(0),
                                   .max = static_cast<std::uint32_t>(rng.between(1, 4))};
  }
  if (rng.chance(50)) {
    std::vector<OpClass> classes{OpClass::gc, OpClass::host, OpClass::map, OpClass::flush, OpClass::attend};
    std::rotate(classes.begin(), classes.begin() + rng.between(0, 4), classes.end());
    classes.resize(static_cast<std::size_t>(rng.between(1, 5)));
    t.class_priority = classes;
  }
  if (rng.chance(40)) t.plane_order = nfc::PlaneOrder::reads_first;
  if (rng.chance(40)) t.status_time = time(0);
  if (rng.chance(40)) {
    t.packages = nfc::PackagesConfig{.dies = static_cast<std::uint32_t>(rng.between(1, 4)), .select_time = time(0)};
  }
  if (rng.chance(40)) t.page_buffers = static_cast<std::uint32_t>(rng.between(1, 6));
  if (rng.chance(40))
    t.ecc_bandwidth =
        Bandwidth{static_cast<std::uint64_t>(rng.between(1, 40)) * t.channel_bandwidth.bytes_per_second / 20};
  t.reuse_register = rng.chance(50);
  if (rng.chance(50)) {
    t.codewords = nfc::CodewordsConfig{.size = Bytes{std::uint64_t{16} << rng.below(3)},
                                       .parity = Bytes{static_cast<std::uint64_t>(rng.between(0, 20))}};
  }
  if (rng.chance(40)) t.word_line_pages = static_cast<std::uint32_t>(rng.between(2, 4));
  if (rng.chance(40))
    t.filter_bandwidth =
        Bandwidth{static_cast<std::uint64_t>(rng.between(1, 40)) * t.channel_bandwidth.bytes_per_second / 20};
}

/// Half of the workloads use coarse times of a few ps, so that asks, grants and completions often coincide; the other
/// half are realistic. Some have no command time, or no tR. `buffers`: page buffers are limited.
inline Workload random_workload(std::uint64_t seed, bool features = false, bool buffers = false) {
  Rng rng(seed);
  Workload w{};
  w.seed = seed;
  auto& g = w.geometry;
  g.channels = static_cast<std::uint32_t>(rng.between(1, 16));
  g.dies_per_channel = static_cast<std::uint32_t>(rng.between(1, 8));
  g.planes_per_die = static_cast<std::uint32_t>(rng.between(1, 4));
  g.blocks_per_plane = static_cast<std::uint32_t>(rng.between(1, 5));
  g.pages_per_block = static_cast<std::uint32_t>(rng.between(1, 7));
  auto& t = w.timing;
  if (rng.chance(50)) {
    const auto ps = [&](std::int64_t low, std::int64_t high) { return SimTime{10 * rng.between(low, high)}; };
    g.page_size = Bytes{64};
    t.channel_bandwidth = {rng.chance(50) ? 1'000'000'000'000U : 333'333'333'333U};
    t.command_time = ps(0, 4);
    t.read_latency = ps(0, 40);
    t.program_latency = ps(1, 100);
    t.erase_latency = ps(1, 400);
    t.data_out_setup = ps(0, 2);
    t.ecc_latency = ps(0, 5);
    if (rng.chance(50)) t.read_jitter = ps(1, 20);
    w.arrival_span = ps(0, 2000);
  } else {
    t.read_latency = SimTime::microseconds(rng.between(3, 80));
    t.program_latency = SimTime::microseconds(rng.between(50, 700));
    t.erase_latency = SimTime::microseconds(rng.between(500, 4000));
    t.channel_bandwidth = {static_cast<std::uint64_t>(rng.between(100, 2400)) * 1'000'000};
    t.ecc_latency = SimTime::nanoseconds(rng.chance(50) ? 0 : rng.between(1, 5000));
    if (rng.chance(50)) t.read_jitter = SimTime::nanoseconds(rng.between(1, 30'000));
    w.arrival_span = SimTime::microseconds(rng.between(0, 800));
  }
  t.arbitration = static_cast<nfc::BusArbitration>(rng.below(3));
  t.seed = rng.below(1000);
  w.batches = static_cast<std::uint32_t>(rng.between(1, 120));
  w.initial = static_cast<std::uint32_t>(rng.between(1, w.batches));
  w.max_batch = static_cast<std::uint32_t>(rng.chance(30) ? 1 : rng.between(1, 24));
  w.hot_planes = static_cast<std::uint32_t>(rng.between(1, g.planes()));
  w.read_percent = static_cast<int>(rng.chance(30) ? 100 : rng.between(0, 100));
  w.program_percent = static_cast<int>(rng.between(0, 100 - w.read_percent));
  w.think_percent = static_cast<int>(rng.chance(50) ? 0 : rng.between(0, 100));
  w.annotated_percent = rng.chance(30) ? 20 : 0;
  w.late_end_percent = rng.chance(30) ? 40 : 0;
  w.retry_percent = rng.chance(40) ? static_cast<int>(rng.between(1, 60)) : 0;
  w.hold_percent = rng.chance(60) ? static_cast<int>(rng.between(1, 100)) : 0;
  if (features) {
    const bool coarse = g.page_size == Bytes{64};
    random_features(rng, t, coarse ? SimTime{10} : SimTime::microseconds(1), coarse ? 20 : 30);
  }
  if (buffers) t.page_buffers = static_cast<std::uint32_t>(rng.between(1, 6));
  return w;
}

/// Operations of batch `index`; a function of the workload and the index only.
inline std::vector<PageOp> batch_ops(const Workload& w, std::uint64_t index) {
  Rng rng(w.seed * 1'000'003 + index);
  std::vector<PageOp> ops(static_cast<std::size_t>(rng.between(1, w.max_batch)));
  for (PageOp& op : ops) {
    const std::uint64_t plane = rng.below(w.hot_planes) * w.geometry.planes() / w.hot_planes;
    op.ppa = {plane * w.geometry.pages_per_plane() + rng.below(w.geometry.pages_per_plane())};
    // Several operations on one page, where it makes a difference.
    if (w.timing.reuse_register && &op != &ops.front() && rng.chance(40)) op.ppa = (&op - 1)->ppa;
    op.op_class = static_cast<OpClass>(rng.below(kOpClasses));
    op.kind = rng.chance(w.read_percent)                                     ? PageOpKind::read
              : rng.chance(w.program_percent * 100 / (100 - w.read_percent)) ? PageOpKind::program
                                                                             : PageOpKind::erase;
    const auto page = static_cast<std::uint32_t>(w.geometry.page_size.value);
    op.channel_bytes = op.kind == PageOpKind::erase ? 0
                       : rng.chance(80)             ? page
                                                    : static_cast<std::uint32_t>(rng.between(1, page));
    if (op.kind == PageOpKind::program && w.timing.word_line_pages > 1)
      op.channel_bytes *= static_cast<std::uint32_t>(rng.between(1, w.timing.word_line_pages));
    if (rng.chance(w.retry_percent)) op.retries = static_cast<std::uint8_t>(rng.between(1, 3));
  }
  return ops;
}

/// What an initiator saw: drive, ticket, time, stages of the last operation.
using Log = std::vector<std::tuple<std::size_t, std::uint64_t, std::int64_t, FlashStages>>;

/// Plays a workload over `drives` sockets: initial batches at random times, then one batch whenever one completes (on a
/// random drive, at once from within the callback or after some time), until all batches are submitted.
class RandomInitiator : public sc_core::sc_module {
 public:
  using Socket = tlm_utils::simple_initiator_socket_tagged<RandomInitiator>;
  std::vector<std::unique_ptr<Socket>> sockets;
  Log log;
  std::uint64_t ops_submitted = 0;
  std::uint64_t bytes_submitted = 0;
  std::function<void(std::size_t drive)> on_response;

  RandomInitiator(const sc_core::sc_module_name& name, const Workload& workload, std::size_t drives)
      : sc_module(name), workload_(workload) {
    for (std::size_t d = 0; d < drives; ++d) {
      sockets.push_back(std::make_unique<Socket>(("socket" + std::to_string(d)).c_str()));
      sockets.back()->register_nb_transport_bw(this, &RandomInitiator::nb_transport_bw, static_cast<int>(d));
    }
    Rng rng(workload.seed + 17);
    for (std::uint32_t b = 0; b < workload.initial; ++b) {
      agenda_.push({rng.between(0, workload.arrival_span.ps), order_++, nullptr, 0});
    }
    SC_METHOD(on_agenda);
    sensitive << alarm_;
  }
  SC_HAS_PROCESS(RandomInitiator);

  std::size_t payloads_in_use() const { return pool_.in_use(); }
  bool all_submitted() const { return submitted_ == workload_.batches; }

 private:
  struct Entry {
    std::int64_t at;
    std::uint64_t order;
    tlm::tlm_generic_payload* end_response;  ///< nullptr: submit a batch
    std::size_t drive;
    std::int64_t release = -1;  ///< ticket of a batch whose buffers are free, in place of the above
    bool operator<(const Entry& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  void on_agenda() {
    const std::int64_t now = sim_time_now().ps;
    while (!agenda_.empty() && agenda_.top().at <= now) {
      const Entry entry = agenda_.top();
      agenda_.pop();
      if (entry.release >= 0) {
        release(entry.drive, static_cast<std::uint64_t>(entry.release));
      } else if (entry.end_response != nullptr) {
        tlm::tlm_phase phase = tlm::END_RESP;
        sc_core::sc_time delay;
        (*sockets[entry.drive])->nb_transport_fw(*entry.end_response, phase, delay);
      } else {
        submit();
      }
    }
    if (!agenda_.empty()) alarm_.notify(to_sc_time(SimTime{agenda_.top().at - now}));
  }

  void release(std::size_t drive, std::uint64_t ticket) {
    tlm::tlm_generic_payload& payload = pool_.allocate({});
    payload.get_extension<nfc::FlashBatch>()->ticket = FlashTicket{ticket};
    tlm::tlm_phase phase = nfc::RELEASE_BUFFERS;
    sc_core::sc_time delay;
    (*sockets[drive])->nb_transport_fw(payload, phase, delay);
    payload.release();
  }

  void submit() {
    if (all_submitted()) return;
    const std::vector<PageOp> ops = batch_ops(workload_, submitted_);
    Rng rng(workload_.seed * 7'000'003 + submitted_);
    ++submitted_;
    ops_submitted += ops.size();
    for (const PageOp& op : ops) bytes_submitted += nfc::bus_bytes(workload_.timing, op.channel_bytes);
    tlm::tlm_generic_payload& payload = pool_.allocate(ops);
    payload.get_extension<nfc::FlashBatch>()->hold = rng.chance(workload_.hold_percent);
    tlm::tlm_phase phase = tlm::BEGIN_REQ;
    sc_core::sc_time delay;
    if (rng.chance(workload_.annotated_percent)) delay = to_sc_time(think_time(rng));
    (*sockets[rng.below(sockets.size())])->nb_transport_fw(payload, phase, delay);
    payload.release();  // the target holds its own reference until the response has ended
  }

  SimTime think_time(Rng& rng) const { return {rng.between(0, workload_.timing.read_latency.ps / 10 * 4) / 10 * 10}; }

  tlm::tlm_sync_enum nb_transport_bw(int drive, tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase,
                                     sc_core::sc_time& /*delay*/) {
    const std::uint64_t ticket = payload.get_extension<nfc::FlashBatch>()->ticket.value;
    const std::int64_t now = sim_time_now().ps;
    log.emplace_back(drive, ticket, now, payload.get_extension<nfc::FlashBatch>()->stages);
    if (on_response) on_response(static_cast<std::size_t>(drive));
    Rng rng(workload_.seed * 13'000'003 + log.size());
    if (payload.get_extension<nfc::FlashBatch>()->hold) {
      if (rng.chance(50)) {
        release(static_cast<std::size_t>(drive), ticket);
      } else {
        put_on_agenda({now + think_time(rng).ps, order_++, nullptr, static_cast<std::size_t>(drive),
                       static_cast<std::int64_t>(ticket)});
      }
    }
    if (rng.chance(workload_.think_percent)) {
      put_on_agenda({now + think_time(rng).ps, order_++, nullptr, 0});
    } else {
      submit();
    }
    if (rng.chance(workload_.late_end_percent)) {
      put_on_agenda({now + think_time(rng).ps, order_++, &payload, static_cast<std::size_t>(drive)});
      return tlm::TLM_ACCEPTED;
    }
    if (rng.chance(50)) return tlm::TLM_COMPLETED;
    phase = tlm::END_RESP;
    return tlm::TLM_UPDATED;
  }

  void put_on_agenda(const Entry& entry) {
    agenda_.push(entry);
    alarm_.notify(to_sc_time(SimTime{agenda_.top().at - sim_time_now().ps}));
  }

  Workload workload_;
  nfc::FlashPayloadPool pool_;
  sc_core::sc_event alarm_;
  std::priority_queue<Entry> agenda_;
  std::uint64_t order_ = 0;
  std::uint64_t submitted_ = 0;
};

}  // namespace csdsim::test
