// Submission entries of every supported command, without command identifier and PRPs (the queue's owner fills those).
#pragma once

#include <bit>
#include <cstdint>

#include "nvme_if/spec/command.h"
#include "nvme_if/spec/fdp.h"
#include "nvme_if/spec/feed_forward_command.h"
#include "nvme_if/spec/kv_command.h"

namespace csdsim::nvme {

namespace detail {
constexpr std::uint32_t pack(std::uint32_t low16, std::uint32_t high16) { return (low16 & 0xFFFFu) | (high16 << 16); }
constexpr std::uint32_t dwords(Bytes b) { return static_cast<std::uint32_t>(b.value / 4); }
}  // namespace detail

// Admin commands.

constexpr SubmissionEntry encode_identify(std::uint8_t cns, NamespaceId nsid = {}) {
  return {.opcode = admin_opcode::identify, .nsid = nsid.value, .cdw10 = cns};
}

/// `entries` is the real number of entries (the wire value is 0's based).
constexpr SubmissionEntry encode_create_io_cq(QueueId id, std::uint32_t entries, InterruptVector vector,
                                              bool interrupts = true) {
  return {.opcode = admin_opcode::create_io_cq,
          .cdw10 = detail::pack(id.value, entries - 1),
          .cdw11 = 1u | (interrupts ? 2u : 0u) | (std::uint32_t{vector.value} << 16)};
}

constexpr SubmissionEntry encode_create_io_sq(QueueId id, std::uint32_t entries, QueueId completion_queue,
                                              QueuePriority priority = QueuePriority::urgent) {
  return {.opcode = admin_opcode::create_io_sq,
          .cdw10 = detail::pack(id.value, entries - 1),
          .cdw11 = 1u | (static_cast<std::uint32_t>(priority) << 1) | (std::uint32_t{completion_queue.value} << 16)};
}

constexpr SubmissionEntry encode_delete_io_cq(QueueId id) {
  return {.opcode = admin_opcode::delete_io_cq, .cdw10 = id.value};
}

constexpr SubmissionEntry encode_delete_io_sq(QueueId id) {
  return {.opcode = admin_opcode::delete_io_sq, .cdw10 = id.value};
}

constexpr SubmissionEntry encode_abort(QueueId submission_queue, CommandId cid) {
  return {.opcode = admin_opcode::abort, .cdw10 = detail::pack(submission_queue.value, cid.value)};
}

constexpr SubmissionEntry encode_set_features(std::uint8_t fid, std::uint32_t value) {
  return {.opcode = admin_opcode::set_features, .cdw10 = fid, .cdw11 = value};
}

/// `completions` is 1..256, `time` in units of 100 us, 0..255.
constexpr SubmissionEntry encode_set_interrupt_coalescing(std::uint32_t completions, std::uint32_t time) {
  return encode_set_features(feature::interrupt_coalescing, ((completions - 1) & 0xFF) | (time & 0xFF) << 8);
}

/// Weights of the priority classes, each 1..256; a fetch takes as many entries as it can.
constexpr SubmissionEntry encode_set_arbitration(std::uint32_t high, std::uint32_t medium, std::uint32_t low) {
  return encode_set_features(feature::arbitration,
                             7u | ((low - 1) & 0xFF) << 8 | ((medium - 1) & 0xFF) << 16 | ((high - 1) & 0xFF) << 24);
}

constexpr SubmissionEntry encode_get_features(std::uint8_t fid) {
  return {.opcode = admin_opcode::get_features, .cdw10 = fid};
}

/// Asks for `queues` submission and as many completion queues.
constexpr SubmissionEntry encode_set_number_of_queues(std::uint16_t queues) {
  return encode_set_features(feature::number_of_queues, detail::pack(queues - 1u, queues - 1u));
}

// NVM command set.

/// `opcode` is nvm_opcode::read or write; `blocks` is 1..65536.
constexpr SubmissionEntry encode_block_io(std::uint8_t opcode, NamespaceId nsid, Lba slba, std::uint32_t blocks) {
  return {.opcode = opcode,
          .nsid = nsid.value,
          .cdw10 = static_cast<std::uint32_t>(slba.value),
          .cdw11 = static_cast<std::uint32_t>(slba.value >> 32),
          .cdw12 = (blocks - 1) & 0xFFFFu};
}

/// The same write, for the reclaim unit that `identifier` names.
constexpr SubmissionEntry with_placement(SubmissionEntry write, std::uint16_t identifier) {
  write.cdw12 |= encode_directive_type(directive::data_placement);
  write.cdw13 |= std::uint32_t{identifier} << 16;
  return write;
}

/// I/O Management Receive, status of reclaim unit handles, in a buffer of `size` bytes, a multiple of 4.
constexpr SubmissionEntry encode_unit_status(NamespaceId nsid, Bytes size) {
  return {.opcode = nvm_opcode::io_management_receive,
          .nsid = nsid.value,
          .cdw10 = management_operation::unit_handles,
          .cdw11 = detail::dwords(size) - 1};
}

/// I/O Management Send, update of reclaim unit handles; the data is `identifiers` (1..65536) placement identifiers.
constexpr SubmissionEntry encode_unit_update(NamespaceId nsid, std::uint32_t identifiers) {
  return {.opcode = nvm_opcode::io_management_send,
          .nsid = nsid.value,
          .cdw10 = detail::pack(management_operation::unit_handles, identifiers - 1)};
}

constexpr SubmissionEntry encode_flush(NamespaceId nsid) { return {.opcode = nvm_opcode::flush, .nsid = nsid.value}; }

/// `ranges` is 1..256; the data is that many DsmRange.
constexpr SubmissionEntry encode_deallocate(NamespaceId nsid, std::uint32_t ranges) {
  return {.opcode = nvm_opcode::dataset_management,
          .nsid = nsid.value,
          .cdw10 = (ranges - 1) & 0xFFu,
          .cdw11 = kDsmDeallocate};
}

// KV commands.

constexpr SubmissionEntry encode(NamespaceId nsid, const KvCreate& c) {
  return {.opcode = kv_opcode::create,
          .nsid = nsid.value,
          .cdw12 = c.sequence.value,
          .cdw13 = detail::pack(c.layers, c.kv_heads),
          .cdw14 = detail::pack(c.head_dim, c.flags),
          .cdw15 = c.max_tokens};
}

constexpr SubmissionEntry encode(NamespaceId nsid, const KvFree& c) {
  return {.opcode = kv_opcode::free, .nsid = nsid.value, .cdw12 = c.sequence.value};
}

constexpr SubmissionEntry encode(NamespaceId nsid, const KvFork& c) {
  return {.opcode = kv_opcode::fork, .nsid = nsid.value, .cdw12 = c.parent.value, .cdw13 = c.child.value};
}

constexpr SubmissionEntry encode(NamespaceId nsid, const KvAppend& c, std::uint16_t words) {
  return {.opcode = kv_opcode::append,
          .nsid = nsid.value,
          .cdw10 = detail::dwords(append_size(c, words)),
          .cdw12 = c.sequence.value,
          .cdw13 = detail::pack(c.layer.value, c.token_count),
          .cdw14 = c.first_token.value,
          .cdw15 = detail::pack(c.first_head.value, c.head_count)};
}

constexpr SubmissionEntry encode(NamespaceId nsid, const KvRewrite& c, std::uint16_t words) {
  SubmissionEntry sqe = encode(nsid, static_cast<const KvAppend&>(c), words);
  sqe.opcode = kv_opcode::rewrite;
  return sqe;
}

constexpr SubmissionEntry encode(NamespaceId nsid, const KvAttend& c) {
  return {
      .opcode = kv_opcode::attend,
      .nsid = nsid.value,
      .cdw10 = detail::dwords(attend_layout(c).size),
      .cdw12 = detail::pack(c.layer.value, c.n),
      .cdw13 = static_cast<std::uint32_t>(c.method) | (std::uint32_t{c.group} << 8) | (std::uint32_t{c.head_dim} << 16),
      .cdw14 = c.total_heads,
      .cdw15 = c.row_words};
}

constexpr SubmissionEntry encode(NamespaceId nsid, const KvScore& c) {
  return {.opcode = kv_opcode::score,
          .nsid = nsid.value,
          .cdw10 = detail::dwords(score_layout(c).size),
          .cdw12 = detail::pack(c.layer.value, c.n),
          .cdw13 = static_cast<std::uint32_t>(c.method) | score_mode(c.precision, c.aggregate) |
                   (std::uint32_t{c.group} << 8) | (std::uint32_t{c.head_dim} << 16),
          .cdw14 = c.total_heads,
          .cdw15 = c.total_scores};
}

constexpr SubmissionEntry encode(NamespaceId nsid, const KvFetch& c) {
  return {.opcode = kv_opcode::fetch,
          .nsid = nsid.value,
          .cdw10 = detail::dwords(fetch_layout(c).size),
          .cdw12 = detail::pack(c.layer.value, c.head_dim),
          .cdw13 = c.token_count,
          .cdw14 = c.head_count};
}

// Commands of the block namespace beyond NVM.

constexpr SubmissionEntry encode(NamespaceId nsid, const FeedForward& c) {
  return {.opcode = block_opcode::feed_forward,
          .nsid = nsid.value,
          .cdw10 = detail::dwords(feed_forward_layout(c).size),
          .cdw12 = detail::pack(c.tokens, c.width),
          .cdw13 = detail::pack(c.runs, c.neurons),
          .cdw14 = static_cast<std::uint32_t>(c.activation) | (std::uint32_t{c.flags} << 8),
          .cdw15 = std::bit_cast<std::uint32_t>(c.threshold)};
}

}  // namespace csdsim::nvme
