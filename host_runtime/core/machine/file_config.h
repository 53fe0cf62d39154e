// Configuration of the host's paths to data on a drive: files and swap.
#pragma once

#include <cstdint>
#include <optional>

#include "base/param.h"
#include "base/quantity.h"
#include "base/units.h"

namespace csdsim::host {

/// The way in which a thread reads and writes a file.
enum class FileAccess : std::uint8_t { direct, bounce, cached };

/// The parameters of a FileBackend.
struct FileIoParams {
  FileAccess access = FileAccess::direct;
  Bytes io_size = Bytes::kib(128);
  SimTime io_overhead = SimTime::microseconds(8);
  std::uint32_t threads = 1;
  Bandwidth copy_bandwidth{};  ///< 0: copies take no time
  Bytes page_cache{};          ///< capacity; cached only
  Bytes dirty_limit{};         ///< most bytes that wait to be written back; cached only
  Bytes write_back_size{};     ///< largest write of changed chunks; a chunk is always written as a whole; cached only
  /// Changed chunks are written back when they leave memory (swap), not as soon as they have changed (files).
  bool write_back_on_eviction = false;
};

/// Section `platform.host.file`: files that are read and written by threads of the host.
struct FileConfig {
  FileAccess access = FileAccess::cached;
  Bytes io_size = Bytes::kib(128);
  SimTime io_overhead = SimTime::microseconds(8);
  std::uint32_t threads = 4;
  Bandwidth copy_bandwidth{2'000'000'000};
  std::optional<Bytes> page_cache;  ///< unset: the host memory that nothing else uses
  Ratio dirty_ratio = Ratio::of(1, 5);
  Bytes write_back_size = Bytes::mib(1);

  /// `free_memory`: host memory that nothing else uses.
  FileIoParams params(Bytes free_memory) const;
};

/// Section `platform.host.swap`: memory that does not fit is moved to a drive by the kernel.
struct SwapConfig {
  Bytes io_size = Bytes::kib(32);
  SimTime io_overhead = SimTime::microseconds(8);
  std::uint32_t threads = 1;

  FileIoParams params(Bytes free_memory) const;
};

void describe(ParamVisitor& v, FileConfig& c);
void describe(ParamVisitor& v, SwapConfig& c);

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::FileAccess> {
  static constexpr EnumValue<host::FileAccess> values[] = {
      {host::FileAccess::direct, "direct", "The drive's DMA accesses the memory of the reader (O_DIRECT)."},
      {host::FileAccess::bounce, "bounce", "Through an I/O buffer in host memory, from which the thread copies."},
      {host::FileAccess::cached, "cached",
       "Through the page cache: what is there is only copied, what is not is read first."}};
};

}  // namespace csdsim
