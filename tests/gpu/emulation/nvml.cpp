// A library that answers as NVML does, for one device: what host_runtime/cuda/conditions.cpp asks.
#include <cstring>

struct nvmlDevice_st {};

namespace {

nvmlDevice_st device;
bool ready = false;

constexpr int kUninitialized = 1, kInvalidArgument = 2, kNotFound = 6;

int answer(bool known, unsigned value, unsigned* to) {
  if (!ready) return kUninitialized;
  if (!known) return kInvalidArgument;
  *to = value;
  return 0;
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
  ready = true;
  return 0;
}
int nvmlShutdown() {
  ready = false;
  return 0;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, nvmlDevice_st** found) {
  if (!ready) return kUninitialized;
  if (std::strcmp(bus_id, "0000:17:00.0") != 0) return kNotFound;
  *found = &device;
  return 0;
}
int nvmlDeviceGetClockInfo(nvmlDevice_st* of, int clock, unsigned* megahertz) {
  return answer(of == &device && (clock == 1 || clock == 2), clock == 1 ? 1755 : 2619, megahertz);
}
int nvmlDeviceGetMaxClockInfo(nvmlDevice_st* of, int clock, unsigned* megahertz) {
  return answer(of == &device && (clock == 1 || clock == 2), clock == 1 ? 1980 : 2620, megahertz);
}
int nvmlDeviceGetPowerManagementLimit(nvmlDevice_st* of, unsigned* milliwatts) {
  return answer(of == &device, 650'000, milliwatts);
}

}  // extern "C"
