// Errors of the flash array: how often bits flip, whether the decoder corrects them and after how many read retries,
// and when programs and erases fail.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/address.h"
#include "contracts/page_op.h"

namespace csdsim::nfc {

/// Coefficients of the raw bit error rate (Kim, Choi, Min, "Design Tradeoffs for SSD Reliability", FAST 2019, section
/// 2): RBER = base + wear c^wear_exponent + retention c^retention_wear_exponent t^retention_exponent
///           + disturb c^disturb_wear_exponent r^disturb_exponent
/// with c program/erase cycles, t days since programming, r reads of each page of the block since its erase.
struct RberCoefficients {
  double base = 0;
  double wear = 0;
  double wear_exponent = 1;
  double retention = 0;
  double retention_wear_exponent = 0;
  double retention_exponent = 1;
  double disturb = 0;
  double disturb_wear_exponent = 0;
  double disturb_exponent = 1;

  /// In [0, 0.5]: beyond that a bit says nothing.
  double rate(double cycles, double days, double page_reads) const;
};

/// The 72-layer TLC of FAST 2019.
RberCoefficients tlc_rber();
/// The 3x-nm MLC of FAST 2019, as recalled.
RberCoefficients mlc_rber();
/// Assumed: the MLC's with a hundredth of each rate, what one bit a cell leaves of margin (Mielke et al., IRPS 2008,
/// and Grupp et al., MICRO 2009, find SLC one to several orders of magnitude below MLC).
RberCoefficients slc_rber();
/// Assumed: the TLC's with twice the base rate and four times the others (sixteen levels in the window of eight).
RberCoefficients qlc_rber();

/// Bits of a cell, which are pages of different types.
enum class CellType : std::uint8_t { slc = 1, mlc = 2, tlc = 3, qlc = 4 };
/// Those of the four functions above.
RberCoefficients rber_of(CellType cell);

/// Program/erase cycles that a block is rated for where nothing states them: common for 3D TLC.
inline constexpr std::uint32_t kRatedCycles = 3000;

/// How a page is protected, and when the array refuses (reliability_params() makes it from what a user says).
struct ReliabilityParams {
  RberCoefficients rber;
  std::uint32_t initial_cycles = 0;    ///< program/erase cycles of every block before the run
  double retention_days = 0;           ///< age of all data that are read
  std::uint32_t pages_per_block = 1;   ///< over which the reads of a block spread
  std::uint32_t codewords = 4;         ///< codewords of a page
  std::uint32_t codeword_bits = 9200;  ///< data and parity: 1 KiB and 72 x 14 bits of a BCH code over GF(2^14)
  std::uint32_t correctable_bits = 72;
  double retry_factor = 0.5;      ///< what a retry at the next read voltages leaves of the error rate, in [0, 1]
  std::uint32_t max_retries = 8;  ///< at most 255
  double program_failure = 0;     ///< probability of a page program at `rated_cycles`
  double erase_failure = 0;       ///< probability of a block erase at `rated_cycles`
  std::uint32_t rated_cycles = kRatedCycles;
  double failure_exponent = 1;  ///< failures grow with cycles to this power
  std::uint64_t seed = 0;

  /// Throws UserError naming the parameter that is out of range.
  void validate() const;
};

/// P(X > k) for X binomial with n trials of probability p, to a relative error below 1e-9 where it exceeds 1e-300.
double binomial_tail(std::uint32_t n, double p, std::uint32_t k);

/// Draws the fate of page operations. Every draw is a function of the seed and its arguments alone: no order of
/// operations changes it. An attempt of a read fails when any codeword holds more errors than are correctable; the
/// errors of a codeword are binomial in the RBER of the attempt, retry_factor^i of that of the state for retry i.
///
/// Bits are wrong because of the charge in their cells, which stays as it was programmed but for what age and reads do
/// to it: the errors of a page are drawn when it is programmed (once between two erases), for all reads and their
/// attempts. A page that fails attempt i is among those that failed attempt i - 1, one that needed so many
/// retries needs no fewer at a later read, and one that is lost stays lost until its block is erased.
///
/// Erases of this run and reads are rounded to one of 16 steps an octave (at most 3 % off; exact below 32), and the
/// distribution of each state is worked out once: a read costs one hash and one comparison. The cycles before the run
/// are not rounded: 3 % of them can be three times as many retries.
class Reliability {
 public:
  /// UserError for a configuration that is out of range.
  explicit Reliability(const ReliabilityParams& params);

  /// `erase_count` of the block in this run, `reads_since_erase` of the block before this read.
  ReadOutcome read(PhysicalPageAddress ppa, std::uint32_t erase_count, std::uint64_t reads_since_erase);
  bool program_fails(PhysicalPageAddress ppa, std::uint32_t erase_count) const;
  bool erase_fails(BlockId block, std::uint32_t erase_count) const;

  /// RBER of the first attempt of a read.
  double rber(std::uint32_t erase_count, std::uint64_t reads_since_erase) const;
  /// Probability that attempt `attempt` (0: the first) of a read leaves some codeword uncorrected.
  double attempt_failure(std::uint32_t attempt, std::uint32_t erase_count, std::uint64_t reads_since_erase) const;
  double program_failure(std::uint32_t erase_count) const;
  double erase_failure(std::uint32_t erase_count) const;

 private:
  /// 2^64 times the probability that attempt i fails, [attempt].
  using Thresholds = std::vector<std::uint64_t>;
  using States = std::vector<std::unique_ptr<Thresholds>>;

  const Thresholds& thresholds(std::uint32_t erase_count, std::uint64_t reads_since_erase);
  double cycles(std::uint32_t erase_count) const;
  double worn(double rate, std::uint32_t erase_count) const;

  ReliabilityParams params_;
  std::vector<States> states_;  ///< [cycles bucket][reads bucket], filled as needed
};

}  // namespace csdsim::nfc
