// What a layer's step takes besides the rates of equation 2: latencies, and that all scores come before any fetch.
#pragma once

#include <cstdint>
#include <optional>

#include "base/ratio.h"
#include "base/token_score.h"
#include "host_runtime/core/planner/model_shape.h"
#include "host_runtime/core/planner/system.h"

namespace csdsim::host {

/// Seconds of the work between the queries of a layer and its attention, for the sequences of a mini-batch.
struct StepTimes {
  double host_scores = 0, drive_scores = 0;
  double choice = 0;          ///< the host merges the drive's scores and chooses
  double gather = 0;          ///< of the hot rows, in host memory
  double copy = 0;            ///< of them to the GPU
  double fetch = 0;           ///< of the cold rows
  double staged = 0;          ///< their copy to the GPU, if they pass through host memory
  DriveStoring storing = {};  ///< programs for which the drive's scores wait

  /// The choice needs the scores of both sides; then both send rows at the same time. Staged rows follow the others on
  /// the GPU's link.
  double total() const;
};

/// A layer's step whose division between host memory and drives is to be found.
struct DividedStep {
  ModelShape model;
  PlatformRates rates;
  std::uint32_t sequences = 1;                         ///< of a mini-batch
  std::uint64_t tokens = 0;                            ///< of each sequence
  std::uint64_t grown = 0;                             ///< of these tokens: those of the output
  std::uint64_t chosen = 0;                            ///< of these tokens
  double recent = 0;                                   ///< share of the chosen tokens that is among as many newest ones
  std::optional<Ratio> important_hot, important_cold;  ///< shares of each pool that are chosen, if they are known
  ScorePrecision precision = ScorePrecision::fp16;
  std::uint32_t chunk = 0;  ///< tokens of an operation of the drive; 0: all of them
};

/// With the `hot` newest tokens of each sequence in host memory, at most all of them. Of the chosen tokens, `recent` is
/// among as many newest tokens, and the rest is anywhere before them.
StepTimes step_times(const DividedStep& step, std::uint64_t hot);

/// The number of hot tokens in [least, most] with the smallest total. Precondition: least <= most <= step.tokens.
std::uint64_t fastest_hot_tokens(const DividedStep& step, std::uint64_t least, std::uint64_t most);

}  // namespace csdsim::host
