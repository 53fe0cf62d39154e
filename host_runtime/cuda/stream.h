// Owners of CUDA streams, events and graphs.
#pragma once

#include <memory>
#include <type_traits>

#include "host_runtime/cuda/cuda_check.h"

namespace csdsim::host::cuda {

/// Calls a CUDA function on a handle that goes out of scope; a destructor cannot report its failure.
template <auto destroy>
struct Destroy {
  template <class T>
  void operator()(T* handle) const noexcept {
    destroy(handle);
  }
};

class Event;

/// A stream that does not wait for the default stream.
class Stream {
 public:
  Stream() {
    cudaStream_t stream = nullptr;
    CSDSIM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    handle_.reset(stream);
  }
  cudaStream_t get() const { return handle_.get(); }
  void synchronise() const { CSDSIM_CUDA(cudaStreamSynchronize(get())); }
  /// What is put into this stream from now on runs after the latest record of the event; at once if there is none.
  void wait(const Event& event) const;

 private:
  std::unique_ptr<std::remove_pointer_t<cudaStream_t>, Destroy<cudaStreamDestroy>> handle_;
};

/// A point in a stream, with its time (a CUDA event).
class Event {
 public:
  Event() {
    cudaEvent_t event = nullptr;
    CSDSIM_CUDA(cudaEventCreate(&event));
    handle_.reset(event);
  }
  cudaEvent_t get() const { return handle_.get(); }
  void record(const Stream& stream) const { CSDSIM_CUDA(cudaEventRecord(get(), stream.get())); }
  void synchronise() const { CSDSIM_CUDA(cudaEventSynchronize(get())); }
  /// Milliseconds from `earlier`; both must have been reached.
  float milliseconds_since(const Event& earlier) const {
    float elapsed = 0;
    CSDSIM_CUDA(cudaEventElapsedTime(&elapsed, earlier.get(), get()));
    return elapsed;
  }

 private:
  std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, Destroy<cudaEventDestroy>> handle_;
};

inline void Stream::wait(const Event& event) const { CSDSIM_CUDA(cudaStreamWaitEvent(get(), event.get(), 0)); }

/// Work of a stream that was recorded once and is replayed in one launch.
class Graph {
 public:
  Graph() = default;

  /// Records what `work` puts into `stream` instead of running it. Nothing in it may synchronise; memory that it
  /// takes from a pool and gives back belongs to the graph.
  template <class Work>
  static Graph record(const Stream& stream, Work&& work) {
    CSDSIM_CUDA(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal));
    cudaGraph_t recorded = nullptr;
    try {
      work();
    } catch (...) {
      cudaStreamEndCapture(stream.get(), &recorded);  // the stream must leave capture mode; the first error counts
      if (recorded != nullptr) cudaGraphDestroy(recorded);
      throw;
    }
    CSDSIM_CUDA(cudaStreamEndCapture(stream.get(), &recorded));
    const std::unique_ptr<std::remove_pointer_t<cudaGraph_t>, Destroy<cudaGraphDestroy>> owner(recorded);
    cudaGraphExec_t executable = nullptr;
    CSDSIM_CUDA(cudaGraphInstantiate(&executable, recorded, 0));
    Graph graph;
    graph.handle_.reset(executable);
    return graph;
  }

  explicit operator bool() const { return handle_ != nullptr; }
  void launch(const Stream& stream) const { CSDSIM_CUDA(cudaGraphLaunch(handle_.get(), stream.get())); }

 private:
  std::unique_ptr<std::remove_pointer_t<cudaGraphExec_t>, Destroy<cudaGraphExecDestroy>> handle_;
};

}  // namespace csdsim::host::cuda
