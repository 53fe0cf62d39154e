// The result of an admin command, for the module that moves its bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "nvme_if/core/wire.h"
#include "nvme_if/spec/status.h"
#include "nvme_if/spec/types.h"

namespace csdsim::nvme {

/// The action that an admin command asks of the adapter.
struct AdminResult {
  enum class Action : std::uint8_t {
    complete,         ///< status and dw0
    send_data,        ///< write `data` through the command's PRPs, then complete
    take_data,        ///< read as many bytes as `data` has through the PRPs, and go on with execute_with_data()
    abort,            ///< try to abort `cid` of `queue`; dw0 bit 0 is 1 when it was not aborted
    log_page,         ///< send read_log()
    hold,             ///< an asynchronous event request: complete it with the next event, at once if there is one
    delete_sq,        ///< abort what is queued from `queue`, wait for the rest, finish_sq_deletion(), complete
    drain,            ///< write what the volatile cache holds to the flash, then complete
    erase_namespace,  ///< forget all data of the namespace, then complete
  };
  Action action = Action::complete;
  Status status = {};
  std::uint32_t dw0 = 0;
  std::vector<std::byte> data = {};
  QueueId queue = {};
  CommandId cid = {};
};

/// The namespace identifier that stands for all.
inline constexpr std::uint32_t kAllNamespaces = 0xFFFF'FFFF;

inline AdminResult refuse(Status s) { return {.status = s}; }

/// Sends an Identify data structure, or a list of its size.
template <class Data>
AdminResult send(const Data& data) {
  static_assert(sizeof(Data) == 4096);
  return {.action = AdminResult::Action::send_data, .data = bytes_of(data)};
}

}  // namespace csdsim::nvme
