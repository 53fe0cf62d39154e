// A function object that is kept without allocating memory.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace csdsim {

template <class Signature, std::size_t Inline = 48>
class Callback;

/// Replaces std::function on paths that run once per command. It is move-only, so captured values need not be copyable;
/// callables of up to Inline bytes are stored inside the object, larger ones on the heap. Calling an empty one is
/// undefined.
template <class Result, class... Arguments, std::size_t Inline>
class Callback<Result(Arguments...), Inline> {
 public:
  Callback() = default;
  Callback(std::nullptr_t) {}

  template <class F>
  requires(!std::same_as<std::decay_t<F>, Callback> && std::is_invocable_r_v<Result, std::decay_t<F>&, Arguments...>)
      Callback(F&& f) {
    using Function = std::decay_t<F>;
    if constexpr (requires { f == nullptr; }) {
      if (f == nullptr) return;
    }
    if constexpr (sizeof(Function) <= Inline && alignof(Function) <= alignof(std::max_align_t) &&
                  std::is_nothrow_move_constructible_v<Function>) {
      new (storage_) Function(std::forward<F>(f));
      invoke_ = [](void* storage, Arguments... arguments) -> Result {
        return (*std::launder(static_cast<Function*>(storage)))(std::forward<Arguments>(arguments)...);
      };
      if constexpr (!std::is_trivially_copyable_v<Function>) manage_ = &manage<Function>;
    } else {
      *this = Callback([held = std::make_unique<Function>(std::forward<F>(f))](Arguments... arguments) -> Result {
        return (*held)(std::forward<Arguments>(arguments)...);
      });
    }
  }

  Callback(Callback&& other) noexcept { take(other); }
  Callback& operator=(Callback&& other) noexcept {
    if (this != &other) {
      clear();
      take(other);
    }
    return *this;
  }
  ~Callback() { clear(); }

  explicit operator bool() const { return invoke_ != nullptr; }
  friend bool operator==(const Callback& callback, std::nullptr_t) { return callback.invoke_ == nullptr; }

  Result operator()(Arguments... arguments) const { return invoke_(storage_, std::forward<Arguments>(arguments)...); }

 private:
  /// Moves the callable from `from` to `to`, or destroys it where `to` is null.
  template <class Function>
  static void manage(void* from, void* to) {
    Function& function = *std::launder(static_cast<Function*>(from));
    if (to != nullptr) new (to) Function(std::move(function));
    function.~Function();
  }

  void take(Callback& other) {
    invoke_ = std::exchange(other.invoke_, nullptr);
    manage_ = std::exchange(other.manage_, nullptr);
    if (manage_ != nullptr)
      manage_(other.storage_, storage_);
    else
      std::memcpy(storage_, other.storage_, Inline);
  }
  void clear() {
    invoke_ = nullptr;
    if (manage_ != nullptr) std::exchange(manage_, nullptr)(storage_, nullptr);
  }

  alignas(std::max_align_t) mutable std::byte storage_[Inline];
  Result (*invoke_)(void*, Arguments...) = nullptr;
  void (*manage_)(void*, void*) = nullptr;  ///< null where the callable is moved by copying its bytes
};

}  // namespace csdsim
