// Energy: conserved over its components, linear in what was counted, and extrapolated as the counts are.
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "csd_model/energy.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"

namespace test_energy {

using namespace csdsim;
using namespace csd_model;

namespace {

constexpr DriveWork kWork{.elapsed = 3,
                          .read_busy = 5,
                          .program_busy = 7,
                          .erase_busy = 11,
                          .channel_bytes = 12e9,
                          .retry_bytes = 1e9,
                          .dram_bytes = 17e9,
                          .macs = 19e9,
                          .link_bytes = 23e9};
constexpr EnergyParts kParts{.dies = 64, .dram_gib = 8, .engine = true};

double joules(const EnergyBreakdown& breakdown, EnergyComponent c) { return breakdown[static_cast<std::size_t>(c)]; }

nlohmann::ordered_json run(const std::string& text, const std::vector<std::string>& sets = {}) {
  const auto loaded = experiment::load_scenario_text(text, "energy.yaml", CSDSIM_SOURCE_DIR, sets);
  const scenario::RunResult result = experiment::run_scenario(loaded.base.scenario);
  CHECK(result.failure.empty());
  return result.document;
}

double sum_of(const nlohmann::ordered_json& components) {
  double sum = 0;
  for (const auto& [name, value] : components.items()) sum += value.get<double>();
  return sum;
}

const std::string kDrive =
    "csdsim: 1\nplatform: {device: {flash: {channels: 2, dies_per_channel: 2, planes_per_die: 2, blocks_per_plane: 32, "
    "pages_per_block: 32}, dram: {capacity: 64 MiB}}}\n";

const std::string kGeneration =
    kDrive +
    "model: {layers: 12, heads: 4, kv_heads: 2, head_dim: 64, hidden_size: 256, ffn_size: 512, vocab_size: 1000, "
    "max_positions: 2048}\nsystem: {kind: instinfer-sparf}\n"
    "workload: {kind: generation, batch: 2, input_tokens: 300, output_tokens: 120}\n"
    "simulation: {sampling: off}\n";

}  // namespace

TEST_CASE("each component is its coefficients times its counts") {
  const csd_model::EnergyConfig config;
  const EnergyBreakdown e = energy(config, kParts, kWork);
  CHECK(joules(e, EnergyComponent::array_read) == Approx(0.0825 * 5));
  CHECK(joules(e, EnergyComponent::array_program) == Approx(0.0825 * 7));
  CHECK(joules(e, EnergyComponent::array_erase) == Approx(0.0825 * 11));
  CHECK(joules(e, EnergyComponent::array_standby) == Approx(33e-6 * 64 * 3));
  CHECK(joules(e, EnergyComponent::channel) == Approx(11e-12 * 8 * 13e9));
  CHECK(joules(e, EnergyComponent::ecc) == Approx(5e-12 * 8 * 13e9));
  CHECK(joules(e, EnergyComponent::dram) == Approx(160e-12 * 17e9 + 0.0375 * 8 * 3));
  CHECK(joules(e, EnergyComponent::engine) == Approx(21e-12 * 19e9 + 0.5 * 3));
  CHECK(joules(e, EnergyComponent::link) == Approx(6e-12 * 8 * 23e9 + 0.3 * 3));
  CHECK(joules(e, EnergyComponent::controller) == Approx(1.5 * 3));
  double sum = 0;
  for (const double component : e) sum += component;
  CHECK(total(e) == Approx(sum).epsilon(1e-12));
  EnergyParts plain = kParts;
  plain.engine = false;
  CHECK(joules(energy(config, plain, kWork), EnergyComponent::engine) == 0);
}

TEST_CASE("energy is linear in time and counts") {
  const csd_model::EnergyConfig config;
  double DriveWork::*const fields[] = {&DriveWork::elapsed,    &DriveWork::read_busy,     &DriveWork::program_busy,
                                       &DriveWork::erase_busy, &DriveWork::channel_bytes, &DriveWork::retry_bytes,
                                       &DriveWork::dram_bytes, &DriveWork::macs,          &DriveWork::link_bytes};
  const auto of = [&](const DriveWork& work) { return total(energy(config, kParts, work)); };
  CHECK(of({}) == 0);
  double parts = 0;
  for (const auto field : fields) {
    DriveWork only;
    only.*field = kWork.*field;
    const double alone = of(only);
    CHECK(alone > 0);
    parts += alone;
    only.*field *= 4;
    CHECK(of(only) == Approx(4 * alone));
  }
  CHECK(of(kWork) == Approx(parts));
}

TEST_CASE("every coefficient moves one component, in proportion") {
  using Config = csd_model::EnergyConfig;
  const auto move = [](const std::function<void(Config&)>& change) {
    Config config;
    change(config);
    const EnergyBreakdown before = energy({}, kParts, kWork), after = energy(config, kParts, kWork);
    int moved = 0;
    for (std::size_t i = 0; i < kEnergyComponents; ++i) moved += after[i] != before[i] ? 1 : 0;
    CHECK(moved == 1);
    CHECK(total(after) > total(before));
  };
  for (Power Config::*const power :
       {&Config::read_power, &Config::program_power, &Config::erase_power, &Config::die_standby, &Config::dram_gib,
        &Config::engine_idle, &Config::link_idle, &Config::controller})
    move([power](Config& c) { (c.*power).nanowatts *= 2; });
  for (Energy Config::*const work :
       {&Config::channel_bit, &Config::ecc_bit, &Config::dram_byte, &Config::mac, &Config::link_bit})
    move([work](Config& c) { (c.*work).femtojoules *= 2; });
}

TEST_CASE("a block run reports joules a component that add up to its energy") {
  const std::string text = kDrive + "workload: {kind: block_io, pattern: random_read, requests: 2000}\n";
  const auto document = run(text);
  const auto& metrics = document["metrics"];
  const auto& components = document["breakdown"]["energy"];
  CHECK(components.size() == kEnergyComponents);
  CHECK(sum_of(components) == Approx(metrics["energy_j"].get<double>()).epsilon(1e-12));
  CHECK(metrics["energy_per_gb_j"].get<double>() ==
        Approx(metrics["energy_j"].get<double>() / (2000 * 4096e-9)).epsilon(1e-12));
  CHECK_FALSE(metrics.contains("energy_per_token_j"));
  // 2,000 pages of 4 KiB, each sensed for 50 us and moved once over the channel.
  CHECK(components["array_read"].get<double>() == Approx(2000 * 50e-6 * 0.0825));
  CHECK(components["channel"].get<double>() == Approx(2000 * 4096 * 8 * 11e-12));
  CHECK(components["controller"].get<double>() == Approx(1.5 * metrics["simulated_s"].get<double>()));
  CHECK(components["array_program"].get<double>() == 0);
  // What the link moved went into DRAM and out of it; 64 MiB of it idle.
  const double seconds = metrics["simulated_s"], linked = metrics["bytes_host_link"];
  CHECK(components["dram"].get<double>() == Approx(2 * linked * 160e-12 + 0.0375 / 16 * seconds));
  // With a bandwidth, DRAM counts its traffic itself.
  const auto limited = run(text, {"platform.device.dram.bandwidth=20 GB/s"});
  double moved = 0;
  for (const auto& [name, statistic] : limited["stats"]["drives"][0]["dram_port"].items())
    if (statistic["unit"] == "B") moved += statistic["value"].get<double>();
  CHECK(moved >= 2 * 2000 * 4096);
  CHECK(limited["breakdown"]["energy"]["dram"].get<double>() ==
        Approx(moved * 160e-12 + 0.0375 / 16 * limited["metrics"]["simulated_s"].get<double>()));
  // Arrays work as long as they do: jitter and retries count.
  const auto jitter = run(text, {"platform.device.flash.read_jitter=10 us"});
  CHECK(jitter["breakdown"]["energy"]["array_read"].get<double>() == Approx(2000 * 55e-6 * 0.0825).epsilon(0.01));
  const auto worn = run(text, {"platform.device.flash.reliability={pe_cycles: 1500, retention_days: 240, "
                               "retry_latency: 100 us}"});
  const double retries = worn["stats"]["drives"][0]["flash"]["retries"]["value"];
  REQUIRE(retries > 100);
  CHECK(worn["breakdown"]["energy"]["array_read"].get<double>() ==
        Approx((2000 * 50e-6 + retries * 100e-6) * 0.0825).epsilon(1e-9));
  // A drive without an engine has none to feed.
  const auto plain = run(text, {"platform.device.ftl.mapping.kind=page"});
  CHECK_FALSE(plain["breakdown"]["energy"].contains("engine"));
  // Garbage collection costs: requests as writes over a full drive. Operations count when they are issued, energy when
  // the array works: at the end of 2,660 requests every erase that was issued has been done.
  const auto writes = run(text, {"workload.pattern=random_write", "workload.working_set=1", "workload.requests=2660"});
  CHECK(writes["metrics"]["write_amplification"].get<double>() > 1.1);
  CHECK(writes["breakdown"]["energy"]["array_program"].get<double>() > 2000 * 600e-6 * 0.0825 * 1.1);
  const auto& flash = writes["stats"]["drives"][0]["flash"];
  const auto count = [&](const char* name) { return flash[name]["value"].get<double>(); };
  CHECK(writes["breakdown"]["energy"]["array_erase"].get<double>() == Approx(count("gc_erase_ops") * 3e-3 * 0.0825));
  const double copied = count("gc_read_bytes") + count("gc_program_bytes");
  CHECK(writes["breakdown"]["energy"]["dram"].get<double>() ==
        Approx((2 * writes["metrics"]["bytes_host_link"].get<double>() + copied) * 160e-12 +
               0.0375 / 16 * writes["metrics"]["simulated_s"].get<double>())
            .epsilon(1e-3));
}

TEST_CASE("a generation reports joules a token; two drives draw the idle power of two") {
  const auto one = run(kGeneration);
  const double joules_in_all = one["metrics"]["energy_j"];
  CHECK(sum_of(one["breakdown"]["energy"]) == Approx(joules_in_all).epsilon(1e-12));
  CHECK(one["metrics"]["energy_per_token_j"].get<double>() == Approx(joules_in_all / (2 * 120)));
  const double gigabytes = one["metrics"]["bytes_flash_channel"].get<double>() * 1e-9;
  CHECK(one["metrics"]["energy_per_gb_j"].get<double>() == Approx(joules_in_all / gigabytes));
  const double seconds = 2 * 120 / one["metrics"]["tokens_per_s"].get<double>();
  CHECK(one["breakdown"]["energy"]["controller"].get<double>() == Approx(1.5 * seconds));
  const double macs = one["stats"]["drives"][0]["engine"]["macs"]["value"];
  CHECK(one["breakdown"]["energy"]["engine"].get<double>() == Approx(macs * 21e-12 + 0.5 * seconds));
  const auto two = run(kGeneration, {"platform.device.count=2"});
  const double longer = 2 * 120 / two["metrics"]["tokens_per_s"].get<double>();
  CHECK(two["breakdown"]["energy"]["controller"].get<double>() == Approx(2 * 1.5 * longer));
}

TEST_CASE("a sampled generation estimates the energy of the whole one") {
  const auto whole = run(kGeneration);
  const auto sampled = run(kGeneration, {"simulation.sampling={layers: 5, steps: 8}"});
  REQUIRE(sampled["metrics"]["page_ops"].get<double>() < 0.5 * whole["metrics"]["page_ops"].get<double>());
  for (const auto& [name, value] : whole["breakdown"]["energy"].items()) {
    INFO(name << ": " << value << " J, sampled " << sampled["breakdown"]["energy"][name]);
    CHECK(sampled["breakdown"]["energy"][name].get<double>() == Approx(value.get<double>()).epsilon(0.05).margin(1e-9));
  }
  // Exactly that of the times and bytes that the run states, which carry the error of sampling.
  const auto& components = sampled["breakdown"]["energy"];
  const double seconds = 2 * 120 / sampled["metrics"]["tokens_per_s"].get<double>();
  CHECK(components["controller"].get<double>() == Approx(1.5 * seconds).epsilon(1e-9));
  CHECK(components["channel"].get<double>() ==
        Approx(8 * 11e-12 * sampled["metrics"]["bytes_flash_channel"].get<double>()).epsilon(1e-9));
}

}  // namespace test_energy
