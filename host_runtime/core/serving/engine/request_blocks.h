// The ids of the KV blocks that the requests of a trace fill.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "host_runtime/core/serving/serving_trace.h"

namespace csdsim::host {

/// A trace names blocks of its own size; an engine's blocks are whole parts of them. The id of a trace's block stands
/// for its last part. Parts of a block that is not full are known by that block only. Blocks of answers are known where
/// a later turn of the same session continues the request; others have ids that no other request has.
class RequestBlocks {
 public:
  /// Throws UserError if the trace's blocks are not whole blocks of `block_tokens`. The trace must outlive this.
  RequestBlocks(const ServingTrace& trace, std::uint32_t block_tokens);

  /// Ids of the full blocks of a prompt and its answer, without the last token, whose K and V are never computed.
  std::vector<KvBlockId> ids(std::size_t request) const;

  /// Ids of the trace's whole blocks that begin a prompt and its answer, as far as the trace names them and up to
  /// `wanted`.
  std::vector<KvBlockId> named_blocks(std::size_t request, std::size_t wanted) const;
  /// The request that continues a session.
  std::optional<std::uint32_t> next_turn(std::size_t request) const;

 private:
  const ServingTrace& trace_;
  std::uint32_t block_tokens_;
  std::uint32_t parts_ = 1;               ///< parts of a trace's block
  std::vector<std::uint32_t> next_turn_;  ///< [request]
};

}  // namespace csdsim::host
