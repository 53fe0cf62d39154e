// Real tokens through the simulated drive: the same as with attention on the host.
#include <catch2/catch.hpp>

#include "tests/integration/small_model.h"

using namespace csdsim;
using namespace csdsim::test;

TEST_CASE("smoke: a few tokens through the drive equal those with host attention") {
  const Prompts prompts{text_prompt(70)};
  const auto setup = small_setup(small_drive(), prompts, 8, "instinfer-dense");
  const DecodeRun drive = decode_in_drive(setup, prompts, {});
  const DecodeRun host = decode_on_host(setup, prompts, {});
  CHECK(drive.tokens == host.tokens);
  CHECK(drive.attention_digest == host.attention_digest);
  CHECK(drive.outcome.integrity_errors == 0);
}
