// A drive whose attention runs in an engine of your own (serial_engine.h); everything around it stays: NVMe commands,
// DMA, KV mapping, flash.
//
// Exit code 0: what it computes, and what the drive's own engine computes, equal a plain softmax in double.
#include "serial_engine.h"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <systemc>
#include <utility>
#include <vector>

#include "base/fp16.h"
#include "nvme_if/spec/encode.h"
#include "nvme_if/sysc/sc_sim_time.h"
#include "platform/platform.h"
#include "simulation/simulation_context.h"

using namespace csdsim;

constexpr std::uint16_t kHeads = 4, kGroup = 2, kDim = 64, kTokens = 600;  // kGroup query heads share a KV head
constexpr std::size_t kQuerySize = std::size_t{kHeads} * kGroup * kDim,
                      kCacheSize = std::size_t{kHeads} * kTokens * kDim;

std::vector<Half> random_halves(std::size_t count, float scale, std::uint32_t seed) {
  std::mt19937 bits(seed);
  std::vector<Half> out(count);
  for (Half& h : out) h = float_to_half(scale * (static_cast<float>(bits()) * 0x1p-31F - 1));
  return out;
}

/// q is [heads][group][d], k and v are [heads][tokens][d]. Large queries make some tokens count much more than others.
struct Tensors {
  std::vector<Half> q = random_halves(kQuerySize, 8, 1);
  std::vector<Half> k = random_halves(kCacheSize, 1, 2);
  std::vector<Half> v = random_halves(kCacheSize, 1, 3);
};

struct Outcome {
  std::vector<Half> out = std::vector<Half>(kQuerySize);  ///< [heads][group][d]
  SimTime time;                                           ///< time of the attend command, as the host sees it
};

/// One drive with `engine` (none: the model's own). Fills a sequence with k and v and attends to all of it, with the
/// vendor commands of nvme_if/spec/kv_command.h.
Outcome attend_in_drive(const Tensors& t, const csd_model::EngineFactory& engine) {
  const SimulationContext context;  // SystemC elaborates once per context; each run has its own
  platform::PlatformParams config;
  config.engine = engine;
  platform::Platform platform(config);
  sc_core::sc_start();  // the driver brings the controller up
  if (!platform.driver(0).ready()) throw std::runtime_error(platform.driver(0).failure());

  const nvme::PhysicalAddress address = platform.free_host_memory();
  std::byte* const memory = platform.host_memory().bytes().data() + address.value;
  const auto execute = [&](const nvme::SubmissionEntry& command, Bytes size) {
    const nvme::Segment buffer{address, size};
    const SimTime start = nvme::sim_now();
    nvme::Status status = nvme::status::internal_error;
    SimTime end;
    platform.driver(0).submit(nvme::QueueId{1}, command, {&buffer, size.value > 0 ? 1U : 0U},
                              [&](const nvme::CompletionEntry& completion, SimTime at) {
                                status = completion.code();
                                end = at;
                              });
    sc_core::sc_start();
    if (!status.ok()) throw std::runtime_error("status " + std::string(nvme::status_name(status)));
    return end - start;
  };

  constexpr nvme::NamespaceId nsid{1};
  constexpr SequenceId sequence{7};
  execute(nvme::encode(nsid, nvme::KvCreate{.sequence = sequence,
                                            .layers = 1,
                                            .kv_heads = kHeads,
                                            .head_dim = kDim,
                                            .flags = nvme::create_flag::token_major,
                                            .max_tokens = kTokens}),
          Bytes{0});

  const nvme::KvAppend append{.sequence = sequence,
                              .layer = LayerId{0},
                              .first_token = TokenIndex{0},
                              .token_count = kTokens,
                              .first_head = KvHead{0},
                              .head_count = kHeads};
  std::memcpy(memory, t.k.data(), kCacheSize * sizeof(Half));
  std::memcpy(memory + kCacheSize * sizeof(Half), t.v.data(), kCacheSize * sizeof(Half));
  execute(nvme::encode(nsid, append, kDim), nvme::append_size(append, kDim));

  const nvme::KvAttend attend{.layer = LayerId{0},
                              .n = 1,
                              .method = nvme::AttendMethod::dense,
                              .group = kGroup,
                              .head_dim = kDim,
                              .total_heads = kHeads};
  const nvme::AttendLayout layout = nvme::attend_layout(attend);
  const nvme::AttendDescriptor all{.sequence = sequence.value, .token = kTokens - 1, .head_count = kHeads};
  std::memcpy(memory, &all, sizeof all);
  std::memcpy(memory + layout.q.value, t.q.data(), kQuerySize * sizeof(Half));
  Outcome outcome;
  outcome.time = execute(nvme::encode(nsid, attend), layout.size);
  std::memcpy(outcome.out.data(), memory + layout.out.value, kQuerySize * sizeof(Half));
  return outcome;
}

/// Largest difference from softmax(q K^T / sqrt(d)) V in double.
double error_of(const Tensors& t, const std::vector<Half>& out) {
  double worst = 0;
  for (std::size_t query = 0; query < kHeads * kGroup; ++query) {
    const std::size_t head = query / kGroup;
    std::vector<double> weights(kTokens);
    double sum = 0;
    for (std::size_t token = 0; token < kTokens; ++token) {
      double logit = 0;
      for (std::size_t i = 0; i < kDim; ++i)
        logit += double{half_to_float(t.q[query * kDim + i])} * half_to_float(t.k[(head * kTokens + token) * kDim + i]);
      sum += weights[token] = std::exp(logit / std::sqrt(double{kDim}));
    }
    for (std::size_t i = 0; i < kDim; ++i) {
      double expected = 0;
      for (std::size_t token = 0; token < kTokens; ++token)
        expected += weights[token] / sum * half_to_float(t.v[(head * kTokens + token) * kDim + i]);
      worst = std::max(worst, std::abs(expected - half_to_float(out[query * kDim + i])));
    }
  }
  return worst;
}

int sc_main(int, char*[]) {
  const csd_model::EngineFactory serial_engine = [](engine::KvSource& kv) {
    auto module = std::make_unique<SerialEngine>("serial_engine", kv, sc_core::sc_time(100, sc_core::SC_NS));
    csd_model::EngineParts parts;
    parts.attend = &module->attend;
    parts.flash = &module->flash;
    parts.module = std::move(module);
    return parts;
  };

  const Tensors tensors;
  bool good = true;
  for (const auto& [name, engine] :
       {std::pair{"serial engine", serial_engine}, {"the model's own", csd_model::EngineFactory{}}}) {
    const Outcome outcome = attend_in_drive(tensors, engine);
    const double error = error_of(tensors, outcome.out);
    std::printf("%-16s %8.3f us, largest error %.1e\n", name, outcome.time.seconds() * 1e6, error);
    good = good && error < 1e-3;  // out is fp16
  }
  return good ? 0 : 1;
}
