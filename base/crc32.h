// CRC-32: for the out-of-band area of a page, and to tell checkpoints apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace csdsim {

/// CRC-32 of IEEE 802.3 (reflected polynomial EDB88320h, as in zlib): "123456789" gives CBF43926h. `before` is the CRC
/// of the data that comes first: crc32(b, crc32(a)) is the CRC of a followed by b.
std::uint32_t crc32(std::span<const std::byte> data, std::uint32_t before = 0);

}  // namespace csdsim
