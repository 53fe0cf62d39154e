// I/O commands after decoding: typed fields, checked against the namespace and the transfer limit.
#pragma once

#include <cstdint>
#include <variant>

#include "nvme_if/core/controller_params.h"
#include "nvme_if/spec/command.h"
#include "nvme_if/spec/feed_forward_command.h"
#include "nvme_if/spec/kv_command.h"

namespace csdsim::nvme {

struct BlockRead {
  Lba slba;
  std::uint32_t blocks = 0;  ///< 1..65536
  bool fua = false;          ///< Force Unit Access: what it reads survives a loss of power first
};
/// Any reclaim group: the drive chooses.
inline constexpr std::uint16_t kAnyReclaimGroup = 0xFFFF;

struct BlockWrite {
  Lba slba;
  std::uint32_t blocks = 0;
  bool fua = false;          ///< Force Unit Access: it completes when the data survives a loss of power
  std::uint16_t handle = 0;  ///< reclaim unit handle; 0 where Flexible Data Placement is off
  std::uint16_t reclaim_group = kAnyReclaimGroup;
};
/// Completes when what was written before it survives a loss of power.
struct Flush {};
/// The data is `ranges` entries of DsmRange. The reader of the data checks their LBAs with range_status().
struct DatasetManagement {
  std::uint32_t ranges = 0;  ///< 1..256
  bool deallocate = false;   ///< false: the ranges are only hints
};

class EnduranceGroup;
/// I/O Management Receive and Send. Decoding sets their group, which outlives the command.
struct ReclaimUnitStatus {
  bool asked = true;  ///< false: the command has nothing to do
  const EnduranceGroup* group = nullptr;
};
/// The data is `identifiers` placement identifiers of 16 bits, whose handles go on with new reclaim units.
struct ReclaimUnitUpdate {
  std::uint32_t identifiers = 0;  ///< 0: nothing to do
  EnduranceGroup* group = nullptr;
};

using IoOperation =
    std::variant<Flush, BlockRead, BlockWrite, DatasetManagement, KvCreate, KvFree, KvAppend, KvAttend, KvScore,
                 KvFetch, KvFork, KvRewrite, FeedForward, ReclaimUnitStatus, ReclaimUnitUpdate>;

struct IoCommand {
  Bytes data;  ///< size of the buffer behind the PRPs, at most mdts
  DataDirection direction = DataDirection::none;
  NamespaceId nsid;
  bool again = false;  ///< kIssuedAgain of a KV command
  IoOperation operation;
};

/// The decoded command, or the reason for refusing it.
struct DecodedIo {
  Status status;
  IoCommand command;  ///< valid only if status is ok
};

/// Checks and decodes the 64 bytes of an I/O submission entry; any content is allowed. In this order: fused or SGL
/// (invalid_field), opcode, namespace, size against mdts (invalid_field), LBA range, KV fields (kv_* of
/// nvme_if/spec/status.h). The words of a row of a KvAppend or KvRewrite are append_words() of it.
DecodedIo decode_io(const SubmissionEntry& sqe, const ControllerParams& params);
/// The same, written to `command`, which is valid only if the returned status is ok.
Status decode_io(const SubmissionEntry& sqe, const ControllerParams& params, IoCommand& command);

/// Words of a row that follow from the size of an append buffer.
constexpr std::uint16_t append_words(const KvAppend& c, Bytes data) {
  return static_cast<std::uint16_t>(data.value / (std::uint64_t{c.head_count} * c.token_count * 4));
}

/// lba_out_of_range unless the blocks are within the namespace.
Status range_status(Lba slba, std::uint64_t blocks, const ControllerParams& params);

}  // namespace csdsim::nvme
