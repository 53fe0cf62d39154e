#include "tests/gpu/emulation/emulation.h"

#include <setjmp.h>
#include <ucontext.h>

#include <array>
#include <exception>
#include <memory>
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

struct Fiber {
  jmp_buf resume;
  bool started = false;
  std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
  Position position{};
  bool done = false;
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
  jmp_buf scheduler;
  std::size_t current = 0;
  std::uint64_t progress = 0;  // counts what lets somebody go on
  const std::function<void()>* body = nullptr;
  std::exception_ptr error;
};
Block block;

[[noreturn]] void back_to_scheduler() { _longjmp(block.scheduler, 1); }

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
    if (_setjmp(fiber.resume) == 0) back_to_scheduler();
  }
}

// A context makes the stack; after that jumps switch, which unlike contexts cost no system call.
void resume(Fiber& fiber) {
  if (_setjmp(block.scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.resume, 1);
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

void run_block(std::size_t threads) {
  for (std::size_t left = threads; left > 0;) {
    const std::uint64_t before = block.progress;
    for (block.current = 0; block.current < threads; ++block.current) {
      Fiber& fiber = *block.fibers[block.current];
      if (fiber.done) continue;
      resume(fiber);
      if (block.error) abandon();
      left -= fiber.done;
    }
    if (left > 0 && block.progress == before) {
      block.error = std::make_exception_ptr(std::runtime_error("the threads of a block wait for ever"));
      abandon();
    }
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
        block.barriers.fill({});
        // What shared memory holds at the start is not known: NaN in every type.
        block.shared.assign(shared_bytes + 2048, 0xFF);
        for (std::size_t i = 0; i < threads; ++i) {
          Fiber& fiber = *block.fibers[i];
          fiber.done = false;
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

void yield() {
  if (_setjmp(block.fibers[block.current]->resume) == 0) back_to_scheduler();
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

}  // namespace

Exchange::Exchange(const void* mine, std::size_t bytes, std::size_t size)
    : first_(block.mail.data() + block.current / size * size * kBytes), size_(size) {
  if (bytes > kBytes) throw std::logic_error("exchange: too much");
  std::memcpy(block.mail.data() + block.current * kBytes, mine, bytes);
  barrier(exchange_barrier(size_), size_);
}

// Nobody may bring new data before all have read.
Exchange::~Exchange() { barrier(exchange_barrier(size_), size_); }

}  // namespace emulation
