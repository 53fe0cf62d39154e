#include "nfc/core/flash_timing.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace csdsim::nfc {
namespace {

void require_at_least(std::string_view name, SimTime value, std::int64_t least_ps) {
  if (value.ps < least_ps) {
    throw UserError(
        fmt::format("flash.{}: {} ps is out of range, it must be at least {} ps", name, value.ps, least_ps));
  }
}

void require_positive(std::string_view name, std::uint64_t value) {
  if (value == 0) throw UserError(fmt::format("flash.{}: 0 is out of range, it must be at least 1", name));
}

}  // namespace

void validate(const FlashTiming& timing) {
  require_at_least("read_latency", timing.read_latency, 0);
  // An operation that took no time could complete at the very moment of its grant, and what its completion triggers
  // would compete with grants of that moment that are already given.
  require_at_least("program_latency", timing.program_latency, 1);
  require_at_least("erase_latency", timing.erase_latency, 1);
  require_at_least("command_time", timing.command_time, 0);
  require_at_least("data_out_setup", timing.data_out_setup, 0);
  require_at_least("ecc_latency", timing.ecc_latency, 0);
  require_at_least("read_jitter", timing.read_jitter, 0);
  require_positive("channel_bandwidth", timing.channel_bandwidth.bytes_per_second);
  require_at_least("retry_latency", timing.retry_latency.value_or(SimTime{}), 0);
  if (timing.page_types) {
    for (const SimTime t : timing.page_types->read_latency) require_at_least("page_types.read_latency", t, 0);
    for (const SimTime t : timing.page_types->program_latency) require_at_least("page_types.program_latency", t, 1);
  }
  require_at_least("cache.busy_time", timing.cache_busy_time(), 0);
  if (timing.suspend) {
    require_at_least("suspend.latency", timing.suspend->latency, 0);
    require_at_least("suspend.resume_latency", timing.suspend->resume_latency, 0);
  }
  require_at_least("status_time", timing.status_time, 0);
  require_at_least("packages.select_time", timing.package_select_time(), 0);
  require_positive("packages.dies", timing.dies_per_package());
  if (timing.codewords) require_positive("codewords.size", timing.codewords->size.value);
  std::array<bool, kOpClasses> named{};
  for (const OpClass c : timing.class_priority) {
    if (std::exchange(named[static_cast<std::size_t>(c)], true)) {
      throw UserError(fmt::format("flash.class_priority: names {} twice", kOpClassNames[static_cast<std::size_t>(c)]));
    }
  }
}

std::array<std::uint8_t, kOpClasses> class_ranks(const FlashTiming& timing) {
  std::array<std::uint8_t, kOpClasses> ranks;
  ranks.fill(static_cast<std::uint8_t>(timing.class_priority.size()));
  for (std::size_t i = 0; i < timing.class_priority.size(); ++i) {
    ranks[static_cast<std::size_t>(timing.class_priority[i])] = static_cast<std::uint8_t>(i);
  }
  return ranks;
}

void validate(const FlashGeometry& geometry) {
  require_positive("channels", geometry.channels);
  require_positive("dies_per_channel", geometry.dies_per_channel);
  require_positive("planes_per_die", geometry.planes_per_die);
  require_positive("blocks_per_plane", geometry.blocks_per_plane);
  require_positive("pages_per_block", geometry.pages_per_block);
  require_positive("page_size", geometry.page_size.value);
  if (geometry.page_size.value > std::numeric_limits<std::uint32_t>::max()) {
    throw UserError(
        fmt::format("flash.page_size: {} B is out of range, it must be below 4 GiB", geometry.page_size.value));
  }
  using Wide = unsigned __int128;
  const Wide planes = Wide{geometry.channels} * geometry.dies_per_channel * geometry.planes_per_die;
  if (planes > std::numeric_limits<std::uint32_t>::max()) {
    throw UserError("flash: channels x dies_per_channel x planes_per_die must be below 2^32");
  }
  if (planes * geometry.pages_per_plane() > (Wide{1} << 63)) {
    throw UserError("flash: the number of pages must be at most 2^63");
  }
}

}  // namespace csdsim::nfc
