// A drive whose engine has argtopk units of your own (serial_argtopk.h); the rest of the engine stays.
//
// Exit code 0: the answers do not change, a unit as fast as the model's takes the same time to the picosecond, and a
// slower one makes the command slower by the elements that it takes in.
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
#include "serial_argtopk.h"
#include "simulation/simulation_context.h"

using namespace csdsim;

constexpr std::uint16_t kHeads = 4, kDim = 64, kTokens = 600;
constexpr std::size_t kCacheSize = std::size_t{kHeads} * kTokens * kDim;

std::vector<Half> random_halves(std::size_t count, std::uint32_t seed) {
  std::mt19937 bits(seed);
  std::vector<Half> out(count);
  for (Half& h : out) h = float_to_half(static_cast<float>(bits()) * 0x1p-31F - 1);
  return out;
}

struct Outcome {
  std::vector<Half> out = std::vector<Half>(std::size_t{kHeads} * kDim);
  SimTime time;  ///< time of the attend command, as the host sees it
};

/// SparF attention of a sequence in one drive, a head after the other. `units`: none, or own units.
Outcome attend_in_drive(const csd_model::DriveUnitFactory& units) {
  const SimulationContext context;
  platform::PlatformParams config;
  config.drive.fidelity = csd_model::Fidelity::at;  // units are modules
  config.drive.engine.clock = Frequency{250'000'000};
  config.drive.engine.jobs_in_flight = 1;
  config.units = units;
  platform::Platform platform(config);
  sc_core::sc_start();
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
                                            .flags = 0,
                                            .max_tokens = kTokens}),
          Bytes{0});
  const nvme::KvAppend append{.sequence = sequence,
                              .layer = LayerId{0},
                              .first_token = TokenIndex{0},
                              .token_count = kTokens,
                              .first_head = KvHead{0},
                              .head_count = kHeads};
  std::memcpy(memory, random_halves(2 * kCacheSize, 1).data(), 2 * kCacheSize * sizeof(Half));
  execute(nvme::encode(nsid, append, kDim), nvme::append_size(append, kDim));

  const nvme::KvAttend attend{.layer = LayerId{0},
                              .n = 1,
                              .method = nvme::AttendMethod::sparf,
                              .group = 1,
                              .head_dim = kDim,
                              .total_heads = kHeads};
  const nvme::AttendLayout layout = nvme::attend_layout(attend);
  const nvme::AttendDescriptor all{
      .sequence = sequence.value, .token = kTokens - 1, .head_count = kHeads, .r = 8, .k = 64, .l = 16};
  Outcome outcome;
  const std::vector<Half> q = random_halves(outcome.out.size(), 2);
  std::memcpy(memory, &all, sizeof all);
  std::memcpy(memory + layout.q.value, q.data(), q.size() * sizeof(Half));
  outcome.time = execute(nvme::encode(nsid, attend), layout.size);
  std::memcpy(outcome.out.data(), memory + layout.out.value, outcome.out.size() * sizeof(Half));
  return outcome;
}

csd_model::DriveUnitFactory serial_units(double ns_per_element) {
  return [ns_per_element](csd_model::DriveUnit unit, std::uint32_t index) {
    UnitParts parts;
    if (unit != csd_model::DriveUnit::argtopk) return parts;  // without a module: the drive takes that of the model
    const std::string name = "serial" + std::to_string(index);
    auto module = std::make_unique<SerialArgtopk>(name.c_str(), sc_core::sc_time(ns_per_element, sc_core::SC_NS));
    parts.start = &module->start;
    parts.amount = &module->amount;
    parts.done = &module->done;
    parts.module = std::move(module);
    return parts;
  };
}

int sc_main(int, char*[]) {
  // argtopk takes in the components of q and, later, the approximate score of each token: at 250 MHz 4 ns each.
  const SimTime elements{kHeads * (std::int64_t{kDim} + kTokens)};
  const Outcome model = attend_in_drive(nullptr);
  bool good = true;
  for (const int ns : {4, 20, 100}) {
    const Outcome own = attend_in_drive(serial_units(ns));
    const SimTime expected = model.time + SimTime::nanoseconds((ns - 4) * elements.ps);
    std::printf("%3d ns per element: %9.3f us, expected %9.3f us\n", ns, own.time.seconds() * 1e6,
                expected.seconds() * 1e6);
    good = good && own.time == expected && own.out == model.out;
  }
  return good ? 0 : 1;
}
