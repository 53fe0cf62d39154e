#include "ftl/conformance/search.h"

#include <fmt/format.h>
#include <rapidcheck.h>
#include <rapidcheck/detail/TestListenerAdapter.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace csdsim::ftl::conformance {

namespace {

rc::Gen<Operation> arbitrary_operation() {
  using Kind = Operation::Kind;
  const auto kind = rc::gen::weightedElement<Kind>({{12, Kind::append},
                                                    {3, Kind::advance},
                                                    {3, Kind::create},
                                                    {6, Kind::complete_job},
                                                    {3, Kind::complete_erase},
                                                    {3, Kind::attend},
                                                    {1, Kind::pin},
                                                    {1, Kind::unpin},
                                                    {1, Kind::fork},
                                                    {1, Kind::free},
                                                    {1, Kind::power_loss}});
  return rc::gen::map(rc::gen::pair(kind, rc::gen::container<std::array<std::uint32_t, 4>>(
                                              rc::gen::noShrink(rc::gen::inRange<std::uint32_t>(0, 1u << 16)))),
                      [](const auto& p) {
                        return Operation{p.first, p.second};
                      });
}

/// Numbers that determine a drive: 0 is the simplest choice of each.
using SetupChoice = std::array<std::uint32_t, 10>;

Setup setup_of(const SetupChoice& n, std::uint64_t seed) {
  Setup s;
  s.geometry.channels = 1 + n[0] % 8;
  s.geometry.dies_per_channel = 1 + n[1] % 2;
  s.geometry.planes_per_die = 1 + n[1] / 2 % 2;
  s.geometry.pages_per_block = 4u << n[2] % 3;
  s.geometry.page_size = Bytes{std::uint64_t{512} << n[3] % 4};
  // Enough for nearly everything, or so little that garbage is collected.
  const std::uint32_t pages = n[4] % 3 == 0 ? 8192 : 1024;
  const std::uint32_t of_row = s.geometry.planes() * s.geometry.pages_per_block;
  s.geometry.blocks_per_plane = std::max(4u, (pages + of_row - 1) / of_row);
  s.config.tail = std::array{TailPolicy::token_index, TailPolicy::dram, TailPolicy::partial_program}[n[5] % 3];
  s.config.tail_rewrites = 1 + n[5] / 3 % 3;
  s.config.layout.embedding_group = n[6] % 4 == 0 ? 0 : 1u << n[6] % 4;
  s.config.layout.adaptive = n[6] % 4 == 0 && n[6] / 4 % 2 == 1;
  s.config.check = n[7] % 2 == 0 ? PageCheck::key : PageCheck::key_and_crc;
  s.dram = n[8] % 4 == 1 ? Bytes::kib(96) : n[8] % 4 == 2 ? Bytes::kib(512) : Bytes::mib(64);
  if (n[9] % 3 == 1) {
    s.spare_blocks = 2;
    s.geometry.blocks_per_plane += 2;
    s.failures_per_mille = 4;
  }
  s.seed = seed;
  return s;
}

rc::Gen<Case> arbitrary_case(std::uint32_t most_operations) {
  const double scale = most_operations / 100.0;  // RapidCheck's sizes end at 100
  return rc::gen::map(
      rc::gen::tuple(rc::gen::container<SetupChoice>(rc::gen::inRange<std::uint32_t>(0, 24)),
                     rc::gen::inRange<std::uint32_t>(0, 1u << 20),
                     rc::gen::scale(scale, rc::gen::container<std::vector<Operation>>(arbitrary_operation()))),
      [](const auto& t) {
        Case c{setup_of(std::get<0>(t), std::get<1>(t)), std::get<2>(t)};
        // Nothing can happen before a sequence exists, so the first operation always creates one.
        c.operations.insert(c.operations.begin(), Operation{Operation::Kind::create, {0, std::get<1>(t) % 15, 1, 200}});
        return c;
      });
}

}  // namespace

bool ConformanceReport::passed() const {
  return coverage.sequences > 0 && coverage.token_pages > 0 &&
         std::ranges::none_of(properties, [](const PropertyReport& p) { return p.broken.has_value(); });
}

ConformanceReport check_policy(const PolicyMaker& policy, const SearchOptions& search, const CaseOptions& given) {
  ConformanceReport report;
  for (std::size_t p = 0; p < kProperties; ++p) report.properties.push_back({static_cast<Property>(p), std::nullopt});
  CaseOptions options = given;
  for (;;) {
    std::optional<Counterexample> found;
    const auto holds = [&] {
      const Case c = *arbitrary_case(search.most_operations);
      CaseResult result = run_case(policy, c, options);
      if (!found) {
        ++report.cases;
        report.coverage += result.coverage;
      }
      if (!result.violation) return true;
      // While a counterexample shrinks, it must keep breaking the same property.
      if (found && found->violation.property != result.violation->property) return true;
      found = Counterexample{c, std::move(*result.violation), std::move(result.history)};
      return false;
    };
    rc::detail::TestParams params;
    params.seed = search.seed;
    params.maxSuccess = static_cast<int>(search.cases);
    rc::detail::TestListenerAdapter silent;
    rc::detail::checkProperty(rc::detail::toProperty(holds), rc::detail::TestMetadata{"", ""}, params, silent,
                              std::unordered_map<std::string, rc::detail::Reproduce>{});
    if (!found) return report;
    const auto property = static_cast<std::size_t>(found->violation.property);
    options.judged[property] = false;
    report.properties[property].broken = std::move(found);
  }
}

std::string to_text(std::string_view policy, const Counterexample& c) {
  std::string text =
      fmt::format("mapping policy \"{}\" breaks \"{}\" ({})\n  drive: {}\n", policy,
                  kPropertyNames[static_cast<std::size_t>(c.violation.property)],
                  kPropertyMeaning[static_cast<std::size_t>(c.violation.property)], to_string(c.smallest.setup));
  for (const std::string& line : c.history) text += "  " + line + "\n";
  text += c.violation.operation < c.smallest.operations.size()
              ? fmt::format("  then, in operation {} of {}: {}\n", c.violation.operation + 1,
                            c.smallest.operations.size(), c.violation.what)
              : fmt::format("  then, after all {} operations: {}\n", c.smallest.operations.size(), c.violation.what);
  return text;
}

}  // namespace csdsim::ftl::conformance
