// Open sets of kinds: what a map of a scenario chooses between where code elsewhere, a shared library included, adds to
// the choice. base/param.h reads and describes them like a variant.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/registry.h"

namespace csdsim {

class ParamVisitor;

/// Factories by the name of their kind, in order of registration. The first kind is the default.
template <class T>
class Kinds : public Registry<std::function<std::unique_ptr<T>()>> {
 public:
  using Registry<std::function<std::unique_ptr<T>()>>::Registry;
  using Registry<std::function<std::unique_ptr<T>()>>::add;

  /// Registers Impl under Impl::kKind, described by the sentence Impl::kDoc. UserError if the name is taken.
  template <class Impl>
  void add() {
    add(std::string(Impl::kKind), std::string(Impl::kDoc), [] { return std::make_unique<Impl>(); });
  }
  std::unique_ptr<T> make(std::string_view kind) const { return this->at(kind)(); }
};

/// A value of one of the kinds of a registry, with its parameters. Copies are deep. T has
/// `std::unique_ptr<T> clone() const` and `void describe(ParamVisitor&)`.
template <class T>
class Chosen {
 public:
  /// The first kind. InternalError if there is none.
  explicit Chosen(std::shared_ptr<const Kinds<T>> kinds) : kinds_(std::move(kinds)) {
    if (kinds_->items().empty()) throw InternalError("a choice between no kinds");
    select(0);
  }
  Chosen(const Chosen& other) : kinds_(other.kinds_), index_(other.index_), value_(other.value_->clone()) {}
  Chosen(Chosen&&) noexcept = default;
  Chosen& operator=(const Chosen& other) {
    if (this != &other) *this = Chosen(other);
    return *this;
  }
  Chosen& operator=(Chosen&&) noexcept = default;

  /// Makes it a value of another kind, with the defaults of that kind.
  void select(std::size_t index) {
    value_ = kinds_->items().at(index).value();
    index_ = index;
  }
  /// UserError that lists the kinds for an unknown one.
  void select(std::string_view kind) {
    kinds_->at(kind);
    for (std::size_t i = 0; i < kinds_->items().size(); ++i)
      if (kinds_->items()[i].name == kind) select(i);
  }

  std::size_t index() const { return index_; }
  std::string_view kind() const { return kinds_->items()[index_].name; }
  const Kinds<T>& kinds() const { return *kinds_; }

  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return value_.get(); }
  const T* operator->() const { return value_.get(); }

 private:
  std::shared_ptr<const Kinds<T>> kinds_;
  std::size_t index_ = 0;
  std::unique_ptr<T> value_;
};

}  // namespace csdsim
