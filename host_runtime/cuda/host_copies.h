// Copies of activations between the GPU and the host. They go through pinned memory. Each direction has a stream of its
// own, so that copies run while the GPU computes.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "host_runtime/core/decoder/backend.h"
#include "host_runtime/cuda/memory.h"
#include "host_runtime/cuda/timed_stream.h"

namespace csdsim::host::cuda {

class HostCopies {
 public:
  /// `compute` must outlive this object.
  explicit HostCopies(const Stream& compute);
  ~HostCopies();
  HostCopies(const HostCopies&) = delete;
  HostCopies& operator=(const HostCopies&) = delete;

  /// A copy to the host that has started. What it copies must stay as it is until wait() returns or this is gone.
  class Arriving {
   public:
    ~Arriving();
    /// Returns when the bytes are there. Valid as long as this object.
    std::span<const std::byte> wait();

   private:
    friend class HostCopies;
    Arriving(HostCopies& copies, PinnedBuffer<std::byte> to, std::size_t bytes)
        : copies_(copies), to_(std::move(to)), bytes_(bytes) {}

    HostCopies& copies_;
    PinnedBuffer<std::byte> to_;
    std::size_t bytes_;
    Event done_;
  };
  /// Copies what the computing stream has made so far. The HostCopies must outlive the result.
  std::unique_ptr<Arriving> start_out(const void* from, std::size_t bytes);

  /// Copies `bytes` to the device and puts `use(bytes on the device)` into the computing stream, which waits for them.
  /// Returns at once; the memory belongs to this object.
  void in(std::span<const std::byte> bytes, const std::function<void(const std::byte*)>& use);

  /// Puts work into the computing stream and measures how long it takes. A call within another one is a part of it.
  template <class Work>
  void compute(Work&& work) {
    if (computes_) return work();
    computes_ = true;
    const std::unique_ptr<bool, void (*)(bool*)> end(&computes_, [](bool* flag) { *flag = false; });
    compute_.run(work);
    collect(compute_, compute_runs_);
  }

  /// Waits for all work.
  DeviceTimes times();

 private:
  /// A place for bytes on their way to the device.
  struct Landing {
    PinnedBuffer<std::byte> sent;
    DeviceBuffer<> landed;
    Event copied, used;
  };

  static void collect(TimedStream& stream, std::size_t& runs);
  PinnedBuffer<std::byte> pinned(std::size_t bytes);

  Stream in_stream_, out_stream_;
  TimedStream compute_, in_, out_;
  DevicePool in_pool_;  // in the order of in_stream_
  Event made_;
  std::array<Landing, 4> landings_;
  std::size_t next_landing_ = 0;
  std::vector<PinnedBuffer<std::byte>> spare_;
  std::size_t compute_runs_ = 0, in_runs_ = 0, out_runs_ = 0;
  bool computes_ = false;
  DeviceTimes times_;
};

}  // namespace csdsim::host::cuda
