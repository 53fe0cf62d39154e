#include "nfc/core/flash_statistics.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/statistics.h"

namespace csdsim::nfc {

void register_statistics(Statistics& s, const FlashStatistics& flash) {
  constexpr std::array<std::string_view, kPageOpKinds> kinds{"read", "program", "erase"};
  for (std::size_t c = 0; c < kOpClasses; ++c)
    for (std::size_t k = 0; k < kPageOpKinds; ++k) {
      const std::string name = fmt::format("{}_{}", kOpClassNames[c], kinds[k]);
      s.counter(name + "_ops", flash.ops[c][k], "operations",
                fmt::format("Page {} operations of class {}.", kinds[k], kOpClassNames[c]), skip_zero());
      s.counter(name + "_bytes", flash.bytes[c][k], "B", "Their bytes over the channels.", skip_zero());
    }
  for (std::size_t c = 0; c < flash.channels.size(); ++c) {
    Statistics& channel = s.child(fmt::format("channel_{}", c));
    channel.time("command", flash.channels[c].command, "Bus time of commands.");
    channel.time("data_out", flash.channels[c].data_out, "Bus time of pages read.");
    channel.time("data_in", flash.channels[c].data_in, "Bus time of pages programmed.");
    channel.time("status", flash.channels[c].status, "Bus time of status polls.", skip_zero());
    channel.time("package_select", flash.channels[c].select, "Bus time of turns to another package.", skip_zero());
    channel.time("decoder", flash.decoder_busy[c], "Time that error correction was occupied.", skip_zero());
    channel.time("filter", flash.filter_busy[c], "Time that the filter was occupied.", skip_zero());
  }
  s.counter("retries", flash.retries, "reads", "Attempts to read a page after the first.", skip_zero());
  s.counter("register_reads", flash.register_reads, "reads", "Reads whose page was in the register of its plane.",
            skip_zero());
  s.counter("buffer_overflows", flash.buffer_overflows, "pages", "Pages that found no buffer and went ahead.",
            skip_zero());
  s.counter("suspends", flash.suspends, "suspends", "Suspensions of programs and erases.", skip_zero());
  s.counter("joined_ops", flash.joined_ops, "operations", "Page operations that joined the command of another plane.",
            skip_zero());
}

}  // namespace csdsim::nfc
