#include "nfc/core/reliability.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/rng.h"

namespace csdsim::nfc {
namespace {

/// Values below 2 * kSteps have a bucket each, then every octave has kSteps.
constexpr int kStepBits = 4;
constexpr std::uint64_t kSteps = 1U << kStepBits;

std::size_t bucket_of(std::uint64_t value) {
  const int octave = std::max(0, static_cast<int>(std::bit_width(value)) - kStepBits - 1);
  return static_cast<std::size_t>(octave) * kSteps + static_cast<std::size_t>(value >> octave);
}

/// The middle of the values that share a bucket with `value`.
double middle_of_bucket(std::uint64_t value) {
  const int octave = std::max(0, static_cast<int>(std::bit_width(value)) - kStepBits - 1);
  const auto width = static_cast<double>(std::uint64_t{1} << octave);
  return static_cast<double>(value >> octave) * width + (width - 1) / 2;
}

void require(bool ok, std::string_view name, double value, std::string_view what) {
  if (!ok) throw UserError(fmt::format("reliability.{}: {} is out of range, it must be {}", name, value, what));
}

bool is_probability(double p) { return p >= 0 && p <= 1; }

RberCoefficients scaled(RberCoefficients c, double base, double others) {
  c.base *= base;
  c.wear *= others;
  c.retention *= others;
  c.disturb *= others;
  return c;
}

/// p as a threshold of a uniform 64-bit number: drawn below it with probability p.
std::uint64_t threshold(double p) {
  if (p >= 1) return ~std::uint64_t{0};
  return static_cast<std::uint64_t>(std::ldexp(p, 64));
}

enum class Purpose : std::uint64_t { read = 1, program, erase };

/// Uniform over 64 bits, a function of its arguments.
std::uint64_t draw(std::uint64_t seed, Purpose purpose, std::uint64_t what, std::uint64_t when) {
  return splitmix64(splitmix64(splitmix64(seed ^ static_cast<std::uint64_t>(purpose)) ^ what) ^ splitmix64(~when));
}

}  // namespace

double RberCoefficients::rate(double cycles, double days, double page_reads) const {
  // A mechanism that is off stays off where its power of zero would be one.
  const auto term = [](double factor, double power) { return factor > 0 ? factor * power : 0.0; };
  const double rate = base + term(wear, std::pow(cycles, wear_exponent)) +
                      term(retention, std::pow(cycles, retention_wear_exponent) * std::pow(days, retention_exponent)) +
                      term(disturb, std::pow(cycles, disturb_wear_exponent) * std::pow(page_reads, disturb_exponent));
  return std::min(rate, 0.5);
}

RberCoefficients tlc_rber() {
  return {.base = 1.48e-3,
          .wear = 3.90e-10,
          .wear_exponent = 2.05,
          .retention = 6.28e-5,
          .retention_wear_exponent = 0.14,
          .retention_exponent = 0.54,
          .disturb = 3.73e-9,
          .disturb_wear_exponent = 0.33,
          .disturb_exponent = 1.71};
}

RberCoefficients mlc_rber() {
  return {.base = 5.06e-8,
          .wear = 1.05e-14,
          .wear_exponent = 2.16,
          .retention = 9.31e-14,
          .retention_wear_exponent = 1.80,
          .retention_exponent = 0.80,
          .disturb = 4.17e-15,
          .disturb_wear_exponent = 1.07,
          .disturb_exponent = 1.45};
}

RberCoefficients slc_rber() { return scaled(mlc_rber(), 0.01, 0.01); }
RberCoefficients qlc_rber() { return scaled(tlc_rber(), 2, 4); }

RberCoefficients rber_of(CellType cell) {
  switch (cell) {
    case CellType::slc:
      return slc_rber();
    case CellType::mlc:
      return mlc_rber();
    case CellType::tlc:
      return tlc_rber();
    case CellType::qlc:
      return qlc_rber();
  }
  throw InternalError("unknown cell");
}

void ReliabilityParams::validate() const {
  const std::pair<std::string_view, double> rates[] = {{"base", rber.base},
                                                       {"wear", rber.wear},
                                                       {"retention", rber.retention},
                                                       {"disturb", rber.disturb},
                                                       {"program_failure", program_failure},
                                                       {"erase_failure", erase_failure},
                                                       {"retry_factor", retry_factor}};
  for (const auto& [name, value] : rates) require(is_probability(value), name, value, "in [0, 1]");
  const std::pair<std::string_view, double> powers[] = {{"wear_exponent", rber.wear_exponent},
                                                        {"retention_wear_exponent", rber.retention_wear_exponent},
                                                        {"retention_exponent", rber.retention_exponent},
                                                        {"disturb_wear_exponent", rber.disturb_wear_exponent},
                                                        {"disturb_exponent", rber.disturb_exponent},
                                                        {"failure_exponent", failure_exponent},
                                                        {"retention_days", retention_days}};
  for (const auto& [name, value] : powers) require(value >= 0, name, value, "at least 0");
  require(pages_per_block > 0, "pages_per_block", pages_per_block, "at least 1");
  require(codewords > 0, "codewords", codewords, "at least 1");
  require(correctable_bits < codeword_bits, "correctable_bits", correctable_bits, "below the bits of a codeword");
  require(max_retries <= 255, "max_retries", max_retries, "at most 255");
  require(rated_cycles > 0, "rated_cycles", rated_cycles, "at least 1");
}

double binomial_tail(std::uint32_t n, double p, std::uint32_t k) {
  if (k >= n || p <= 0) return 0;
  if (p >= 1) return 1;
  // The terms fall away from the mean: sum from k towards the end on the far side of it.
  const double odds = p / (1 - p);
  double log_choose = 0;
  for (std::uint32_t i = 1; i <= k + 1; ++i) log_choose += std::log(static_cast<double>(n - i + 1) / i);
  const double log_term = log_choose + (k + 1) * std::log(p) + (n - k - 1) * std::log1p(-p);
  double sum = 0;
  if (k + 1 > n * p) {
    double term = std::exp(log_term);
    for (std::uint32_t i = k + 1; i <= n && term > sum * 1e-17; ++i) {
      sum += term;
      term *= odds * static_cast<double>(n - i) / (i + 1);
    }
    return std::min(sum, 1.0);
  }
  double term = std::exp(log_term - std::log(odds * static_cast<double>(n - k) / (k + 1)));  // term of k itself
  for (std::uint32_t i = k; term > sum * 1e-17; --i) {
    sum += term;
    if (i == 0) break;
    term *= static_cast<double>(i) / (odds * static_cast<double>(n - i + 1));
  }
  return std::max(0.0, 1 - sum);
}

Reliability::Reliability(const ReliabilityParams& params) : params_(params) { params_.validate(); }

double Reliability::cycles(std::uint32_t erase_count) const {
  return params_.initial_cycles + middle_of_bucket(erase_count);
}

double Reliability::rber(std::uint32_t erase_count, std::uint64_t reads_since_erase) const {
  return params_.rber.rate(cycles(erase_count), params_.retention_days,
                           middle_of_bucket(reads_since_erase) / params_.pages_per_block);
}

double Reliability::attempt_failure(std::uint32_t attempt, std::uint32_t erase_count,
                                    std::uint64_t reads_since_erase) const {
  const double rate = rber(erase_count, reads_since_erase) * std::pow(params_.retry_factor, attempt);
  const double codeword = binomial_tail(params_.codeword_bits, rate, params_.correctable_bits);
  return -std::expm1(params_.codewords * std::log1p(-codeword));
}

double Reliability::worn(double rate, std::uint32_t erase_count) const {
  if (rate == 0) return 0;
  const double life = cycles(erase_count) / params_.rated_cycles;
  return std::min(1.0, rate * std::pow(life, params_.failure_exponent));
}

double Reliability::program_failure(std::uint32_t erase_count) const {
  return worn(params_.program_failure, erase_count);
}
double Reliability::erase_failure(std::uint32_t erase_count) const { return worn(params_.erase_failure, erase_count); }

const Reliability::Thresholds& Reliability::thresholds(std::uint32_t erase_count, std::uint64_t reads_since_erase) {
  const std::size_t row = bucket_of(erase_count);
  const std::size_t column = bucket_of(reads_since_erase);
  if (states_.size() <= row) states_.resize(row + 1);
  States& states = states_[row];
  if (states.size() <= column) states.resize(column + 1);
  if (!states[column]) {
    auto made = std::make_unique<Thresholds>();
    for (std::uint32_t i = 0; i <= params_.max_retries; ++i)
      made->push_back(threshold(attempt_failure(i, erase_count, reads_since_erase)));
    states[column] = std::move(made);
  }
  return *states[column];
}

ReadOutcome Reliability::read(PhysicalPageAddress ppa, std::uint32_t erase_count, std::uint64_t reads_since_erase) {
  const Thresholds& fails = thresholds(erase_count, reads_since_erase);
  const std::uint64_t luck = draw(params_.seed, Purpose::read, ppa.value, erase_count);
  if (luck >= fails[0]) return {};
  std::uint32_t attempt = 1;
  while (attempt <= params_.max_retries && luck < fails[attempt]) ++attempt;
  const bool uncorrectable = attempt > params_.max_retries;
  return {static_cast<std::uint8_t>(uncorrectable ? params_.max_retries : attempt), uncorrectable};
}

bool Reliability::program_fails(PhysicalPageAddress ppa, std::uint32_t erase_count) const {
  if (params_.program_failure == 0) return false;
  return draw(params_.seed, Purpose::program, ppa.value, erase_count) < threshold(program_failure(erase_count));
}

bool Reliability::erase_fails(BlockId block, std::uint32_t erase_count) const {
  if (params_.erase_failure == 0) return false;
  return draw(params_.seed, Purpose::erase, block.value, erase_count) < threshold(erase_failure(erase_count));
}

}  // namespace csdsim::nfc
