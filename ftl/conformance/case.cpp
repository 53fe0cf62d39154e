#include "ftl/conformance/case.h"

#include <fmt/format.h>

namespace csdsim::ftl::conformance {

std::string to_string(const Setup& setup) {
  const FlashGeometry& g = setup.geometry;
  const auto tail = [&]() -> std::string {
    switch (setup.config.tail) {
      case TailPolicy::token_index:
        return "token_index";
      case TailPolicy::dram:
        return "dram";
      case TailPolicy::partial_program:
        return fmt::format("partial_program, {} rewrites a window", setup.config.tail_rewrites);
    }
    return {};
  }();
  const KvLayoutOptions& l = setup.config.layout;
  return fmt::format(
      "{} channels, {} dies, {} planes, {} blocks of {} pages of {} bytes; tail {}; embedding group {}{}; {} bytes of "
      "DRAM; {} spare blocks, {} of 1,000 programs and erases fail; seed {}",
      g.channels, g.dies_per_channel, g.planes_per_die, g.blocks_per_plane, g.pages_per_block, g.page_size.value, tail,
      l.embedding_group == 0 ? "auto" : std::to_string(l.embedding_group), l.adaptive ? ", adaptive" : "",
      setup.dram.value, setup.spare_blocks, setup.failures_per_mille, setup.seed);
}

Coverage& Coverage::operator+=(const Coverage& o) {
  operations += o.operations;
  sequences += o.sequences;
  forks += o.forks;
  pages += o.pages;
  token_pages += o.token_pages;
  windows += o.windows;
  moved_pages += o.moved_pages;
  program_failures += o.program_failures;
  power_losses += o.power_losses;
  checks += o.checks;
  return *this;
}

}  // namespace csdsim::ftl::conformance
