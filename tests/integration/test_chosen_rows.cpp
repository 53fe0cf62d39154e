// h2o, infinigen and leoam with data: the tokens are those of their attention methods on the host.
#include <catch2/catch.hpp>

#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/systems/chosen_rows/chosen_rows_systems.h"
#include "tests/integration/file_setup.h"

namespace test_chosen_rows {

using namespace csdsim;
using namespace csdsim::test;

namespace {

template <class System>
void check_tokens(const SmallModel& model, const Prompts& prompts) {
  constexpr std::uint32_t kNew = 8;
  const std::pair<Ratio, Ratio> places[] = {
      {{0, 1}, {0, 1}}, {{0, 1}, {1, 1}}, {{1, 1}, {0, 1}}, {{1, 2}, {0, 1}}, {{1, 3}, {1, 3}}};
  std::uint32_t trial = 0;
  for (const auto& [on_gpu, on_host] : places) {
    System system;
    system.ratio = trial % 2 == 0 ? Ratio{1, 5} : Ratio{2, 3};
    system.rows.kv_on_gpu = on_gpu;
    system.rows.kv_on_host = on_host;
    system.rows.written_tokens = trial % 2 == 0 ? 7 : 64;
    system.rows.kv_buffers = 1 + trial % 2;
    experiment::GenerationSetup setup = file_setup(prompts, kNew, "h2o", model);
    setup.plan.mini_batches = 1 + trial % 2;
    setup.system = system.clone();
    ++trial;
    CAPTURE(System::kKind, trial);
    host::ConfiguredMethod method = host::configure_method(system.traits().method.name, system.traits().method.settings,
                                                           model.checkpoint.config.head_dim);
    const Prompts expected =
        host::generate_on_host(*model.decoder, std::move(method.method), prompts,
                               {.max_new_tokens = kNew, .sampling = {.temperature = 0}, .stop = {}});
    const DecodeRun reference = decode_on_host(setup, prompts, {.temperature = 0}, model);
    CHECK(reference.tokens == expected);
    const DecodeRun drive = decode_in_drive(setup, prompts, {.temperature = 0}, {}, model);
    CHECK(drive.tokens == expected);
    CHECK(drive.attention_digest == reference.attention_digest);
    CHECK(drive.outcome.integrity_errors == 0);
  }
}

}  // namespace

TEST_CASE("h2o, infinigen and leoam make the tokens of their methods on the host, wherever K and V are") {
  for (const char* const directory : {"models/opt-6m", "models/llama-gqa-6m"}) {
    const SmallModel model(directory);
    const Prompts prompts = within(model, {text_prompt(41), text_prompt(30, 300), text_prompt(17, 700)});
    CAPTURE(directory);
    check_tokens<host::H2o>(model, prompts);
    check_tokens<host::Infinigen>(model, prompts);
    check_tokens<host::Leoam>(model, prompts);
  }
}

}  // namespace test_chosen_rows
