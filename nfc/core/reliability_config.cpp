#include "nfc/core/reliability_config.h"

#include <bit>

namespace csdsim::nfc {

void describe(ParamVisitor& v, ReliabilityConfig& c) {
  const Range<Ratio> share{Ratio{0, 1}, Ratio{1, 1}};
  const Range<Ratio> power{Ratio{0, 1}, Ratio{10, 1}};
  const Cite of_cell = paper(
      "Kim, Choi, Min, FAST 2019: 72-layer TLC; MLC as recalled from there, SLC and QLC assumed from these two; auto "
      "is "
      "the cell's");
  v.param("cell", c.cell, "Bits of a cell; has to agree with page_types.", assumed("the usual cell of the decade"));
  v.param("pe_cycles", c.pe_cycles, {0, 1'000'000}, "Program/erase cycles of every block before the run.",
          assumed("a new drive"));
  v.param("retention_days", c.retention_days, {Ratio{0, 1}, Ratio{36'500, 1}},
          "Days since all data that are read were programmed, those of the run included.", assumed("fresh data"));
  v.optional("base", c.base, "auto", share, "Raw bit error rate of fresh data on a new block.", of_cell);
  v.optional("wear", c.wear, "auto", share, "Rate that cycles to the power of wear_exponent add.", of_cell);
  v.optional("wear_exponent", c.wear_exponent, "auto", power, "Growth of that rate with cycles.", of_cell);
  v.optional("retention", c.retention, "auto", share, "Rate that days to the power of retention_exponent add.",
             of_cell);
  v.optional("retention_wear_exponent", c.retention_wear_exponent, "auto", power, "Growth of that rate with cycles.",
             of_cell);
  v.optional("retention_exponent", c.retention_exponent, "auto", power, "Growth of that rate with days.", of_cell);
  v.optional("disturb", c.disturb, "auto", share, "Rate that reads of a page to the power of disturb_exponent add.",
             of_cell);
  v.optional("disturb_wear_exponent", c.disturb_wear_exponent, "auto", power, "Growth of that rate with cycles.",
             of_cell);
  v.optional("disturb_exponent", c.disturb_exponent, "auto", power,
             "Growth of that rate with reads of a page since the erase, the mean over its block.", of_cell);
  v.param("codeword", c.codeword, {Bytes{512}, Bytes::kib(16)}, "Data bytes of a codeword; divides a page.",
          assumed("common for BCH and LDPC codes of TLC"));
  v.param("correctable_bits", c.correctable_bits, {1, 2000},
          "Errors of a codeword that are corrected, with as many parity symbols of a BCH code.",
          assumed("72 bits a KiB, common for TLC"));
  v.param(
      "retry_factor", c.retry_factor, share, "What a read retry leaves of the raw bit error rate.",
      assumed("read levels move towards the best ones; Cai et al., Proc. IEEE 2017, V-C, show it for the last steps"));
  v.param("max_retries", c.max_retries, {0, 255}, "Retries until a page counts as lost.",
          assumed("data sheets offer about as many read-retry options"));
  v.optional("retry_latency", c.retry_latency, "auto", {SimTime::nanoseconds(1), SimTime::milliseconds(100)},
             "tR of a retry; auto: that of the page.", assumed("the same array operation"));
  const Cite bad_blocks = datasheet(
      "Micron MT29F: at most 2 % of the blocks of a die go bad in its life; half of them by erases, half by programs");
  v.param("program_failure", c.program_failure, share, "Probability that a page program fails at rated_cycles.",
          bad_blocks);
  v.param("erase_failure", c.erase_failure, share, "Probability that an erase fails at rated_cycles.", bad_blocks);
  v.optional("rated_cycles", c.rated_cycles, "flash.rated_cycles", {1, 10'000'000},
             "Program/erase cycles that a block is rated for, in place of flash.rated_cycles.",
             assumed("those of the flash"));
  v.param("failure_exponent", c.failure_exponent, power, "Growth of failures with cycles.", assumed("linear"));
}

std::uint32_t ReliabilityConfig::parity_bits() const {
  return correctable_bits * static_cast<std::uint32_t>(std::bit_width(8 * codeword.value));
}

ReliabilityParams reliability_params(const ReliabilityConfig& config, const FlashGeometry& geometry,
                                     std::uint32_t rated_cycles, std::uint64_t seed) {
  ReliabilityParams params;
  params.rber = rber_of(config.cell);
  const auto given = [](double& coefficient, const std::optional<Ratio>& value) {
    if (value) coefficient = value->value();
  };
  given(params.rber.base, config.base);
  given(params.rber.wear, config.wear);
  given(params.rber.wear_exponent, config.wear_exponent);
  given(params.rber.retention, config.retention);
  given(params.rber.retention_wear_exponent, config.retention_wear_exponent);
  given(params.rber.retention_exponent, config.retention_exponent);
  given(params.rber.disturb, config.disturb);
  given(params.rber.disturb_wear_exponent, config.disturb_wear_exponent);
  given(params.rber.disturb_exponent, config.disturb_exponent);
  params.initial_cycles = config.pe_cycles;
  params.retention_days = config.retention_days.value();
  params.pages_per_block = geometry.pages_per_block;
  params.codewords = static_cast<std::uint32_t>(geometry.page_size.value / config.codeword.value);
  params.codeword_bits = static_cast<std::uint32_t>(8 * config.codeword.value) + config.parity_bits();
  params.correctable_bits = config.correctable_bits;
  params.retry_factor = config.retry_factor.value();
  params.max_retries = config.max_retries;
  params.program_failure = config.program_failure.value();
  params.erase_failure = config.erase_failure.value();
  params.rated_cycles = rated_cycles;
  params.failure_exponent = config.failure_exponent.value();
  params.seed = seed;
  return params;
}

}  // namespace csdsim::nfc
