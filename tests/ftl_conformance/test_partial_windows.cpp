// Unfinished windows that are programmed twice with the same tokens, before and after a fork.
#include <catch2/catch.hpp>
#include <vector>

#include "ftl/kv/kv_ftl.h"
#include "ftl/policies/instinfer.h"

namespace test_partial_windows {

using namespace csdsim;
using namespace csdsim::ftl;

TEST_CASE("a flush of an unfinished window from before a fork does not finish the one from after it") {
  const FlashGeometry g{1, 1, 1, 64, 16, Bytes{512}};
  BlockManager blocks(g, {0, g.blocks_per_plane});
  BackingStore store(g, DataMode::timing);
  DramBudget dram(Bytes::mib(1));
  KvFtl ftl({TailPolicy::partial_program, {4, false}, PageCheck::key, 1}, blocks, store, dram,
            std::make_unique<InstinferPolicy>(g));
  const SequenceId id{0};
  const HeadKey key{id, LayerId{0}, KvHead{0}};
  // n = 8, T = 64: the window is written when half full.
  ftl.create_sequence(id, {1, 1, 32, 64});
  const AppendResult before = ftl.append(id, LayerId{0}, TokenIndex{0}, 32, {KvHead{0}, 1});
  REQUIRE(before.jobs.size() == 2);
  const KvStatus forked = ftl.fork_sequence(id, SequenceId{1});
  REQUIRE(forked == KvStatus::ok);
  const AppendResult after = ftl.append(id, LayerId{0}, TokenIndex{32}, 1, {KvHead{0}, 1});
  REQUIRE(after.jobs.size() == 1);

  const auto planned = [&] {
    const std::vector<std::uint32_t> first{0};
    ReadPlan plan;
    ftl.plan_embedding_groups(key, first, {}, plan);
    return plan.ops;
  };
  for (const FlushJob& job : before.jobs) ftl.flush_done(job.id);
  CHECK(planned().empty());
  ftl.flush_done(after.jobs[0].id);
  const std::vector<PageOp> ops = planned();
  REQUIRE(ops.size() == 1);
  CHECK(ops[0].ppa == after.jobs[0].programs[0].ppa);
}

}  // namespace test_partial_windows
