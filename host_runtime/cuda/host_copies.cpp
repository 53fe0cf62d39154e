#include "host_runtime/cuda/host_copies.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <utility>

namespace csdsim::host::cuda {
namespace {

/// Seconds that `wait` takes.
template <class Wait>
double seconds_of(Wait&& wait) {
  const auto start = std::chrono::steady_clock::now();
  wait();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Sizes of few kinds, so that buffers can be used again.
std::size_t rounded(std::size_t bytes) { return std::bit_ceil(std::max<std::size_t>(bytes, 4096)); }

}  // namespace

HostCopies::HostCopies(const Stream& compute)
    : compute_(compute), in_(in_stream_), out_(out_stream_), in_pool_(in_stream_) {}

HostCopies::~HostCopies() {
  // What computes may still read memory of this object.
  for (const cudaStream_t stream : {in_stream_.get(), out_stream_.get(), compute_.stream().get()})
    cudaStreamSynchronize(stream);
}

HostCopies::Arriving::~Arriving() {
  cudaEventSynchronize(done_.get());
  copies_.spare_.push_back(std::move(to_));
}

std::span<const std::byte> HostCopies::Arriving::wait() {
  copies_.times_.host_waited_s += seconds_of([&] { done_.synchronise(); });
  return to_.span().first(bytes_);
}

/// The events of long runs are used again.
void HostCopies::collect(TimedStream& stream, std::size_t& runs) {
  constexpr std::size_t kKept = 256;
  if (++runs % kKept == 0) stream.end_step();
}

PinnedBuffer<std::byte> HostCopies::pinned(std::size_t bytes) {
  const auto fits = std::ranges::find(spare_, rounded(bytes), &PinnedBuffer<std::byte>::size);
  if (fits == spare_.end()) return PinnedBuffer<std::byte>(rounded(bytes));
  PinnedBuffer<std::byte> buffer = std::move(*fits);
  spare_.erase(fits);
  return buffer;
}

std::unique_ptr<HostCopies::Arriving> HostCopies::start_out(const void* from, std::size_t bytes) {
  std::unique_ptr<Arriving> arriving(new Arriving(*this, pinned(bytes), bytes));
  made_.record(compute_.stream());
  out_stream_.wait(made_);
  out_.run([&] {
    CSDSIM_CUDA(cudaMemcpyAsync(arriving->to_.data(), from, bytes, cudaMemcpyDeviceToHost, out_stream_.get()));
  });
  arriving->done_.record(out_stream_);
  collect(out_, out_runs_);
  times_.bytes_out += bytes;
  return arriving;
}

void HostCopies::in(std::span<const std::byte> bytes, const std::function<void(const std::byte*)>& use) {
  Landing& landing = landings_[next_landing_++ % landings_.size()];
  times_.host_waited_s += seconds_of([&] { landing.copied.synchronise(); });
  if (landing.sent.size() < bytes.size()) landing.sent = PinnedBuffer<std::byte>(rounded(bytes.size()));
  std::memcpy(landing.sent.data(), bytes.data(), bytes.size());
  in_stream_.wait(landing.used);
  if (landing.landed.size() < bytes.size()) landing.landed = DeviceBuffer<>(in_pool_, rounded(bytes.size()));
  in_.run([&] {
    CSDSIM_CUDA(cudaMemcpyAsync(landing.landed.data(), landing.sent.data(), bytes.size(), cudaMemcpyHostToDevice,
                                in_stream_.get()));
  });
  landing.copied.record(in_stream_);
  collect(in_, in_runs_);
  compute_.stream().wait(landing.copied);
  compute([&] { use(landing.landed.data()); });
  landing.used.record(compute_.stream());
  times_.bytes_in += bytes.size();
}

DeviceTimes HostCopies::times() {
  times_.compute_s = compute_.seconds();
  times_.copies_in_s = in_.seconds();
  times_.copies_out_s = out_.seconds();
  return times_;
}

}  // namespace csdsim::host::cuda
