// The suite itself: broken in five ways, each built-in policy is found out. What a policy can get wrong through its
// interface is done by a faulty policy; the rest, which no policy can do by itself, is done to the mechanism behind it.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ftl/conformance/search.h"
#include "ftl/kv/policy_decorator.h"
#include "ftl/policies/registry.h"

namespace test_mutations {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::conformance;

namespace {

/// Every third token group gets the page of the one before it.
class DropsGroups final : public PolicyDecorator {
 public:
  using PolicyDecorator::PolicyDecorator;
  PhysicalPageAddress place(const KvPageId& page, const KvSequenceInfo& sequence, PageAllocator& pages) override {
    if (page.kind != PageKind::embedding && page.group % 3 == 2) return last_;
    return last_ = inner_->place(page, sequence, pages);
  }

 private:
  PhysicalPageAddress last_ = PhysicalPageAddress::invalid();
};

using Interference = std::function<bool(KvFtl&, BlockManager&)>;  ///< true: it was possible

/// Once per run, as soon as it is possible.
CaseOptions interfere_once(const Interference& interference) {
  CaseOptions options;
  options.interfere = [done = false, interference](KvFtl& ftl, BlockManager& blocks, std::size_t operation) mutable {
    if (operation == 0) done = false;
    if (!done) done = interference(ftl, blocks);
  };
  return options;
}

/// The first two live token pages that `belong` together.
bool swap_pages(KvFtl& ftl, const std::function<bool(const KvPageId&, const KvPageId&)>& belong) {
  std::vector<KvPageId> pages;
  ftl.visit_pages([&](const KvPageId& page, PhysicalPageAddress) {
    if (page.kind != PageKind::embedding && ftl.check(page.key) == KvStatus::ok) pages.push_back(page);
  });
  for (const KvPageId& a : pages) {
    for (const KvPageId& b : pages) {
      if (a.kind != b.kind || !belong(a, b)) continue;
      try {
        ftl.swap_mapping(a, b);
        return true;
      } catch (const UserError&) {
        continue;  // its sequence was freed, and the number is in use again
      }
    }
  }
  return false;
}

bool swap_heads(KvFtl& ftl, BlockManager&) {
  return swap_pages(ftl, [](const KvPageId& a, const KvPageId& b) {
    const auto where = [](const KvPageId& p) { return std::pair(p.key.layer, p.key.head); };
    return a.key.sequence == b.key.sequence && where(a) != where(b) && a.group == b.group;
  });
}

bool off_by_one(KvFtl& ftl, BlockManager&) {
  return swap_pages(ftl, [](const KvPageId& a, const KvPageId& b) { return a.key == b.key && a.group + 1 == b.group; });
}

bool forget_tail(KvFtl& ftl, BlockManager&) {
  for (std::uint32_t id = 0; id < 5; ++id) {
    if (ftl.check({SequenceId{id}, LayerId{0}, KvHead{0}}) != KvStatus::ok) continue;
    for (std::uint32_t layer = 0; layer < ftl.shape(SequenceId{id}).layers; ++layer) {
      try {
        ftl.forget_tail({SequenceId{id}, LayerId{layer}, KvHead{0}});
        return true;
      } catch (const UserError&) {
        continue;  // there is none
      }
    }
  }
  return false;
}

bool double_free(KvFtl& ftl, BlockManager& blocks) {
  std::optional<PhysicalPageAddress> some;
  ftl.visit_pages([&](const KvPageId&, PhysicalPageAddress ppa) { some = ppa; });
  if (some) blocks.invalidate(*some);
  return some.has_value();
}

struct Mutation {
  const char* name;
  const char* how;
  bool by_policy;
  Interference interference;
};

}  // namespace

TEST_CASE("each built-in policy broken in five ways is found out") {
  const std::array<Mutation, 5> mutations{{{"drop a group", "place() gives it another group's page", true, {}},
                                           {"swap two heads", "their map entries change places", false, swap_heads},
                                           {"off by one", "map entries of neighbouring groups do", false, off_by_one},
                                           {"forget the tail", "rows in group buffers are lost", false, forget_tail},
                                           {"double free", "a mapped page is given back", false, double_free}}};
  constexpr SearchOptions kSearch{.cases = 40, .seed = 7, .most_operations = 100};
  std::printf("seed %llu\n%-18s %-16s %-38s %-13s  %s\n", static_cast<unsigned long long>(kSearch.seed), "policy",
              "mutation", "how", "smallest case", "properties that break");
  const PolicyRegistry registry = PolicyRegistry::with_builtin();
  for (const PolicyEntry& entry : registry.entries()) {
    for (const Mutation& mutation : mutations) {
      const auto make = [&](const FlashGeometry& g) -> std::unique_ptr<KvMappingPolicy> {
        auto policy = entry.make({g, {}});
        if (mutation.by_policy) return std::make_unique<DropsGroups>(std::move(policy));
        return policy;
      };
      CaseOptions options;
      if (mutation.interference) options = interfere_once(mutation.interference);
      const ConformanceReport report = check_policy(make, kSearch, options);
      INFO(entry.name << ", " << mutation.name);
      CHECK_FALSE(report.passed());
      std::string broken;
      std::size_t smallest = kSearch.most_operations;
      for (const PropertyReport& p : report.properties) {
        if (!p.broken) continue;
        broken += (broken.empty() ? "" : ", ") + std::string(kPropertyNames[static_cast<std::size_t>(p.property)]);
        smallest = std::min(smallest, p.broken->smallest.operations.size());
      }
      std::printf("%-18s %-16s %-38s %2zu operations  %s\n", entry.name.c_str(), mutation.name, mutation.how, smallest,
                  broken.c_str());
      CHECK(smallest <= 6);
    }
  }
}

}  // namespace test_mutations
