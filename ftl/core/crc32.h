// CRC-32 for the out-of-band area of a page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace csdsim::ftl {

/// CRC-32 of IEEE 802.3 (reflected polynomial EDB88320h, as in zlib): "123456789" gives CBF43926h.
std::uint32_t crc32(std::span<const std::byte> data);

}  // namespace csdsim::ftl
