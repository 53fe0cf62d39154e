// The filter of a NAND flash controller on pages of the KV cache: it passes the wanted rows of a page and drops the
// others (InstInfer, section IV-B).
#pragma once

#include <cstdint>

namespace csdsim::nfc {

/// Where the filter sits, which decides the cost of a row that is not wanted: on the controller side of the channel
/// (`nfc`) the whole page crosses the channel, on the die only the wanted rows do. Pages without a wanted row cost
/// nothing in either place: they are not read.
enum class FilterLocation : std::uint8_t { nfc, die };

}  // namespace csdsim::nfc
