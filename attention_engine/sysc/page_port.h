// Page reads of an engine without TLM.
#pragma once

#include <cstdint>
#include <span>

#include "attention_engine/core/head_job.h"
#include "contracts/page_op.h"

namespace csdsim::engine {

/// Told when a read is complete.
class PageReader {
 public:
  /// `ticket`: with which the page buffers of a read are released, if it holds them.
  virtual void pages_read(PageRead read, FlashTicket ticket) = 0;

 protected:
  ~PageReader() = default;
};

/// A drive's interface for its own engine in place of a socket: the same batches at the same times.
class PagePort {
 public:
  /// Reads `ops` (valid during the call) and tells `reader`, which outlives the read, when all are there. `lookups`:
  /// map entries that are looked up to find them, page by page: each page is read when its share has been looked up.
  /// `hold`, only for a single page: it keeps its buffer until release().
  virtual void read(PageRead read, std::span<const PageOp> ops, std::uint64_t lookups, bool hold,
                    PageReader& reader) = 0;
  virtual void release(FlashTicket ticket) = 0;

 protected:
  ~PagePort() = default;
};

}  // namespace csdsim::engine
