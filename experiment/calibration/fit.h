// Fits the parameters of a model to measured figures, and finds out which parameters the figures determine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace csdsim::experiment {

/// A parameter to find: any value between two ends, or one of a few. All are greater than 0.
struct FitParameter {
  std::string name;
  double low = 0, high = 0;
  std::vector<double> choices;  ///< if not empty, one of these
  double start = 0;             ///< a choice, or between the ends
};

struct FitOptions {
  /// A change of a figure by less than this share is not seen.
  double tolerance = 0.02;
  /// Most calls of the model for each parameter in one search.
  std::size_t calls_per_parameter = 40;
  std::uint64_t seed = 1;
  /// Called after each call of the model: how many there have been, and the least error so far.
  std::function<void(std::size_t calls, double error)> progress = [](std::size_t, double) {};
};

/// The values of a parameter, all others unchanged, with which no figure moves by more than the tolerance.
struct FitRange {
  double low = 0, high = 0;
  bool to_low_end = false, to_high_end = false;  ///< down to the lowest, up to the highest value that was allowed
};

/// A change of one parameter that a change of another one hides: no figure moves by more than the tolerance.
struct FitTradeOff {
  std::size_t parameter = 0, other = 0;
  double factor = 1, other_factor = 1;
};

/// The best fit for one combination of choices.
struct FitCandidate {
  std::vector<double> values;  ///< by parameter
  double error = 0;
};

struct Fit {
  std::vector<double> values;
  std::vector<double> figures;           ///< figures of the model with these values
  double error = 0;                      ///< root of the mean square of ln(figure / measured)
  std::vector<FitRange> ranges;          ///< by parameter; of choices, those that fit as well
  std::vector<FitTradeOff> trade_offs;   ///< trade-offs of parameters without choices that do not vary freely alone
  std::vector<FitCandidate> candidates;  ///< one per combination of choices
  std::size_t calls = 0;
};

/// Figures of the model for values of the parameters: as many as are measured, each greater than 0.
using FitModel = std::function<std::vector<double>(const std::vector<double>& values)>;

/// Minimises the mean square of ln(figure / measured) over the logarithms of the parameters. The best points of a
/// sample (Latin hypercube) are starts for BOBYQA of NLopt, which runs once more per combination of choices; the
/// subplex method (LN_SBPLX) goes on from the best one. The same arguments give the same fit.
Fit fit_model(const FitModel& model, const std::vector<FitParameter>& parameters, const std::vector<double>& measured,
              const FitOptions& options);

}  // namespace csdsim::experiment
