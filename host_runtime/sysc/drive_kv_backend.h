// Executes the KV operations of a plan as NVMe commands.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/plan/kv_division.h"
#include "host_runtime/core/plan/lost_rows.h"
#include "host_runtime/core/plan/operation_backend.h"
#include "host_runtime/sysc/drive_commands.h"
#include "nvme_if/core/nvme_config.h"

namespace csdsim::host {

/// Encodes the operations of the drives' KV namespaces as vendor commands. Operations larger than mdts are split: an
/// append by heads, then by tokens; an attend or a score by sequences, then by heads; a fetch by heads, then by tokens.
/// An operation ends with its last command, at once if it has none. An attend whose pages cannot be read back may be
/// tried again when the lost tokens have been made again and written (set_lost_rows()).
class DriveKvBackend final : public OperationBackend {
 public:
  struct Shape {
    std::uint32_t kv_heads = 0;
    std::uint32_t group = 1;  ///< query heads per KV head
    std::uint32_t head_dim = 0;
    std::uint32_t layers = 0;
    std::uint32_t max_tokens = 0;  ///< most tokens of a sequence in one drive, a hint for the drive's layout
    bool component_major = true;   ///< drives keep keys in embedding pages too (for SparF)
    nvme::Granularity granularity = nvme::Granularity::layer_mini_batch;
    ShardBy shard = ShardBy::head;  ///< what the drives of the platform divide
    RowQuantisation kv = {};        ///< how the drives, and commands, keep rows of K and V

    /// 16-bit words of a row of K, or of V.
    std::uint16_t row_words() const {
      return static_cast<std::uint16_t>(kv.row(head_dim, sizeof(Half)).value / sizeof(Half));
    }
  };

  /// `data` is null in timing runs. `commands` must outlive this.
  DriveKvBackend(DriveCommands& commands, const Shape& shape, OperationData* data);

  /// Creates sequences 0..count-1 on every drive, each with the drive's share of the heads, then calls `done`.
  void create_sequences(std::uint32_t count, std::function<void()> done);

  /// Frees sequences 0..count-1 on every drive, then calls `done`.
  void free_sequences(std::uint32_t count, std::function<void()> done);

  std::optional<SimTime> start(const Operation& op, SimTime now) override;

  /// Runs work that makes K and V again on the GPU of an attend's mini-batch. Returns when it ends.
  using OnGpu = std::function<SimTime(const Operation& attend, const std::vector<ComputeWork>& work)>;
  /// What happens from now on with K and V that drives cannot read back. Where they are not left out they are made
  /// again, written to the drive, and attended to once more; a command that fails too often because of it ends the run.
  /// `lost` must outlive this.
  void set_lost_rows(LostRows& lost, OnGpu on_gpu) {
    lost_ = &lost;
    on_gpu_ = std::move(on_gpu);
  }

 private:
  using Running = std::shared_ptr<DriveCommands::Running>;
  /// One descriptor of an attend or score command.
  struct Part {
    std::size_t index = 0;  ///< index in the operation's sequences; of a score, in its ranges of tokens
    HeadRange heads;
  };
  /// Tokens of one sequence that one descriptor of a score command can hold.
  struct ScoredRange {
    std::size_t index = 0;  ///< index in the operation's sequences
    std::uint32_t first = 0;
    std::uint32_t tokens = 0;
  };

  /// An attend command: its content may be sent more than once.
  struct Attempt {
    const Operation& op;
    Running running;
    nvme::KvAttend command;
    DriveCommands::Buffer buffer;
    std::vector<nvme::AttendDescriptor> descriptors;
    std::vector<Part> parts;
    std::uint32_t failures = 0;
  };
  using AttemptPtr = std::shared_ptr<Attempt>;
  /// Rows that lost pages held.
  struct UnreadRows {
    SequenceId sequence;
    HeadRange heads;  ///< heads of the model
    std::uint32_t first = 0;
    std::uint32_t tokens = 0;
    auto operator<=>(const UnreadRows&) const = default;
  };

  void start_append(const Operation& op, const Running& running);
  void append_part(const Operation& op, const Running& running, std::size_t index, HeadRange heads,
                   std::uint32_t token_step);
  void start_attend(const Operation& op, const Running& running);
  void submit_attend(const Operation& op, const Running& running, const std::vector<Part>& parts);
  void send(const AttemptPtr& attempt);
  std::vector<UnreadRows> unread_rows(const Attempt& attempt, std::uint32_t pages) const;
  void recover(const AttemptPtr& attempt, std::uint32_t pages);
  void rewrite(const AttemptPtr& attempt, const std::vector<UnreadRows>& lost);
  void send_again(const AttemptPtr& attempt);
  void store_outputs(const Operation& op, std::byte* buffer, const nvme::AttendLayout& layout,
                     const std::vector<Part>& parts);
  void start_score(const Operation& op, const Running& running);
  void submit_score(const Operation& op, const Running& running, const std::vector<ScoredRange>& ranges,
                    const std::vector<Part>& parts);
  /// The ranges of tokens of a score, cut to what one command can return. `heads`: of a descriptor.
  std::vector<ScoredRange> scored_ranges(const Operation& op, std::uint32_t heads, std::uint64_t most) const;
  void start_fetch(const Operation& op, const Running& running);
  void submit_fetch(const Operation& op, const Running& running, std::size_t index, HeadRange heads,
                    std::uint32_t first, std::uint32_t count);
  void start_sequences(const Operation& op, const Running& running);

  /// Groups (sequence, heads) pairs into commands. `fits(parts, total heads)` tells whether one command can hold them.
  /// `head_step`: most heads of a pair.
  std::vector<std::vector<Part>> cut(
      const Operation& op, std::size_t sequences, HeadRange heads, std::uint32_t head_step,
      const std::function<bool(const std::vector<Part>& parts, std::uint32_t heads)>& fits) const;
  nvme::SubmissionEntry create_command(std::uint32_t drive, SequenceId sequence) const;
  /// Writes rows of fp16 as the drives keep them.
  void write_rows(std::span<const Half> rows, std::byte* to) const;
  /// Most heads of one descriptor.
  std::uint32_t head_step(HeadRange heads) const {
    return shape_.granularity == nvme::Granularity::head ? 1 : heads.count;
  }
  std::uint64_t mdts(const Running& running);
  nvme::AttendDescriptor descriptor(const Running& running, SequenceId sequence, HeadRange heads) const;
  /// The number by which a drive knows a KV head of the model.
  KvHead in_drive(const Running& running, KvHead head) const;
  void for_all_sequences(std::uint32_t count, const std::string& what,
                         const std::function<nvme::SubmissionEntry(std::uint32_t drive, SequenceId sequence)>& encode,
                         std::function<void()> done);

  DriveCommands& commands_;
  Shape shape_;
  OperationData* data_;
  KvDivision division_;
  LostRows* lost_ = nullptr;  ///< null: a lost page ends the run
  OnGpu on_gpu_;
};

}  // namespace csdsim::host
