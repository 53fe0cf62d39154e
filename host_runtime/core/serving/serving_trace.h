// Requests of a serving system from a file: when they arrive, how long they are, and which prefixes they share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/units.h"
#include "host_runtime/core/request.h"
#include "host_runtime/core/serving/kv_block.h"

namespace csdsim::host {

/// A request that another one waits for: the next turn of a chat, an agent that comes back after a tool call.
struct TraceDependency {
  enum class Trigger : std::uint8_t { dispatch, completion };
  std::uint32_t request = 0;  ///< index of the earlier request
  Trigger trigger = Trigger::completion;
  SimTime delay{};  ///< after the trigger
  bool operator==(const TraceDependency&) const = default;
};

/// A request as a file states it: prompts have at least one token, and outputs none only where a file counts failed
/// requests. Arrivals count from the start of the file's clock; a request with dependencies does not arrive before. Who
/// serves it numbers it.
struct TracedRequest : Request {
  bool timed = false;        ///< the file states an arrival
  std::uint32_t blocks = 0;  ///< blocks of the prompt; the last one may be partly filled
  std::uint32_t dependencies = 0;
  std::uint32_t priority = 0;            ///< lower values first, where the engine orders by it
  std::uint64_t first_block = 0;         ///< in ServingTrace::blocks
  std::uint64_t first_dependency = 0;    ///< in ServingTrace::dependencies
  std::optional<std::uint32_t> session;  ///< numbered in the order of their first requests

  void set_arrival(SimTime at) {
    arrival = at;
    timed = true;
  }
  bool operator==(const TracedRequest&) const = default;
};

struct ServingTrace {
  std::string name;  ///< name of the file, without its folder
  /// Tokens per KV block. None: the file says nothing about prefixes, and no request has blocks.
  std::optional<std::uint32_t> block_tokens;
  std::vector<TracedRequest> requests;  ///< in the order of the file
  std::vector<KvBlockId> blocks;
  std::vector<TraceDependency> dependencies;

  /// The blocks of a prompt. Equal ids mean equal prefixes, of this trace only.
  std::span<const KvBlockId> blocks_of(const TracedRequest& request) const {
    return std::span(blocks).subspan(request.first_block, request.blocks);
  }
  std::span<const TraceDependency> dependencies_of(const TracedRequest& request) const {
    return std::span(dependencies).subspan(request.first_dependency, request.dependencies);
  }
  bool operator==(const ServingTrace&) const = default;
};

}  // namespace csdsim::host
