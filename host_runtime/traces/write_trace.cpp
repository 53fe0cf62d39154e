#include <fmt/format.h>

#include "base/error.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {

void require_arrivals(const ServingTrace& trace, std::string_view format) {
  for (const TracedRequest& request : trace.requests)
    if (!request.timed)
      throw UserError(
          fmt::format("{}: request {} has no arrival, which the format needs; mooncake and agentic traces "
                      "can say that a request follows another one",
                      format, request.line));
}

std::optional<TraceDependency> dependency_of(const ServingTrace& trace, const TracedRequest& request,
                                             std::string_view format) {
  const auto all = trace.dependencies_of(request);
  if (all.empty()) return std::nullopt;
  const TraceDependency& one = all.front();
  if (all.size() > 1 || one.trigger != TraceDependency::Trigger::completion || !request.session ||
      trace.requests[one.request].session != request.session)
    throw UserError(
        fmt::format("{}: request {} waits for others than the one before in its session", format, request.line));
  return one;
}

std::string time_text(SimTime time, SimTime unit) {
  std::string text = fmt::format("{}", time.ps / unit.ps);
  std::int64_t rest = time.ps % unit.ps;
  if (rest != 0) text += '.';
  for (std::int64_t digit = unit.ps / 10; rest != 0; digit /= 10) {
    text += static_cast<char>('0' + rest / digit);
    rest %= digit;
  }
  return text;
}

std::string id_list(std::span<const KvBlockId> ids) {
  std::string text = "[";
  for (const KvBlockId id : ids) text += fmt::format("{}{}", text.size() > 1 ? ", " : "", id.value);
  return text + "]";
}

}  // namespace csdsim::host
