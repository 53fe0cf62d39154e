// Errors of the flash: raw bit errors, how they are corrected, and failing programs and erases.
#pragma once

#include <cstdint>
#include <optional>

#include "base/param.h"
#include "base/quantity.h"
#include "nfc/core/reliability.h"

namespace csdsim::nfc {

/// What a user may say about errors: section `flash.reliability`. Coefficients of the raw bit error rate that are not
/// given are those of the cell.
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
  std::optional<std::uint32_t> rated_cycles;  ///< unset: those of the flash
  Ratio failure_exponent{1, 1};

  /// Parity bits of a codeword: a BCH code over GF(2^m) takes m parity bits for each bit that it corrects.
  std::uint32_t parity_bits() const;
};

void describe(ParamVisitor& v, ReliabilityConfig& c);

/// The parameters of the error model of a drive with this geometry. `rated_cycles`: program/erase cycles that a block
/// is rated for. Precondition: a codeword divides a page. A page is lost if its worst codeword cannot be corrected,
/// even if a read does not need that codeword.
ReliabilityParams reliability_params(const ReliabilityConfig& config, const FlashGeometry& geometry,
                                     std::uint32_t rated_cycles, std::uint64_t seed);

}  // namespace csdsim::nfc

namespace csdsim {

template <>
struct EnumValues<nfc::CellType> {
  static constexpr EnumValue<nfc::CellType> values[] = {{nfc::CellType::slc, "slc", "One bit a cell."},
                                                        {nfc::CellType::mlc, "mlc", "Two page types."},
                                                        {nfc::CellType::tlc, "tlc", "Three page types."},
                                                        {nfc::CellType::qlc, "qlc", "Four page types."}};
};

}  // namespace csdsim
