// Which tensors lie where, how much of each memory they take, and whether operations find what they read.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "host_runtime/core/planner/operation.h"

namespace csdsim::host {

/// Bytes of one place. Classes are indexed by TensorClass.
struct Footprint {
  Bytes now;
  Bytes peak;
  std::array<Bytes, kTensorClasses> of_class{};          ///< now
  std::array<Bytes, kTensorClasses> of_class_at_peak{};  ///< when `peak` was reached
};

/// Follows the tensors of a plan, in timing runs as in carried ones. Operations that declare no tensors are not looked
/// at. Space is taken when the operation that writes starts, and given back when the one that drops ends.
class TensorLedger {
 public:
  /// UserError as soon as a place holds more than this, which names `stated`: where the user says how much there is.
  /// Without a capacity a place is only counted.
  void set_capacity(Place place, Bytes capacity, std::string stated = "") {
    capacity_.insert_or_assign(place, Capacity{capacity, std::move(stated)});
  }

  /// A tensor that lies there before the plan starts, or that grew otherwise.
  void place(const PlacedTensor& tensor);

  /// InternalError if an input is not where the operation runs, or is still being written; if two operations write a
  /// tensor at a time; or if a transfer's bytes are not those of its tensors. UserError if the outputs do not fit.
  void begin(const Operation& op);
  /// InternalError if the operation drops what is not there.
  void end(const Operation& op);

  /// Nothing for a place without tensors.
  Footprint footprint(Place place) const;
  const std::map<Place, Footprint>& footprints() const { return footprints_; }

 private:
  struct Entry {
    Bytes bytes;
    std::optional<OperationId> writer;  ///< at work on it
  };
  using Copies = std::map<Place, Entry>;
  struct Capacity {
    Bytes bytes;
    std::string stated;
  };

  void check_input(const Operation& op, const TensorName& name) const;
  void check_transfer(const Operation& op) const;
  void resize(const TensorName& name, Place place, Entry& entry, Bytes bytes);
  [[noreturn]] void overflow(Place place, const TensorName& name) const;

  std::map<TensorName, Copies> tensors_;
  std::map<Place, Footprint> footprints_;
  std::map<Place, Capacity> capacity_;
};

}  // namespace csdsim::host
