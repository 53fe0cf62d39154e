// Memory for parts of large arrays, in the order in which they are first written.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "ftl/core/zero_array.h"

namespace csdsim::ftl {

/// Pieces of zeros of the same size, from large pages of memory where the system has them. They are never given back.
class ZeroPieces {
 public:
  /// At most `pieces` of `bytes` each.
  ZeroPieces(std::size_t bytes, std::uint64_t pieces) : bytes_(bytes), left_(pieces) {}

  void* take() {
    if (next_ + bytes_ > end_) [[unlikely]]
      add_block();
    --left_;
    void* const piece = next_;
    next_ += bytes_;
    return piece;
  }

 private:
  static constexpr std::size_t kLargePage = std::size_t{2} << 20;

  struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* p) const { munmap(p, bytes); }
  };

  [[gnu::noinline]] void add_block() {
    const std::uint64_t most = std::max<std::uint64_t>(1, left_) * bytes_;
    if (most < kLargePage) {
      small_ = ZeroArray<std::byte>(most);
      next_ = small_.data();
      end_ = next_ + most;
      return;
    }
    const std::size_t size = (bytes_ + kLargePage - 1) / kLargePage * kLargePage;
    // With room to begin where a large page does.
    void* const memory = mmap(nullptr, size + kLargePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    blocks_.emplace_back(static_cast<std::byte*>(memory), Unmap{size + kLargePage});
    const auto address = reinterpret_cast<std::uintptr_t>(memory);
    next_ = blocks_.back().get() + (kLargePage - address % kLargePage) % kLargePage;
    end_ = next_ + size;
    madvise(next_, size, MADV_HUGEPAGE);  // without large pages it works as well
  }

  std::size_t bytes_;
  std::uint64_t left_;
  std::byte* next_ = nullptr;
  std::byte* end_ = nullptr;
  std::vector<std::unique_ptr<std::byte, Unmap>> blocks_;
  ZeroArray<std::byte> small_;
};

}  // namespace csdsim::ftl
