// The options of one job of fio, from a job file or from its JSON output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/units.h"
#include "experiment/block_io/block_workload.h"

namespace csdsim::experiment {

/// All members throw UserError for a value that cannot be read or simulated: "FILE: job 'NAME': ...", in a job file
/// "FILE:LINE: error: job 'NAME': ...". The forms are those of fio 3.33.
class FioOptions {
 public:
  /// The line of each option; that of the job itself has no name.
  using Lines = std::map<std::string, std::size_t, std::less<>>;

  /// `own` and `globals` are objects from names of options to texts; `file` is for messages. JSON output has no lines.
  FioOptions(std::string file, std::string name, nlohmann::ordered_json globals, nlohmann::ordered_json own,
             Lines lines = {})
      : file_(std::move(file)),
        name_(std::move(name)),
        globals_(std::move(globals)),
        own_(std::move(own)),
        lines_(std::move(lines)) {}

  const std::string& name() const { return name_; }
  [[noreturn]] void fail(const std::string& what, std::string_view option = "") const;

  /// The text of an option, of the job or of all jobs.
  std::optional<std::string> option(const char* key, const char* other_name = "") const;
  /// An option that is 0 or 1; 0 if it is not given.
  bool flag(const char* key) const;
  std::uint32_t count(const char* key, std::uint32_t otherwise) const;
  Bytes block_size() const;
  Pattern pattern() const;
  /// Requests in flight of each clone. Engines that wait for each request have one.
  std::uint32_t depth() const;
  /// Share of reads of a mixed load in percent. What the job itself says comes before what all jobs have. Of rwmixread
  /// and rwmixwrite the last one counts in fio; both may be given when they say the same.
  std::uint32_t read_percent() const;
  bool mixed() const;

  /// Refuses options that may change the requests and are not simulated. `read_by_caller` are options that the caller
  /// reads itself.
  void refuse_what_is_not_simulated(const std::vector<std::string>& read_by_caller = {}) const;

 private:
  /// Files of one job; fio separates them by colons, and a colon of a name has a backslash before it.
  std::size_t files() const;

  std::string file_, name_;
  nlohmann::ordered_json globals_, own_;
  Lines lines_;
};

}  // namespace csdsim::experiment
