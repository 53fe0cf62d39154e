// Lines for users about points of a sweep that run for long.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "launch/point_places.h"

namespace csdsim::app {

/// On a terminal one line about all points that run, drawn again with each of their steps; in a file a line for each
/// of them every ten seconds.
class PointLines {
 public:
  explicit PointLines(bool quiet);
  void update(const std::string& name, const launch::PointProgress& progress);
  /// A point has ended. What is printed next has a line of its own.
  void end(const std::string& name);
  /// Nothing more is drawn.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    std::string text;
    Clock::time_point said;  ///< when it had a line, or first said something
  };
  bool quiet_;
  bool terminal_;
  bool drawn_ = false;
  std::map<std::string, Running> running_;  ///< by name
};

}  // namespace csdsim::app
