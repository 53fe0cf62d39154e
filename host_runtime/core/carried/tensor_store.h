// The contents of tensors, by name and place, in runs that carry data.
#pragma once

#include <any>
#include <cstddef>
#include <cstdint>
#include <future>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fp16.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// Attention of some heads over a part of the tokens, as it travels (host_runtime/core/attention/partial_attention.h).
struct PartialRows {
  std::vector<std::uint32_t> rows;  ///< rows of the step, ascending: those of sequences that have tokens here
  std::vector<Half> out;            ///< o, [rows][heads * G][d]
  std::vector<float> softmax;       ///< m and z, [rows][heads * G][2]
  Bytes bytes() const { return {out.size() * sizeof(Half) + softmax.size() * sizeof(float)}; }
};

/// K and V of new tokens as they are kept: for each row, those of its heads, K of all of them before V, each quantised
/// as a row of its own (RowQuantisation).
struct QuantisedRows {
  std::vector<std::byte> bytes;
};

/// fp16 rows that are on their way from a processor to the host. Who asks the store for the tensor waits for them and
/// gets a std::vector<Half>.
using AwaitedRows = std::shared_future<std::vector<Half>>;

/// Values of any type: fp16 rows (std::vector<Half>), or a processor's own format behind a pointer. Nothing is found at
/// a place but what was put or copied there: a planner that forgets a transfer fails.
class TensorStore {
 public:
  /// Replaces what is there.
  void put(const TensorName& name, Place place, std::any value);

  /// InternalError that names tensor, place and where it is instead; or the user, if the value has another type.
  template <class T>
  T& at(const TensorName& name, Place place, std::string_view user) {
    T* const value = std::any_cast<T>(&find(name, place, user));
    if (value == nullptr)
      throw InternalError(std::string(user) + ": " + tensor_name(name) + " at " + place_name(place) +
                          " is in another format");
    return *value;
  }
  template <class T>
  const T& at(const TensorName& name, Place place, std::string_view user) const {
    return const_cast<TensorStore*>(this)->at<T>(name, place, user);
  }
  bool has(const TensorName& name, Place place) const;
  /// Anywhere.
  bool has(const TensorName& name) const { return tensors_.count(name) > 0; }

  /// Copies what a transfer reads to where it writes. InternalError if an input is missing, or if fp16 rows or
  /// partial outputs have another size than the operation says.
  void transfer(const Operation& op);
  /// Drops what the operation drops.
  void drop(const Operation& op);

  /// Copies of tensors that are kept now.
  std::size_t size() const;

 private:
  std::any& find(const TensorName& name, Place place, std::string_view user);

  std::map<TensorName, std::map<Place, std::any>> tensors_;
};

}  // namespace csdsim::host
