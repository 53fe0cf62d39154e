#include "tests/gpu/emulation/streams.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace emulation {
namespace {

/// A place in a stream that an event marks.
struct Point {
  bool reached = false;
  std::uint64_t time = 0;
};

struct Work {
  std::function<void()> run;
  std::shared_ptr<const Point> after;  ///< the work may run when this point has been reached
  std::uint64_t submitted = 0;
  std::uint64_t duration = 0;
};
using WorkList = std::vector<Work>;

struct EmulatedStream {
  std::uint32_t number = 0;
  std::deque<Work> work;
  std::uint64_t clock = 0;
  std::uint64_t priority = 0;
};

struct EmulatedEvent {
  std::uint32_t number = 0;
  std::shared_ptr<Point> point;  ///< point of the latest record; null before the first
};

struct Device {
  std::vector<EmulatedStream*> streams;
  std::uint32_t created_streams = 0, created_events = 0;
  std::mt19937_64 random{first_seed()};
  std::uint64_t host_clock = 0;
  EmulatedStream* recorded = nullptr;
  WorkList* record = nullptr;
  std::set<Wait> waits;
  std::function<bool(const Wait&)> left_out;
};
// Never destroyed: owners of streams may outlive any static object.
Device& device() {
  static auto* const instance = new Device;
  return *instance;
}

EmulatedStream& stream_of(cudaStream_t handle) { return *reinterpret_cast<EmulatedStream*>(handle); }
EmulatedEvent& event_of(cudaEvent_t handle) { return *reinterpret_cast<EmulatedEvent*>(handle); }

void put(EmulatedStream& stream, Work work) {
  Device& d = device();
  work.submitted = d.host_clock;
  if (d.recorded == &stream) {
    d.record->push_back(std::move(work));
  } else {
    stream.work.push_back(std::move(work));
  }
}

bool can_run(const EmulatedStream& stream) {
  return !stream.work.empty() && (!stream.work.front().after || stream.work.front().after->reached);
}

/// The stream of the highest priority among those that can run. Priorities last for a while: a stream may fall far
/// behind the others, or run far ahead.
EmulatedStream& choose() {
  Device& d = device();
  EmulatedStream* chosen = nullptr;
  for (EmulatedStream* stream : d.streams)
    if (can_run(*stream) && (chosen == nullptr || stream->priority > chosen->priority)) chosen = stream;
  if (chosen == nullptr) throw std::runtime_error("the streams wait for one another for ever");
  if (d.random() % 16 == 0) chosen->priority = d.random();
  return *chosen;
}

void run_next(EmulatedStream& stream) {
  Work work = std::move(stream.work.front());
  stream.work.pop_front();
  stream.clock = std::max(stream.clock, work.submitted);
  if (work.after) stream.clock = std::max(stream.clock, work.after->time);
  stream.clock += work.duration;
  if (work.run) work.run();
}

template <class Done>
void run_until(Done done) {
  try {
    while (!done()) run_next(choose());
  } catch (...) {
    for (EmulatedStream* stream : device().streams) stream->work.clear();
    throw;
  }
}

}  // namespace

void submit(cudaStream_t stream, std::function<void()> work, Picoseconds duration) {
  put(stream_of(stream), {std::move(work), nullptr, 0, duration.value});
}

void synchronise(cudaStream_t handle) {
  EmulatedStream& stream = stream_of(handle);
  run_until([&] { return stream.work.empty(); });
  device().host_clock = std::max(device().host_clock, stream.clock);
}

void synchronise_device() {
  for (EmulatedStream* stream : device().streams) synchronise(reinterpret_cast<cudaStream_t>(stream));
}

bool recording() { return device().recorded != nullptr; }

std::uint64_t first_seed() {
  const char* seed = std::getenv("CSDSIM_EMULATION_SEED");
  return seed == nullptr ? 1 : std::stoull(seed);
}

void restart(std::uint64_t seed) {
  synchronise_device();
  restart_blocks(seed);
  Device& d = device();
  d.created_streams = static_cast<std::uint32_t>(d.streams.size());
  d.created_events = 0;
  d.random.seed(seed);
  for (EmulatedStream* stream : d.streams) stream->priority = d.random();
  d.waits.clear();
  d.left_out = nullptr;
}

const std::set<Wait>& waits() { return device().waits; }
void leave_out(std::function<bool(const Wait&)> left_out) { device().left_out = std::move(left_out); }

}  // namespace emulation

extern "C" {

using emulation::device;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned) {
  auto* const stream = new emulation::EmulatedStream;
  stream->number = device().created_streams++;
  stream->priority = device().random();
  stream->clock = device().host_clock;
  device().streams.push_back(stream);
  *handle = reinterpret_cast<cudaStream_t>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  emulation::synchronise(handle);
  std::erase(device().streams, &emulation::stream_of(handle));
  delete &emulation::stream_of(handle);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  if (emulation::recording()) return cudaErrorStreamCaptureUnsupported;
  emulation::synchronise(handle);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  const emulation::EmulatedEvent& event = emulation::event_of(event_handle);
  const emulation::Wait wait{emulation::stream_of(handle).number, event.number};
  device().waits.insert(wait);
  const bool left_out = device().left_out && device().left_out(wait);
  if (event.point && !left_out) emulation::put(emulation::stream_of(handle), {nullptr, event.point, 0, 0});
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  device().recorded = &emulation::stream_of(handle);
  device().record = new emulation::WorkList;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  device().recorded = nullptr;
  *graph = reinterpret_cast<cudaGraph_t>(std::exchange(device().record, nullptr));
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(new std::shared_ptr<emulation::WorkList>(
      new emulation::WorkList(*reinterpret_cast<emulation::WorkList*>(graph))));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete reinterpret_cast<emulation::WorkList*>(graph);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete reinterpret_cast<std::shared_ptr<emulation::WorkList>*>(executable);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  // The graph may be destroyed before the work runs.
  const std::shared_ptr<emulation::WorkList> list =
      *reinterpret_cast<std::shared_ptr<emulation::WorkList>*>(executable);
  std::uint64_t duration = 0;
  for (const emulation::Work& work : *list) duration += work.duration;
  emulation::submit(stream,
                    [list] {
                      for (const emulation::Work& work : *list)
                        if (work.run) work.run();
                    },
                    {duration});
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  auto* const event = new emulation::EmulatedEvent;
  event->number = device().created_events++;
  *handle = reinterpret_cast<cudaEvent_t>(event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  delete &emulation::event_of(handle);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  const auto point = std::make_shared<emulation::Point>();
  emulation::event_of(handle).point = point;
  emulation::EmulatedStream& stream = emulation::stream_of(stream_handle);
  emulation::put(stream, {[point, &stream] {
                            point->reached = true;
                            point->time = stream.clock;
                          },
                          nullptr, 0, 0});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  if (emulation::recording()) return cudaErrorStreamCaptureUnsupported;
  const std::shared_ptr<emulation::Point> point = emulation::event_of(handle).point;
  if (!point) return cudaSuccess;
  emulation::run_until([&] { return point->reached; });
  device().host_clock = std::max(device().host_clock, point->time);
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const auto& first = emulation::event_of(from).point;
  const auto& second = emulation::event_of(to).point;
  if (!first || !second) return cudaErrorInvalidResourceHandle;
  if (!first->reached || !second->reached) return cudaErrorNotReady;
  *milliseconds = static_cast<float>((static_cast<double>(second->time) - static_cast<double>(first->time)) * 1e-9);
  return cudaSuccess;
}

}  // extern "C"
