// The data pointer of a command, whichever its kind: PRPs or an SGL (NVMe Base Specification 1.4, 4.3 and 4.4).
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "nvme_if/core/prp.h"
#include "nvme_if/core/sgl.h"
#include "nvme_if/spec/command.h"

namespace csdsim::nvme {

/// Turns the data pointer of one command into segments, with the walker of its kind and under that walker's rules and
/// errors. It asks for pieces of lists and never reads memory itself, as PrpWalker.
class DataPointerWalker {
 public:
  /// `length`: of the buffer. `page_size`: of PRPs. Reuses its memory from walk to walk.
  void start(const SubmissionEntry& command, Bytes length, Bytes page_size) {
    sgl_ = (command.flags & kPsdtMask) == kPsdtSgl;
    if (sgl_) return start_sgl(command, length);
    prps_.start(command.prp1, command.prp2, length, page_size);
  }

  WalkState state() const { return sgl_ ? sgls_->state() : prps_.state(); }
  /// Valid in state needs_list: where the next piece is; a multiple of 8 bytes.
  Segment list() const { return sgl_ ? sgls_->list() : prps_.list(); }
  /// The bytes of the piece, as qwords.
  void feed(std::span<const std::uint64_t> words) { sgl_ ? sgls_->feed(words) : prps_.feed(words); }
  /// Ends the walk because a piece could not be read.
  void fail(Status s) { sgl_ ? sgls_->fail(s) : prps_.fail(s); }

  /// Valid in state failed: the reason.
  Status error() const { return sgl_ ? sgls_->error() : prps_.error(); }
  /// Valid in state done: the segments, whose lengths add up to the length.
  std::span<const Segment> segments() const { return sgl_ ? sgls_->segments() : prps_.segments(); }

 private:
  void start_sgl(const SubmissionEntry& command, Bytes length);

  bool sgl_ = false;
  PrpWalker prps_;
  std::unique_ptr<SglWalker> sgls_;  ///< made for the first SGL: most commands have PRPs, and a command is small
};

}  // namespace csdsim::nvme
