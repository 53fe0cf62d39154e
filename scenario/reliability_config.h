// Errors of the flash: raw bit errors, how they are corrected, and failing programs and erases.
#pragma once

#include <cstdint>
#include <optional>

#include "base/param.h"
#include "base/quantity.h"

namespace csdsim::scenario {

/// Bits of a cell, which are pages of different types.
enum class CellType : std::uint8_t { slc = 1, mlc = 2, tlc = 3, qlc = 4 };

/// See nfc::ReliabilityConfig. Coefficients of the raw bit error rate that are not given are those of the cell.
struct ReliabilityConfig {
  CellType cell = CellType::tlc;
  std::uint32_t pe_cycles = 0;
  Ratio retention_days{0, 1};
  std::optional<Ratio> base;
  std::optional<Ratio> wear;
  std::optional<Ratio> wear_exponent;
  std::optional<Ratio> retention;
  std::optional<Ratio> retention_wear_exponent;
  std::optional<Ratio> retention_exponent;
  std::optional<Ratio> disturb;
  std::optional<Ratio> disturb_wear_exponent;
  std::optional<Ratio> disturb_exponent;
  Bytes codeword = Bytes::kib(1);
  std::uint32_t correctable_bits = 72;
  Ratio retry_factor = Ratio::of(1, 2);
  std::uint32_t max_retries = 8;
  std::optional<SimTime> retry_latency;
  Ratio program_failure = Ratio::of(87, 10'000'000'000);
  Ratio erase_failure = Ratio::of(67, 10'000'000);
  std::uint32_t rated_cycles = 3000;
  Ratio failure_exponent{1, 1};
};

void describe(ParamVisitor& v, ReliabilityConfig& c);

}  // namespace csdsim::scenario

namespace csdsim {

template <>
struct EnumValues<scenario::CellType> {
  static constexpr EnumValue<scenario::CellType> values[] = {{scenario::CellType::slc, "slc", "One bit a cell."},
                                                             {scenario::CellType::mlc, "mlc", "Two page types."},
                                                             {scenario::CellType::tlc, "tlc", "Three page types."},
                                                             {scenario::CellType::qlc, "qlc", "Four page types."}};
};

}  // namespace csdsim
