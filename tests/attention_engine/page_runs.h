// Engine, flash and page buffers together: runs of head jobs whose pages lie on given planes.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "attention_engine/core/selection.h"
#include "attention_engine/sysc/attention_engine.h"
#include "memory_kv_source.h"
#include "nfc/sysc/at_flash.h"
#include "nfc/sysc/fast_flash.h"
#include "nfc/sysc/sim_time.h"
#include "sysc_parts.h"
#include "tests/support/sysc_fixture.h"

namespace csdsim::engine::test {

inline FlashGeometry geometry(std::uint32_t channels, std::uint32_t dies) {
  FlashGeometry g;
  g.channels = channels;
  g.dies_per_channel = dies;
  g.planes_per_die = 1;
  g.blocks_per_plane = 1 << 10;
  g.pages_per_block = 16;
  return g;
}

/// The pages that a job asks for lie on one plane after another, channels first.
class StripedSource : public MemoryKvSource {
 public:
  explicit StripedSource(const FlashGeometry& geometry) : geometry_(geometry) {}

  void plan_token_groups(HeadKey key, KvRows which, std::span<const std::uint32_t> groups,
                         std::span<const std::uint32_t> rows, ReadPlan& out) override {
    const std::size_t before = out.size();
    MemoryKvSource::plan_token_groups(key, which, groups, rows, out);
    stripe(key, std::span(out.ops).subspan(before));
  }
  void plan_embedding_groups(HeadKey key, std::span<const std::uint32_t> groups, std::span<const std::uint32_t> rows,
                             ReadPlan& out) override {
    const std::size_t before = out.size();
    MemoryKvSource::plan_embedding_groups(key, groups, rows, out);
    stripe(key, std::span(out.ops).subspan(before));
  }

 private:
  void stripe(HeadKey key, std::span<PageOp> ops) const {
    for (std::uint32_t i = 0; i < ops.size(); ++i) {
      const std::uint32_t n = (i + 3 * key.head.value) % geometry_.planes();
      const ChannelId channel{n % geometry_.channels};
      ops[i].ppa = geometry_.address(geometry_.plane(channel, n / geometry_.channels, 0), i, 0);
    }
  }

  FlashGeometry geometry_;
};

/// Between engine and flash: counts the pages of a channel that are issued and not released.
class Spy : public sc_core::sc_module {
 public:
  tlm_utils::simple_target_socket<Spy> upstream{"upstream"};
  tlm_utils::simple_initiator_socket<Spy> downstream{"downstream"};
  std::vector<std::uint32_t> held, peak;  ///< [ChannelId]

  Spy(const sc_core::sc_module_name& name, const FlashGeometry& g)
      : sc_module(name), held(g.channels), peak(g.channels), geometry_(g) {
    upstream.register_nb_transport_fw(this, &Spy::fw);
    downstream.register_nb_transport_bw(this, &Spy::bw);
  }

 private:
  tlm::tlm_sync_enum fw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay) {
    const nfc::FlashBatch& batch = *payload.get_extension<nfc::FlashBatch>();
    if (phase == nfc::RELEASE_BUFFERS) {
      --held[channel_.at(batch.ticket.value)];
      return downstream->nb_transport_fw(payload, phase, delay);
    }
    const bool submits = phase == tlm::BEGIN_REQ;
    const std::uint32_t channel = submits ? geometry_.channel_of(geometry_.plane_of(batch.ops.front().ppa)).value : 0;
    const tlm::tlm_sync_enum answer = downstream->nb_transport_fw(payload, phase, delay);
    if (submits) {
      channel_[batch.ticket.value] = channel;
      peak[channel] = std::max(peak[channel], ++held[channel]);
    }
    return answer;
  }
  tlm::tlm_sync_enum bw(tlm::tlm_generic_payload& payload, tlm::tlm_phase& phase, sc_core::sc_time& delay) {
    return upstream->nb_transport_bw(payload, phase, delay);
  }

  FlashGeometry geometry_;
  std::map<std::uint64_t, std::uint32_t> channel_;  ///< by ticket
};

struct Run {
  FlashGeometry geometry;
  nfc::FlashTiming timing;
  EngineConfig engine;
  std::vector<HeadJob> jobs;          ///< job h is about head(h)
  std::vector<std::uint32_t> tokens;  ///< tokens of each head
  std::vector<SimTime> gaps;          ///< before each job's command
  std::uint32_t embedding_group = 8;
  EngineUnitFactory units = make_engine_unit;  ///< with `at`
};
struct Outcome {
  std::vector<std::pair<std::uint64_t, std::int64_t>> done;  ///< job, ps
  std::vector<std::uint32_t> peak;
  EngineStats stats;
  std::uint64_t overflows = 0;
};

/// Each job is a command of its own. With `at`, flash and units are event-driven modules.
inline Outcome play(Run run, bool at) {
  csdsim::test::SyscFixture context;
  StripedSource source(run.geometry);
  for (std::uint32_t h = 0; h < run.jobs.size(); ++h) {
    source.add(head(h), {.tokens = run.tokens[h], .head_dim = kDim, .embedding_group = run.embedding_group}, kSeed + h);
    run.jobs[h].key = head(h);
  }
  ClusteredSelection selection(0.25, kSeed);
  TimingWork work(selection);
  run.engine.page_buffers = run.timing.buffer_limit();
  run.engine.geometry = run.geometry;
  AttentionEngine engine("engine", run.engine, source, work, at ? run.units : nullptr);
  std::unique_ptr<nfc::FlashTarget> flash;
  if (at) {
    flash = std::make_unique<nfc::AtFlash>("flash", run.geometry, run.timing);
  } else {
    flash = std::make_unique<nfc::FastFlash>("flash", run.geometry, run.timing);
  }
  Spy spy("spy", run.geometry);
  Controller controller("controller");
  controller.socket.bind(engine.attend_socket);
  engine.flash_socket.bind(spy.upstream);
  spy.downstream.bind(flash->socket);
  controller.script = [&](Controller& c) {
    for (std::uint32_t h = 0; h < run.jobs.size(); ++h) {
      if (!run.gaps.empty() && run.gaps[h].ps > 0) sc_core::wait(to_sc_time(run.gaps[h]));
      c.submit({&run.jobs[h], 1}, h);
    }
  };
  sc_core::sc_start();
  return {controller.done, spy.peak, engine.stats(), flash->statistics().buffer_overflows};
}

/// Up to `most_jobs` jobs of up to `most_tokens` tokens on random flash, buffers and engine. `intake` is asked once.
inline Run random_run(std::mt19937& rng, std::uint32_t most_jobs, std::uint32_t most_tokens,
                      const std::function<Intake()>& intake) {
  const auto between = [&rng](std::uint32_t low, std::uint32_t high) {
    return low + static_cast<std::uint32_t>(rng() % (high - low + 1));
  };
  Run run;
  run.geometry = geometry(between(1, 5), between(1, 4));
  run.timing.read_latency = SimTime::microseconds(between(0, 60));
  run.timing.page_buffers = between(1, 6);
  if (between(0, 1) == 1) run.timing.ecc_latency = SimTime::microseconds(between(1, 9));
  run.timing.arbitration = static_cast<nfc::BusArbitration>(between(0, 2));
  run.engine.intake = intake();
  run.engine.clock = Frequency{between(1, 300) * 1'000'000ull};
  run.engine.kernels = between(1, 3);
  run.engine.jobs_in_flight = between(1, 8);
  for (std::uint32_t h = between(1, most_jobs); h > 0; --h) {
    HeadJob job{.method = static_cast<Method>(between(0, 2)), .group = between(1, 3)};
    if (job.method == Method::sparf) job.sparf = {.r = between(1, 32), .k = between(16, 256), .l = 16};
    run.tokens.push_back(between(1, most_tokens));
    if (job.method == Method::score) {
      job.score.end = between(1, run.tokens.back());
      job.score.first = between(0, job.score.end - 1);
    }
    run.jobs.push_back(job);
    run.gaps.push_back(between(0, 1) == 0 ? SimTime{} : SimTime::nanoseconds(between(1, 200'000)));
  }
  return run;
}

}  // namespace csdsim::engine::test
