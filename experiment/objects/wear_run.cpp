#include "experiment/objects/wear_run.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace csdsim::experiment {
namespace {

constexpr std::uint64_t kMostParts = 65'536;

class WearRun {
 public:
  explicit WearRun(const WearSetup& setup)
      : setup_(setup), drive_(setup.drive), requests_(setup.writers, setup.request, setup.seed) {
    drive_.ftl.count_moves(region_alignment(drive_.ftl.capacity(), setup.drive).value / drive_.ftl.page_size().value);
  }

  WearOutcome run(const WearProgress& progress) {
    const std::uint64_t measured = setup_.writes.value - setup_.warmup.value;
    write_until(setup_.warmup.value);
    const Totals before = totals();
    ftl::WriteWork last = before.work;
    std::vector<WearBytes> bytes{bytes_so_far()};  // before each sample, and after the last
    WearOutcome out;
    for (std::uint32_t i = 1; i <= setup_.samples; ++i) {
      write_until(i == setup_.samples ? setup_.writes.value : setup_.warmup.value + measured / setup_.samples * i);
      const ftl::WriteWork now = drive_.ftl.stats().work();
      out.samples.push_back({double(written_) / double(drive_.ftl.capacity().value), now - last});
      last = now;
      bytes.push_back(bytes_so_far());
      if (progress) progress(written_, setup_.writes.value);
      if (is_enough(out)) break;
    }
    const Totals after = totals();
    out.capacity = drive_.ftl.capacity();
    out.unit = drive_.ftl.page_size();
    out.blocks = drive_.blocks.geometry().blocks();
    out.work = after.work - before.work;
    out.bytes = bytes.back() - bytes.front();
    out.late_bytes = bytes.back() - bytes[late_from(out.samples.size())];
    for (std::size_t i = 0; i < setup_.writers.size(); ++i) {
      const WriterCounts &a = after.counts[i], &b = before.counts[i];
      out.writers.push_back(
          {{a.new_bytes - b.new_bytes, a.copied_bytes - b.copied_bytes, a.trimmed_bytes - b.trimmed_bytes},
           (after.moved[i] - before.moved[i]) * out.unit.value});
    }
    out.erases = drive_.blocks.wear();
    out.measured_erases = out.erases.mean - before.mean_erases;
    out.programmed = after.work.programmed();
    return out;
  }

 private:
  struct Totals {
    ftl::WriteWork work;
    std::vector<WriterCounts> counts;
    std::vector<std::uint64_t> moved;  ///< units, by writer
    double mean_erases = 0;
  };

  WearBytes bytes_so_far() const {
    WearBytes bytes{.programmed = drive_.ftl.stats().work().programmed() * drive_.ftl.page_size().value};
    for (const WriterCounts& counts : requests_.counts()) {
      bytes.fresh += counts.new_bytes;
      bytes.written += counts.written();
    }
    return bytes;
  }

  void write_until(std::uint64_t bytes) {
    while (written_ < bytes) {
      const ObjectRequest request = requests_.next();
      if (request.trim) {
        require_ok(drive_.ftl.trim(request.offset, request.length).status);
        continue;
      }
      require_ok(drive_.write(request.offset, request.length, setup_.handles[request.writer]));
      written_ += request.length.value;
    }
  }

  /// Whether the windows so far say as much as was asked for.
  bool is_enough(WearOutcome& out) const {
    if (!setup_.error || out.samples.size() == setup_.samples) return false;
    const std::optional<double> error = error_of_windows(out.samples);
    if (!error || *error > *setup_.error) return false;
    out.sampled = {static_cast<std::uint32_t>(out.samples.size()), *error};
    return true;
  }

  static void require_ok(ftl::IoStatus status) {
    if (status != ftl::IoStatus::ok) throw UserError("the drive has run out of spare blocks");
  }

  Totals totals() const {
    Totals totals{.work = drive_.ftl.stats().work(),
                  .counts = requests_.counts(),
                  .moved = {},
                  .mean_erases = drive_.blocks.wear().mean};
    const Bytes part = region_alignment(drive_.ftl.capacity(), setup_.drive);
    const std::vector<std::uint64_t>& moves = drive_.ftl.moves();
    for (const WriterConfig& writer : setup_.writers) {
      std::uint64_t moved = 0;
      for (std::uint64_t at = writer.begin.value / part.value; at * part.value < (writer.begin + writer.region).value;
           ++at)
        moved += moves[at];
      totals.moved.push_back(moved);
    }
    return totals;
  }

  const WearSetup& setup_;
  csd_model::WearDrive drive_;
  ObjectRequests requests_;
  std::uint64_t written_ = 0;
};

/// Mean of a part of the windows' write amplification.
double mean_of(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  return std::accumulate(values.begin() + std::ptrdiff_t(begin), values.begin() + std::ptrdiff_t(end), 0.0) /
         double(end - begin);
}

/// Half of the confidence interval of the mean of independent values.
double half_interval(const std::vector<double>& values) {
  const double mean = mean_of(values, 0, values.size());
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  const auto freedom = double(values.size() - 1);
  // Student's t, two-sided 95 %: 2.259 for 9 degrees of freedom, where it is 2.262 (Abramowitz and Stegun, 26.7.5).
  constexpr double z = 1.96, z3 = z * z * z;
  const double t = z + (z3 + z) / (4 * freedom) + (5 * z3 * z * z + 16 * z3 + 3 * z) / (96 * freedom * freedom);
  return t * std::sqrt(squares / freedom / double(values.size()));
}

}  // namespace

std::optional<double> error_of_windows(const std::vector<WriteSample>& windows) {
  constexpr std::size_t kGroups = 10;
  const std::size_t n = windows.size();
  if (n < kLeastWindows) return std::nullopt;
  std::vector<double> values, groups;
  for (const WriteSample& window : windows) values.push_back(window.work.amplification());
  for (std::size_t i = 0; i < kGroups; ++i) groups.push_back(mean_of(values, n * i / kGroups, n * (i + 1) / kGroups));
  const double drift = std::abs(mean_of(values, 0, n / 2) - mean_of(values, n / 2, n)) / 2;
  return std::max({half_interval(values), half_interval(groups), drift}) / mean_of(values, 0, n);
}

Bytes region_alignment(Bytes capacity, const csd_model::DriveConfig& drive) {
  const Bytes unit = csd_model::wear_flash(drive).geometry.page_size;
  const std::uint64_t units = capacity.value / unit.value;
  return unit * std::bit_ceil((units + kMostParts - 1) / kMostParts);
}

WearOutcome run_wear(const WearSetup& setup, const WearProgress& progress) { return WearRun(setup).run(progress); }

}  // namespace csdsim::experiment
