#include "tests/gpu/emulation/emulation.h"

#include <ucontext.h>

#include <array>
#include <deque>
#include <exception>
#include <memory>
#include <random>
#include <stdexcept>

#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

namespace emulation {
namespace {

constexpr std::size_t kStackBytes = std::size_t{128} << 10;
constexpr std::size_t kMostThreads = 1024;
constexpr int kExchangeBarriers = 32;  // the first ones belong to kernels
constexpr std::size_t kWarp = 32, kWarpgroup = 128;

using Work = std::vector<std::function<void()>>;

// What a thread has started and not waited for: complete groups, oldest first, and the group to which it adds.
struct LateWork {
  std::deque<Work> groups;
  Work open;

  void end_group() {
    groups.push_back(std::move(open));
    open.clear();
  }
  void run_all_but(std::size_t newest) {
    while (groups.size() > newest) {
      const Work work = std::move(groups.front());
      groups.pop_front();
      for (const auto& piece : work) piece();
    }
  }
};

// Where a thread of a block, or the scheduler, goes on. The jumps of the compiler take less time than those of the C
// library, which look for handlers to run. A function that jumps may not be inlined into one that is jumped to.
using Place = std::array<void*, 5>;
[[noreturn, gnu::noinline]] void jump(Place& place) { __builtin_longjmp(place.data(), 1); }

struct Fiber {
  Place resume;
  bool started = false;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  Position position{};
  bool done = false;
  LateWork copies, products;
  std::uint64_t product_groups = 0;
  bool products_begun = false;
};

struct Barrier {
  std::size_t arrived = 0;
  std::uint64_t generation = 0;
};

// One block at a time, on one thread of the process.
struct Block {
  std::vector<std::unique_ptr<Fiber>> fibers;
  std::array<Barrier, kExchangeBarriers + kMostThreads / 32> barriers;
  alignas(16) std::array<unsigned char, kMostThreads * Exchange::kBytes> mail;
  std::vector<unsigned char> shared;
  Place scheduler;
  std::size_t current = 0;
  std::uint64_t progress = 0;  // counts what lets somebody go on
  Work copies;                 // that no thread waits for in groups
  std::uint64_t number = 0;
  std::mt19937_64 random;
  const std::function<void()>* body = nullptr;
  std::exception_ptr error;
};
Block block;

std::size_t draw(std::size_t bound) { return static_cast<std::size_t>(block.random() % bound); }

[[noreturn]] void back_to_scheduler() { jump(block.scheduler); }

// A fiber runs one body after another: to make a stack costs more than most kernels.
void run_fiber() {
  Fiber& fiber = *block.fibers[block.current];
  for (;;) {
    try {
      (*block.body)();
    } catch (...) {
      if (!block.error) block.error = std::current_exception();
    }
    fiber.done = true;
    ++block.progress;
    if (__builtin_setjmp(fiber.resume.data()) == 0) back_to_scheduler();
  }
}

// A context makes the stack; after that jumps switch, which unlike contexts cost no system call.
[[gnu::noinline]] void resume(Fiber& fiber) {
  if (__builtin_setjmp(block.scheduler.data()) != 0) return;
  if (fiber.started) jump(fiber.resume);
  fiber.started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.get();
  context.uc_stack.ss_size = kStackBytes;
  makecontext(&context, run_fiber, 0);
  setcontext(&context);
}

// Other threads may be in the middle of the body: their stacks are not used again.
[[noreturn]] void abandon() {
  for (const auto& fiber : block.fibers) fiber->started = false;
  std::rethrow_exception(block.error);
}

// Lets every thread of a warp run once, in an order that is drawn. Returns how many ended.
std::size_t run_warp(std::size_t warp, std::size_t threads) {
  const std::size_t first = warp * kWarp, size = std::min(kWarp, threads - first);
  const std::size_t start = draw(size);
  const bool backwards = draw(2) == 1;
  std::size_t ended = 0;
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t lane = (start + i) % size;
    block.current = first + (backwards ? size - 1 - lane : lane);
    Fiber& fiber = *block.fibers[block.current];
    if (fiber.done) continue;
    resume(fiber);
    if (block.error) abandon();
    ended += fiber.done;
  }
  return ended;
}

void run_block_copy() {
  const std::size_t chosen = draw(block.copies.size());
  const auto copy = std::move(block.copies[chosen]);
  block.copies.erase(block.copies.begin() + static_cast<std::ptrdiff_t>(chosen));
  copy();
  ++block.progress;
}

[[noreturn]] void fail(const char* why) {
  block.error = std::make_exception_ptr(std::runtime_error(why));
  abandon();
}

void run_block(std::size_t threads) {
  struct Warp {
    std::size_t number, left;
    std::uint64_t stalled_at;  // progress when it could not go on
  };
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  std::vector<Warp> warps;
  for (std::size_t first = 0; first < threads; first += kWarp) {
    warps.push_back({first / kWarp, std::min(kWarp, threads - first), kNever});
  }
  while (!warps.empty()) {
    if (!block.copies.empty() && draw(8) == 0) run_block_copy();
    // One of those that may go on, from a place that is drawn.
    const std::size_t start = draw(warps.size());
    std::size_t at = warps.size();
    for (std::size_t i = 0; i < warps.size() && at == warps.size(); ++i) {
      const std::size_t candidate = (start + i) % warps.size();
      if (warps[candidate].stalled_at != block.progress) at = candidate;
    }
    if (at == warps.size()) {
      if (block.copies.empty()) fail("the threads of a block wait for ever");
      run_block_copy();
      continue;
    }
    Warp& warp = warps[at];
    // Some steps, or all until it waits for another warp.
    for (std::size_t steps = draw(2) == 0 ? 1 + draw(8) : kMostThreads * kMostThreads; steps > 0; --steps) {
      const std::uint64_t before = block.progress;
      warp.left -= run_warp(warp.number, threads);
      if (warp.left == 0) break;
      if (block.progress == before) {
        warp.stalled_at = before;
        break;
      }
    }
    if (warp.left == 0) warps.erase(warps.begin() + static_cast<std::ptrdiff_t>(at));
  }
  if (!block.copies.empty()) fail("a block ends before its copies");
}

}  // namespace

void restart_blocks(std::uint64_t seed) {
  block.random.seed(seed);
  block.number = seed << 32;
}

void launch(dim3 grid, dim3 size, std::size_t shared_bytes, const std::function<void()>& body) {
  static const bool seeded = (restart_blocks(first_seed()), true);
  static_cast<void>(seeded);
  const std::size_t threads = size.x;
  block.body = &body;
  block.error = nullptr;
  while (block.fibers.size() < threads) block.fibers.push_back(std::make_unique<Fiber>());
  for (unsigned z = 0; z < grid.z; ++z) {
    for (unsigned y = 0; y < grid.y; ++y) {
      for (unsigned x = 0; x < grid.x; ++x) {
        ++block.number;
        block.copies.clear();
        block.barriers.fill({});
        // What shared memory holds at the start is not known: NaN in every type.
        block.shared.assign(shared_bytes + 2048, 0xFF);
        for (std::size_t i = 0; i < threads; ++i) {
          Fiber& fiber = *block.fibers[i];
          fiber.done = false;
          fiber.copies = fiber.products = {};
          fiber.product_groups = 0;
          fiber.products_begun = false;
          fiber.position = {{static_cast<unsigned>(i), 0, 0}, {x, y, z}, size, grid};
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

[[gnu::noinline]] void yield() {
  if (__builtin_setjmp(block.fibers[block.current]->resume.data()) == 0) back_to_scheduler();
}

void made_progress() { ++block.progress; }

void barrier(int id, std::size_t count) {
  Barrier& b = block.barriers.at(static_cast<std::size_t>(id));
  const std::uint64_t generation = b.generation;
  if (++b.arrived == count) {
    b.arrived = 0;
    ++b.generation;
    ++block.progress;
    return;
  }
  while (b.generation == generation) yield();
}

namespace {

int exchange_barrier(std::size_t size) { return kExchangeBarriers + static_cast<int>(block.current / size); }

void meet_warp() { barrier(exchange_barrier(kWarp), kWarp); }

}  // namespace

void start_copy(std::function<void()> copy) {
  if (draw(2) == 0) {
    copy();
  } else {
    block.fibers[block.current]->copies.open.push_back(std::move(copy));
  }
}
void end_copies() { block.fibers[block.current]->copies.end_group(); }
void wait_for_copies(std::size_t newest) { block.fibers[block.current]->copies.run_all_but(newest); }

// The instructions around products are for whole warps: no thread passes one before the others of its warp come to it.
void begin_products() {
  meet_warp();
  block.fibers[block.current]->products_begun = true;
}
void start_product(std::function<void()> product) {
  Fiber& fiber = *block.fibers[block.current];
  if (!fiber.products_begun) throw std::runtime_error("a product before products_begin()");
  fiber.products.open.push_back(std::move(product));
}
void end_products() {
  Fiber& fiber = *block.fibers[block.current];
  fiber.products_begun = false;
  fiber.products.end_group();
  // The threads of a warpgroup must agree: they exchange operands.
  std::seed_seq parts{block.number, std::uint64_t{block.current / kWarpgroup}, fiber.product_groups++};
  if (std::mt19937(parts)() % 2 == 0) fiber.products.run_all_but(0);
}
void wait_for_products(std::size_t newest) {
  block.fibers[block.current]->products.run_all_but(newest);
  meet_warp();
}

void start_block_copy(std::function<void()> copy) { block.copies.push_back(std::move(copy)); }

Exchange::Exchange(const void* mine, std::size_t bytes, std::size_t size)
    : first_(block.mail.data() + block.current / size * size * kBytes), size_(size) {
  if (bytes > kBytes) throw std::logic_error("exchange: too much");
  std::memcpy(block.mail.data() + block.current * kBytes, mine, bytes);
  barrier(exchange_barrier(size_), size_);
}

// Nobody may bring new data before all have read.
Exchange::~Exchange() { barrier(exchange_barrier(size_), size_); }

}  // namespace emulation
