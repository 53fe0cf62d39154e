// Tracks the places of tensors and memory use, and checks that operations find their inputs.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// Bytes of one place. Classes are indexed by TensorClass.
struct Footprint {
  Bytes now;
  Bytes peak;
  std::array<Bytes, kTensorClasses> of_class{};          ///< current bytes
  std::array<Bytes, kTensorClasses> of_class_at_peak{};  ///< bytes when `peak` was reached
};

/// A parameter that makes the tensors of a class on a GPU smaller: "system.kv_buffers: 1".
struct MemoryRemedy {
  TensorClass what;
  std::string parameter;
};

/// Tracks the tensors of a plan, in timing runs and in carried runs. It ignores operations without tensors. Memory is
/// allocated when the writing operation starts, and freed when the dropping operation ends; one that takes no time
/// frees first.
class TensorLedger {
 public:
  /// Limits a place: exceeding the capacity throws UserError, which names `stated`, the parameter that gives the
  /// capacity. Without a capacity, use is only counted.
  void set_capacity(Place place, Bytes capacity, std::string stated = "") {
    capacity_.insert_or_assign(place, Capacity{capacity, std::move(stated)});
  }

  /// What the message proposes where GPU memory is exceeded, the tensors of whose class are larger than what is
  /// missing.
  void set_remedies(std::vector<MemoryRemedy> remedies) { remedies_ = std::move(remedies); }

  /// Forgets all tensors, before a plan with others; the peaks stay.
  void forget_tensors();

  /// Records a tensor that exists before the plan starts, or that grew without an operation.
  void place(const PlacedTensor& tensor);

  /// Throws InternalError if an input is not where the operation runs, or is still being written; if two operations
  /// write a tensor at the same time; or if the bytes of a transfer differ from those of its tensors. Throws UserError
  /// if the outputs do not fit.
  void begin(const Operation& op);
  /// Throws InternalError if the operation drops a tensor that is not there.
  void end(const Operation& op);

  /// Zeros for a place without tensors.
  Footprint footprint(Place place) const;
  const std::map<Place, Footprint>& footprints() const { return footprints_; }

 private:
  struct Entry {
    Bytes bytes;
    std::optional<OperationId> writer;  ///< operation that is writing it
  };
  using Copies = std::map<Place, Entry>;
  struct Capacity {
    Bytes bytes;
    std::string stated;
  };

  static bool takes_no_time(const Operation& op);
  void drop_all(const Operation& op);
  void check_input(const Operation& op, const TensorName& name) const;
  void check_transfer(const Operation& op) const;
  void resize(const TensorName& name, Place place, Entry& entry, Bytes bytes);
  [[noreturn]] void overflow(Place place, const TensorName& name) const;
  std::string remedies_for(const Footprint& f, Bytes missing) const;

  std::map<TensorName, Copies> tensors_;
  std::map<Place, Footprint> footprints_;
  std::map<Place, Capacity> capacity_;
  std::vector<MemoryRemedy> remedies_;
};

}  // namespace csdsim::host
