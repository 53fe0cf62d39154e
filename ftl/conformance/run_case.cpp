#include <algorithm>
#include <exception>
#include <optional>

#include "base/error.h"
#include "ftl/conformance/run.h"

namespace csdsim::ftl::conformance {

namespace {

constexpr const char* kForeign = "the policy has thrown what is no std::exception";

/// An exception of a policy, or of the FTL because of one.
std::optional<Violation> violation_of(Run& run) {
  try {
    run.run();
  } catch (const Broken& broken) {
    return Violation{broken.property, broken.what, run.at()};
  } catch (const std::exception& e) {
    return Violation{Property::interface, e.what(), run.at()};
  } catch (...) {
    return Violation{Property::interface, kForeign, run.at()};
  }
  return std::nullopt;
}

}  // namespace

CaseResult run_case(const PolicyMaker& policy, const Case& c, const CaseOptions& options) {
  CaseResult result;
  if (options.journal != nullptr) options.journal->begin_case();
  const auto judged = [&](Property p) { return options.judged[static_cast<std::size_t>(p)]; };
  try {
    Run run(policy, c, options);
    result.violation = violation_of(run);
    result.coverage = run.coverage();
    result.history = run.take_history();
    if (!result.violation && judged(Property::determinism)) {
      // The checks plan reads, too, which a policy may observe: so this run also makes the checks.
      Run again(policy, c, options);
      const std::optional<Violation> other = violation_of(again);
      const auto& first = run.addresses();
      const auto& second = again.addresses();
      const auto [a, b] = std::mismatch(first.begin(), first.end(), second.begin(), second.end());
      if (other || a != first.end() || b != second.end()) {
        const auto address = [](auto at, auto end) { return at == end ? std::string("none") : std::to_string(*at); };
        result.violation =
            Violation{Property::determinism,
                      fmt::format("page operation {} goes to page {} the first time and to {} the second",
                                  a - first.begin(), address(a, first.end()), address(b, second.end())),
                      c.operations.size()};
      }
    }
  } catch (const std::exception& e) {  // thrown by the policy's maker
    result.violation = Violation{Property::interface, e.what(), 0};
  } catch (...) {
    result.violation = Violation{Property::interface, kForeign, 0};
  }
  if (options.journal != nullptr) options.journal->end_case();
  if (result.violation && !judged(result.violation->property)) result.violation.reset();
  return result;
}

}  // namespace csdsim::ftl::conformance
