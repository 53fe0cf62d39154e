#include "nvme_if/core/io_command.h"

#include <bit>
#include <cmath>

#include "nvme_if/core/endurance_group.h"
#include "nvme_if/spec/fdp.h"

namespace csdsim::nvme {
namespace {

Bytes vendor_size(const SubmissionEntry& sqe) { return {std::uint64_t{sqe.cdw10} * 4}; }

/// Fields that attend and score share.
template <class Command>
Status decode_attend_fields(const SubmissionEntry& sqe, Command& c) {
  c.layer = LayerId{low(sqe.cdw12)};
  c.n = high(sqe.cdw12);
  c.group = static_cast<std::uint8_t>(sqe.cdw13 >> 8);
  c.head_dim = high(sqe.cdw13);
  c.total_heads = sqe.cdw14;
  if (c.n == 0 || c.group == 0 || c.head_dim == 0) return status::kv_bad_parameters;
  return c.total_heads < c.n ? status::kv_bad_head : status::success;
}

Status decode(const SubmissionEntry& sqe, KvCreate& c) {
  c = {SequenceId{sqe.cdw12}, low(sqe.cdw13), high(sqe.cdw13), low(sqe.cdw14), high(sqe.cdw14), sqe.cdw15};
  constexpr std::uint16_t kUnknown = 1u << 3;
  if ((c.flags & kUnknown) != 0) return status::invalid_field;
  if (c.layers == 0 || c.kv_heads == 0 || c.head_dim == 0 || format_of(c.flags, c.head_dim).group == 0)
    return status::kv_bad_parameters;
  return sqe.cdw10 != 0 ? status::kv_shape_mismatch : status::success;
}

Status decode(const SubmissionEntry& sqe, KvFree& c) {
  c = {SequenceId{sqe.cdw12}};
  if ((sqe.cdw13 | sqe.cdw14 | sqe.cdw15) != 0) return status::invalid_field;
  return sqe.cdw10 != 0 ? status::kv_shape_mismatch : status::success;
}

Status decode(const SubmissionEntry& sqe, KvFork& c) {
  c = {SequenceId{sqe.cdw12}, SequenceId{sqe.cdw13}};
  if ((sqe.cdw14 | sqe.cdw15) != 0) return status::invalid_field;
  return sqe.cdw10 != 0 ? status::kv_shape_mismatch : status::success;
}

Status decode(const SubmissionEntry& sqe, KvAppend& c) {
  c.sequence = SequenceId{sqe.cdw12};
  c.layer = LayerId{low(sqe.cdw13)};
  c.first_token = TokenIndex{sqe.cdw14};
  c.token_count = high(sqe.cdw13);
  c.first_head = KvHead{low(sqe.cdw15)};
  c.head_count = high(sqe.cdw15);
  if (c.token_count == 0 || c.first_token.value + std::uint64_t{c.token_count} > 0xFFFF'FFFFULL)
    return status::kv_bad_token;
  if (c.head_count == 0) return status::kv_bad_head;
  const std::uint64_t rows = std::uint64_t{c.head_count} * c.token_count;
  const std::uint64_t words = sqe.cdw10 / rows;
  return words * rows != sqe.cdw10 || words == 0 || words > 0xFFFF ? status::kv_shape_mismatch : status::success;
}

Status decode(const SubmissionEntry& sqe, KvAttend& c) {
  if (high(sqe.cdw15) != 0) return status::invalid_field;
  c.row_words = low(sqe.cdw15);
  c.method = static_cast<AttendMethod>(sqe.cdw13 & 0xFF);
  if (c.method > AttendMethod::sparf_partial) return status::kv_bad_parameters;
  if (const Status s = decode_attend_fields(sqe, c); !s.ok()) return s;
  return attend_layout(c).size == vendor_size(sqe) ? status::success : status::kv_shape_mismatch;
}

Status decode(const SubmissionEntry& sqe, KvScore& c) {
  const std::uint8_t mode = sqe.cdw13 & 0xFF;
  bool known = false;
  for (const ScorePrecision precision : {ScorePrecision::fp16, ScorePrecision::int8, ScorePrecision::int4})
    for (const ScoreAggregate aggregate :
         {ScoreAggregate::sum_raw, ScoreAggregate::max_raw, ScoreAggregate::per_head}) {
      if (score_mode(precision, aggregate) != mode) continue;
      c.precision = precision;
      c.aggregate = aggregate;
      known = true;
    }
  if (!known) return status::kv_bad_parameters;
  if (const Status s = decode_attend_fields(sqe, c); !s.ok()) return s;
  c.total_scores = sqe.cdw15;
  if (c.total_scores == 0) return status::kv_bad_token;
  return score_layout(c).size == vendor_size(sqe) ? status::success : status::kv_shape_mismatch;
}

Status decode(const SubmissionEntry& sqe, KvFetch& c) {
  c = {LayerId{low(sqe.cdw12)}, high(sqe.cdw12), sqe.cdw13, low(sqe.cdw14)};
  if (high(sqe.cdw14) != 0 || sqe.cdw15 != 0) return status::invalid_field;
  if (c.head_dim == 0) return status::kv_bad_parameters;
  if (c.head_count == 0) return status::kv_bad_head;
  if (c.token_count == 0) return status::kv_bad_token;
  // More indices than dwords in the buffer cannot fit, and the product below would overflow.
  if (c.token_count > sqe.cdw10) return status::kv_shape_mismatch;
  return fetch_layout(c).size == vendor_size(sqe) ? status::success : status::kv_shape_mismatch;
}

Status decode(const SubmissionEntry& sqe, FeedForward& c) {
  c = {.tokens = low(sqe.cdw12),
       .width = high(sqe.cdw12),
       .runs = low(sqe.cdw13),
       .neurons = high(sqe.cdw13),
       .activation = static_cast<NeuronActivation>(sqe.cdw14 & 0xFF),
       .flags = static_cast<std::uint8_t>(sqe.cdw14 >> 8),
       .threshold = std::bit_cast<float>(sqe.cdw15)};
  constexpr std::uint8_t kFlags = feed_forward_flag::gated | feed_forward_flag::bias;
  const bool known = c.activation == NeuronActivation::relu || c.activation == NeuronActivation::silu;
  if (!known || (c.flags & ~kFlags) != 0 || high(sqe.cdw14) != 0 || std::isnan(c.threshold))
    return status::invalid_field;
  if (c.tokens == 0 || c.width == 0 || c.runs == 0 || c.neurons < c.runs) return status::invalid_field;
  return feed_forward_layout(c).size == vendor_size(sqe) ? status::success : status::invalid_field;
}

/// A vendor command, which is invalid_opcode where the drive does not have it.
template <class Command>
Status decode_vendor(const SubmissionEntry& sqe, IoCommand& command, const ControllerParams& params, bool available) {
  if (!available) return status::invalid_opcode;
  if (sqe.cdw11 != 0) return status::invalid_field;
  if (vendor_size(sqe) > params.mdts) return status::invalid_field;
  command.data = vendor_size(sqe);
  return decode(sqe, command.operation.emplace<Command>());
}

template <class Command>
Status decode_kv(const SubmissionEntry& sqe, IoCommand& command, const ControllerParams& params) {
  command.again = (sqe.cdw2 & kIssuedAgain) != 0;
  return decode_vendor<Command>(sqe, command, params, params.kv_commands);
}

template <class Command>
Status decode_block(const SubmissionEntry& sqe, IoCommand& command, const ControllerParams& params) {
  auto& c = command.operation.emplace<Command>();
  c.slba = Lba{sqe.cdw10 | (std::uint64_t{sqe.cdw11} << 32)};
  c.blocks = (sqe.cdw12 & 0xFFFFu) + 1;
  c.fua = (sqe.cdw12 & kForceUnitAccess) != 0;
  command.data = params.block_size * c.blocks;
  if (command.data > params.mdts) return status::invalid_field;
  return range_status(c.slba, c.blocks, params);
}

/// I/O Management Receive and Send, which are invalid_opcode without Flexible Data Placement.
Status decode_management(const SubmissionEntry& sqe, IoCommand& command, const ControllerParams& params) {
  if (!params.fdp) return status::invalid_opcode;
  const auto operation = static_cast<std::uint8_t>(sqe.cdw10);
  if (operation > management_operation::unit_handles) return status::invalid_field;
  const bool asked = operation == management_operation::unit_handles;
  if (sqe.opcode == nvm_opcode::io_management_receive) {
    command.operation = ReclaimUnitStatus{.asked = asked};
    if (asked) command.data = Bytes{(std::uint64_t{sqe.cdw11} + 1) * 4};
  } else {
    const std::uint32_t identifiers = asked ? high(sqe.cdw10) + 1U : 0;
    if (identifiers > most_placement_identifiers(*params.fdp)) return status::invalid_field;
    command.operation = ReclaimUnitUpdate{.identifiers = identifiers};
    command.data = Bytes{identifiers * std::uint64_t{2}};
  }
  return command.data > params.mdts ? status::invalid_field : status::success;
}

[[gnu::always_inline]] inline Status decode_operation(const SubmissionEntry& sqe, IoCommand& command,
                                                      const ControllerParams& params) {
  switch (sqe.opcode) {
    case nvm_opcode::flush:
      command.operation.emplace<Flush>();
      return status::success;
    case nvm_opcode::read:
      return decode_block<BlockRead>(sqe, command, params);
    case nvm_opcode::write:
      return decode_block<BlockWrite>(sqe, command, params);
    case nvm_opcode::dataset_management: {
      const std::uint32_t ranges = (sqe.cdw10 & 0xFFu) + 1;
      command.operation = DatasetManagement{ranges, (sqe.cdw11 & kDsmDeallocate) != 0};
      command.data = Bytes{std::uint64_t{ranges} * sizeof(DsmRange)};
      return status::success;
    }
    case nvm_opcode::io_management_receive:
    case nvm_opcode::io_management_send:
      return decode_management(sqe, command, params);
    case kv_opcode::create:
      return decode_kv<KvCreate>(sqe, command, params);
    case kv_opcode::free:
      return decode_kv<KvFree>(sqe, command, params);
    case kv_opcode::fork:
      return decode_kv<KvFork>(sqe, command, params);
    case kv_opcode::append:
      return decode_kv<KvAppend>(sqe, command, params);
    case kv_opcode::rewrite:
      return decode_kv<KvRewrite>(sqe, command, params);
    case kv_opcode::attend:
      return decode_kv<KvAttend>(sqe, command, params);
    case kv_opcode::score:
      return decode_kv<KvScore>(sqe, command, params);
    case kv_opcode::fetch:
      return decode_kv<KvFetch>(sqe, command, params);
    case block_opcode::feed_forward:
      return decode_vendor<FeedForward>(sqe, command, params, params.feed_forward);
    default:
      return status::invalid_opcode;
  }
}

}  // namespace

Status range_status(Lba slba, std::uint64_t blocks, const ControllerParams& params) {
  const bool inside = blocks <= params.namespace_blocks && slba.value <= params.namespace_blocks - blocks;
  return inside ? status::success : status::lba_out_of_range;
}

DecodedIo decode_io(const SubmissionEntry& sqe, const ControllerParams& params) {
  DecodedIo decoded;
  decoded.status = decode_io(sqe, params, decoded.command);
  return decoded;
}

Status decode_io(const SubmissionEntry& sqe, const ControllerParams& params, IoCommand& command) {
  command.data = {};
  command.nsid = NamespaceId{sqe.nsid};
  command.direction = data_direction(sqe.opcode);
  // FUSE and PSDT: fused operations and SGLs of metadata are not supported.
  if ((sqe.flags & 0x83u) != 0) return status::invalid_field;
  const Status decoded = decode_operation(sqe, command, params);
  // Order of checks: an unknown opcode is reported first, then an unknown namespace, then all other errors.
  if (sqe.nsid == params.nsid) return decoded;
  const bool broadcast = sqe.opcode == nvm_opcode::flush && sqe.nsid == 0xFFFF'FFFFu;
  if (decoded == status::invalid_opcode || broadcast) return decoded;
  // Namespace 1 may exist, but is not attached.
  return sqe.nsid == 1 ? status::invalid_field : status::invalid_namespace;
}

}  // namespace csdsim::nvme
