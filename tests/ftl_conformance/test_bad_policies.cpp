// Answers that a mapping policy may not give: each is an error that names the policy, the page and the address.
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "ftl/conformance/search.h"
#include "ftl/kv/policy_decorator.h"
#include "ftl/policies/instinfer.h"

namespace test_bad_policies {

using namespace csdsim;
using namespace csdsim::ftl;
using Catch::Matchers::Contains;

namespace {

constexpr FlashGeometry kGeometry{2, 1, 2, 8, 4, Bytes{512}};
constexpr std::uint64_t kPages = 2 * 2 * 8 * 4;

/// Answers as the test says.
class Scripted final : public PolicyDecorator {
 public:
  explicit Scripted(const FlashGeometry& g = kGeometry) : PolicyDecorator(std::make_unique<InstinferPolicy>(g)) {}
  std::string_view name() const override { return "scripted"; }

  std::function<PhysicalPageAddress(const KvPageId&, PageAllocator&)> at;
  std::function<PhysicalPageAddress(const KvPageId&, PageAllocator&)> moved;
  std::function<void(KvLayout&)> change;
  std::function<std::uint32_t(std::uint32_t, std::uint32_t)> groups;
  std::function<Bytes(std::uint64_t)> table;
  std::function<void(PageAllocator&)> freed;

  PhysicalPageAddress place(const KvPageId& page, const KvSequenceInfo& s, PageAllocator& pages) override {
    return at ? at(page, pages) : PolicyDecorator::place(page, s, pages);
  }
  PhysicalPageAddress move(const KvPageId& page, const KvSequenceInfo& s, PhysicalPageAddress from,
                           PageAllocator& pages) override {
    return moved ? moved(page, pages) : PolicyDecorator::move(page, s, from, pages);
  }
  KvLayout layout(const KvShape& shape, Bytes page_size, const KvLayoutOptions& options) const override {
    KvLayout l = PolicyDecorator::layout(shape, page_size, options);
    if (change) change(l);
    return l;
  }
  std::uint32_t groups_to_write(const KvSequenceInfo& s, std::uint32_t tokens, std::uint32_t written) const override {
    return groups ? groups(tokens, written) : PolicyDecorator::groups_to_write(s, tokens, written);
  }
  Bytes table_bytes(const KvSequenceInfo& s, std::uint64_t pages) const override {
    return table ? table(pages) : PolicyDecorator::table_bytes(s, pages);
  }
  void sequence_freed(const KvSequenceInfo&, PageAllocator& pages) override {
    if (freed) freed(pages);
  }
};

/// Sequence 3 with two layers, two heads, rows of 64 bytes: n = 8. Forty tokens go to layer 1.
void use(std::unique_ptr<Scripted> policy) {
  BlockManager blocks(kGeometry, {0, kGeometry.blocks_per_plane});
  BackingStore store(kGeometry, DataMode::timing);
  DramBudget dram(Bytes::mib(1));
  KvFtl ftl({TailPolicy::token_index, {}, PageCheck::key, 1}, blocks, store, dram, std::move(policy));
  const SequenceId id{3};
  const KvStatus created = ftl.create_sequence(id, {2, 2, 32, 128});
  REQUIRE(created == KvStatus::ok);
  for (std::uint32_t token = 0; token < 40; token += 8) {
    ftl.append(id, LayerId{1}, TokenIndex{token}, 8, {KvHead{0}, 2});
  }
  ftl.free_sequence(id);
  for (std::uint64_t job = 0; ftl.pending_flushes() > 0; ++job) ftl.flush_done(FlushJobId{job});
}

template <class Change>
std::string error_of(Change&& change) {
  auto policy = std::make_unique<Scripted>();
  change(*policy);
  try {
    use(std::move(policy));
  } catch (const PolicyError& e) {
    return e.what();
  }
  return "no PolicyError";
}

constexpr const char* kFirst = "mapping policy \"scripted\": place(sequence 3, layer 1, KV head 0, K of token group 0)";

}  // namespace

TEST_CASE("a good policy passes here") {
  CHECK(error_of([](Scripted&) {}) == "no PolicyError");
}

TEST_CASE("a policy that returns an address out of range") {
  const std::string what =
      error_of([](Scripted& p) { p.at = [](const auto&, auto&) { return PhysicalPageAddress{kPages}; }; });
  CHECK_THAT(what, Contains(kFirst) && Contains("returned page 128, which does not exist: the flash has 128"));
}

TEST_CASE("a policy that returns no address") {
  const std::string what =
      error_of([](Scripted& p) { p.at = [](const auto&, auto&) { return PhysicalPageAddress::invalid(); }; });
  CHECK_THAT(what, Contains(kFirst) && Contains("returned no page"));
}

TEST_CASE("a policy that returns an address twice") {
  const std::string what = error_of([](Scripted& p) {
    p.at = [first = PhysicalPageAddress::invalid()](const auto&, PageAllocator& pages) mutable {
      if (!first.valid()) first = pages.take(PlaneId{1});
      return first;
    };
  });
  CHECK_THAT(what,
             Contains("place(sequence 3, layer 1, KV head 0, V of token group 0)") &&
                 Contains("returned page 32, which holds sequence 3, layer 1, KV head 0, K of token group 0 already"));
}

TEST_CASE("a policy that returns a page of the block namespace") {
  BlockManager blocks(kGeometry, {2, kGeometry.blocks_per_plane - 2});
  BackingStore store(kGeometry, DataMode::timing);
  DramBudget dram(Bytes::mib(1));
  auto policy = std::make_unique<Scripted>();
  Scripted& scripted = *policy;
  KvFtl ftl({TailPolicy::token_index, {}, PageCheck::key, 1}, blocks, store, dram, std::move(policy));
  const auto append = [&](SequenceId id, std::uint32_t token) {
    ftl.append(id, LayerId{1}, TokenIndex{token}, 8, {KvHead{0}, 2});
  };
  for (const SequenceId id : {SequenceId{3}, SequenceId{4}}) {
    REQUIRE(ftl.create_sequence(id, {2, 2, 32, 128}) == KvStatus::ok);
    append(id, 0);
  }
  // The page has no owner, and nothing is in the place of the first sequence any more.
  ftl.free_sequence(SequenceId{3});
  for (std::uint64_t job = 0; ftl.pending_flushes() > 0; ++job) ftl.flush_done(FlushJobId{job});
  const PhysicalPageAddress other = blocks.allocate(PlaneId{0}, Stream::host).value();
  scripted.at = [&](const auto&, auto&) { return other; };
  CHECK_THROWS_WITH(append(SequenceId{4}, 8), Contains("which holds something else already"));
}

TEST_CASE("a policy that returns an address that it did not take") {
  const std::string what =
      error_of([](Scripted& p) { p.at = [](const auto&, auto&) { return PhysicalPageAddress{17}; }; });
  CHECK_THAT(what, Contains(kFirst) && Contains("returned page 17, which it did not take"));
}

TEST_CASE("a policy that takes two pages for one") {
  const std::string what = error_of([](Scripted& p) {
    p.at = [](const auto&, PageAllocator& pages) {
      pages.take(PlaneId{0});
      return pages.take(PlaneId{0});
    };
  });
  CHECK_THAT(what, Contains(kFirst) && Contains("took 2 pages for one, the last of them page 1"));
}

TEST_CASE("a policy that asks for a plane or a channel that does not exist") {
  CHECK_THAT(
      error_of([](Scripted& p) { p.at = [](const auto&, PageAllocator& pages) { return pages.take(PlaneId{4}); }; }),
      Contains("\"scripted\" asks for plane 4 of a flash with 4"));
  CHECK_THAT(error_of([](Scripted& p) {
               p.at = [](const auto&, PageAllocator& pages) {
                 pages.read_load(ChannelId{2});
                 return PhysicalPageAddress::invalid();
               };
             }),
             Contains("\"scripted\" asks for channel 2 of a flash with 2"));
}

TEST_CASE("a policy that takes pages when none is to be placed") {
  CHECK_THAT(error_of([](Scripted& p) { p.freed = [](PageAllocator& pages) { pages.take(PlaneId{0}); }; }),
             Contains("\"scripted\" takes a page outside of place() and move()"));
}

TEST_CASE("a policy whose layout cannot be") {
  CHECK_THAT(error_of([](Scripted& p) { p.change = [](KvLayout& l) { ++l.group_tokens; }; }),
             Contains("\"scripted\": layout(sequence 3: 2 KV heads, d 32)") &&
                 Contains("9 rows of 64 bytes do not fit into a page of 512 bytes"));
  CHECK_THAT(error_of([](Scripted& p) { p.change = [](KvLayout& l) { l.page_size = Bytes{1024}; }; }),
             Contains("layout(sequence 3"));
  CHECK_THAT(error_of([](Scripted& p) {
               p.change = [](KvLayout& l) {
                 l.component_major = false;
                 l.head_dim = 16;
               };
             }),
             Contains("is one of rows of 16 elements on pages of 512 bytes"));
}

TEST_CASE("a policy that writes more groups than are full") {
  CHECK_THAT(error_of([](Scripted& p) { p.groups = [](std::uint32_t, std::uint32_t) { return 2u; }; }),
             Contains("\"scripted\": groups_to_write(sequence 3, layer 1, KV head 0") &&
                 Contains("at 8 tokens returned 2: 1 groups of 8 tokens are full and 0 of them are written"));
}

TEST_CASE("a policy whose table shrinks as pages come") {
  CHECK_THAT(error_of([](Scripted& p) { p.table = [](std::uint64_t pages) { return Bytes{100 - 8 * pages}; }; }),
             Contains("\"scripted\": table_bytes(sequence 3, layer 1, KV head 0") &&
                 Contains("shrinks from 84 to 68 bytes when 2 pages become 4"));
}

TEST_CASE("a policy that answers badly when a page moves is found by the suite, with page and address") {
  const auto make = [](const FlashGeometry& g) {
    auto policy = std::make_unique<Scripted>(g);
    policy->moved = [](const KvPageId&, PageAllocator&) { return PhysicalPageAddress{1}; };
    return policy;
  };
  const conformance::ConformanceReport report = conformance::check_policy(make, {.cases = 100, .seed = 3});
  const auto& broken = report.properties[static_cast<std::size_t>(conformance::Property::interface)].broken;
  REQUIRE(broken.has_value());
  CHECK_THAT(broken->violation.what,
             Contains("mapping policy \"scripted\": move(sequence ") && Contains("returned page 1, which "));
}

}  // namespace test_bad_policies
