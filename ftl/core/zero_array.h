// An array of zeros whose memory is committed where it is written.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>

namespace csdsim::ftl {

/// An array of `size` elements whose bytes are zero. The memory of a large array comes from the operating system, which
/// commits a page of it when the page is first written. So an array for all blocks of a drive costs memory only for the
/// blocks that are used. calloc() does not promise that: it may reuse memory of the process, and clears all of it.
template <class T>
class ZeroArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>, "zero bytes are a T");

 public:
  ZeroArray() = default;  ///< without elements
  explicit ZeroArray(std::size_t size) : data_(allocate(size * sizeof(T)), Free{size * sizeof(T)}), size_(size) {}

  T& operator[](std::size_t i) { return data_.get()[i]; }
  const T& operator[](std::size_t i) const { return data_.get()[i]; }
  T* data() { return data_.get(); }
  const T* data() const { return data_.get(); }
  std::size_t size() const { return size_; }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size_; }

 private:
  static constexpr std::size_t kLarge = std::size_t{128} << 10;  ///< bytes; smaller arrays come from calloc()

  static T* allocate(std::size_t bytes) {
    if (bytes == 0) return nullptr;
    void* const data = bytes < kLarge
                           ? std::calloc(bytes, 1)
                           : mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == nullptr || data == MAP_FAILED) throw std::bad_alloc();
    return static_cast<T*>(data);
  }
  struct Free {
    std::size_t bytes = 0;
    void operator()(T* p) const {
      if (bytes < kLarge)
        std::free(p);
      else
        munmap(p, bytes);
    }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

}  // namespace csdsim::ftl
