#include "host_runtime/core/machine/file_config.h"

namespace csdsim::host {

namespace {

// Share of memory that may be on its way to swap before a thread that needs memory waits. Source: assumed.
constexpr Ratio kSwapInFlight = Ratio::of(1, 1000);

}  // namespace

FileIoParams FileConfig::params(Bytes free_memory) const {
  const Bytes cache = access == FileAccess::cached ? page_cache.value_or(free_memory) : Bytes{};
  return {.access = access,
          .io_size = io_size,
          .io_overhead = io_overhead,
          .threads = threads,
          .copy_bandwidth = access == FileAccess::direct ? Bandwidth{} : copy_bandwidth,
          .page_cache = cache,
          .dirty_limit = {dirty_ratio.floor_of(cache.value)},
          .write_back_size = write_back_size};
}

FileIoParams SwapConfig::params(Bytes free_memory) const {
  return {.access = FileAccess::cached,
          .io_size = io_size,
          .io_overhead = io_overhead,
          .threads = threads,
          .copy_bandwidth = {},
          .page_cache = free_memory,
          .dirty_limit = {kSwapInFlight.floor_of(free_memory.value)},
          .write_back_on_eviction = true};
}

void describe(ParamVisitor& v, FileConfig& c) {
  v.param("access", c.access, "How threads read and write files.", assumed("what read() and mmap() do by default"));
  v.param("io_size", c.io_size, {Bytes{512}, Bytes::gib(1)},
          "Largest I/O that a file operation is cut into, and the unit of the page cache; a multiple of the drive's "
          "logical block.",
          assumed("largest read-ahead of Linux by default"));
  v.param("io_overhead", c.io_overhead, {SimTime{}, SimTime::milliseconds(100)},
          "Time that a thread spends per I/O on system call or page fault, file system and block layer; with access: "
          "cached "
          "only for a chunk that is read from the drive.",
          assumed("order of a direct read of a cached inode on Linux"));
  v.param("threads", c.threads, {1, 1024},
          "Threads of the host that do I/O; also the largest number of I/Os in flight.",
          assumed("FlexGen has 4 copy workers"));
  v.param("copy_bandwidth", c.copy_bandwidth, {Bandwidth{1'000'000}, Bandwidth{10'000'000'000'000}},
          "Rate at which each thread copies between page cache or I/O buffer and the memory of the operation; not used "
          "with access: direct.",
          assumed("one core, page faults of a mapping included"));
  v.optional("page_cache", c.page_cache, "auto", {Bytes{}, Bytes::gib(65'536)},
             "Memory of the page cache; auto: the host memory that nothing else uses.", assumed("Linux takes all"));
  v.param("dirty_ratio", c.dirty_ratio, {Ratio::of(1, 1000), Ratio{1, 1}},
          "Share of the page cache that may wait to be written back; a thread that writes more waits.",
          assumed("default of Linux, vm.dirty_ratio"));
  v.param(
      "write_back_size", c.write_back_size, {Bytes{512}, Bytes::gib(1)},
      "Largest write of the page cache to the drive: changed chunks that are neighbours on the drive and wait to be "
      "written back are written together. A chunk that is larger is written as a whole.",
      assumed("256 pages of 4 KiB, which a bio of Linux holds (BIO_MAX_VECS in include/linux/bio.h)"));
}

void describe(ParamVisitor& v, SwapConfig& c) {
  v.param("io_size", c.io_size, {Bytes{512}, Bytes::mib(4)},
          "Memory that is moved at once; a multiple of the drive's logical block.",
          assumed("default of Linux: 8 pages, vm.page-cluster 3"));
  v.param("io_overhead", c.io_overhead, {SimTime{}, SimTime::milliseconds(100)},
          "Time that a thread spends per page fault that needs I/O.", assumed("as for a file"));
  v.param("threads", c.threads, {1, 1024}, "Threads that fault at the same time.",
          assumed("one thread computes or copies tensor by tensor"));
}

}  // namespace csdsim::host
