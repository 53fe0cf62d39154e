#include "host_runtime/core/planner/file_config.h"

namespace csdsim::host {

void describe(ParamVisitor& v, FileIoConfig& c) {
  v.param("io_size", c.io_size, {Bytes{512}, Bytes::gib(1)},
          "Largest I/O that a file operation is cut into; a multiple of the drive's logical block.",
          assumed("largest read-ahead of Linux by default"));
  v.param("io_overhead", c.io_overhead, {SimTime{}, SimTime::milliseconds(100)},
          "Time that a thread spends per I/O on system call, file system and block layer.",
          assumed("order of a direct read of a cached inode on Linux"));
  v.param("threads", c.threads, {1, 1024},
          "Threads of the host that do I/O; also the largest number of I/Os in flight.",
          assumed("a plain loop of reads"));
  v.param("copy_bandwidth", c.copy_bandwidth, {Bandwidth{}, Bandwidth{10'000'000'000'000}},
          "Rate at which each thread copies between an I/O buffer and the operation's memory; 0 B/s: the drive's DMA "
          "accesses that memory directly.",
          assumed("O_DIRECT"));
}

}  // namespace csdsim::host
