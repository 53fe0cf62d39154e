#include "tests/gpu/emulation/emulation.h"

#include <ucontext.h>

#include <exception>
#include <map>
#include <memory>
#include <stdexcept>

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emulation {
namespace {

constexpr std::size_t kStackBytes = std::size_t{128} << 10;
constexpr std::size_t kExchangeBytes = 256;

struct Fiber {
  ucontext_t context{};
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  Position position{};
  alignas(16) unsigned char mail[kExchangeBytes] = {};
  bool done = false;
};

struct Barrier {
  std::size_t arrived = 0;
  std::uint64_t generation = 0;
};

// One block at a time, on one thread of the process.
struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::map<int, Barrier> barriers;
  std::vector<unsigned char> shared;
  ucontext_t scheduler{};
  std::size_t current = 0;
  std::uint64_t progress = 0;  // counts what lets somebody go on
  const std::function<void()>* body = nullptr;
  std::exception_ptr error;
};
Block block;

void run_fiber() {
  Fiber& fiber = *block.fibers[block.current];
  try {
    (*block.body)();
  } catch (...) {
    if (!block.error) block.error = std::current_exception();
  }
  fiber.done = true;
  ++block.progress;
  swapcontext(&fiber.context, &block.scheduler);
}

void run_block(std::size_t threads) {
  for (std::size_t left = threads; left > 0;) {
    const std::uint64_t before = block.progress;
    for (block.current = 0; block.current < threads; ++block.current) {
      Fiber& fiber = *block.fibers[block.current];
      if (fiber.done) continue;
      swapcontext(&block.scheduler, &fiber.context);
      if (block.error) std::rethrow_exception(block.error);
      left -= fiber.done;
    }
    if (left > 0 && block.progress == before) throw std::runtime_error("the threads of a block wait for ever");
  }
}

}  // namespace

void launch(dim3 grid, dim3 size, std::size_t shared_bytes, const std::function<void()>& body) {
  const std::size_t threads = size.x;
  block.body = &body;
  block.error = nullptr;
  while (block.fibers.size() < threads) block.fibers.push_back(std::make_unique<Fiber>());
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        block.barriers.clear();
        // What shared memory holds at the start is not known: NaN in every type.
        block.shared.assign(shared_bytes + 2048, 0xFF);
        for (std::size_t i = 0; i < threads; ++i) {
          Fiber& fiber = *block.fibers[i];
          fiber.done = false;
          fiber.position = {{static_cast<unsigned>(i), 0, 0}, {x, y, z}, size, grid};
          getcontext(&fiber.context);
          fiber.context.uc_stack.ss_sp = fiber.stack.get();
          fiber.context.uc_stack.ss_size = kStackBytes;
          makecontext(&fiber.context, run_fiber, 0);
        }
        run_block(threads);
      }
    }
  }
}

const Position& position() { return block.fibers[block.current]->position; }
std::size_t thread_index() { return block.current; }

void* shared_memory() {
  const auto at = reinterpret_cast<std::uintptr_t>(block.shared.data());
  return reinterpret_cast<void*>((at + 1023) / 1024 * 1024);
}

void yield() { swapcontext(&block.fibers[block.current]->context, &block.scheduler); }

void made_progress() { ++block.progress; }

void barrier(int id, std::size_t count) {
  Barrier& b = block.barriers[id];
  const std::uint64_t generation = b.generation;
  if (++b.arrived == count) {
    b.arrived = 0;
    ++b.generation;
    ++block.progress;
    return;
  }
  while (b.generation == generation) yield();
}

Exchange::Exchange(const void* mine, std::size_t bytes, std::size_t size) : size_(size) {
  if (bytes > kExchangeBytes) throw std::logic_error("exchange: too much");
  std::memcpy(block.fibers[block.current]->mail, mine, bytes);
  barrier(1000 + static_cast<int>(block.current / size_), size_);
}

// Nobody may bring new data before all have read.
Exchange::~Exchange() { barrier(1000 + static_cast<int>(block.current / size_), size_); }

const void* Exchange::row(std::size_t thread) const {
  return block.fibers[block.current / size_ * size_ + thread]->mail;
}

}  // namespace emulation
