// Attends of tokens that a drive cannot read back: they are computed again, written, and attended to once more.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "host_runtime/sysc/drive_kv_backend.h"
#include "host_runtime/sysc/kv_sections.h"
#include "nfc/sysc/sim_time.h"

namespace csdsim::host {

namespace {

/// Failures of one attend after which the drive is not trusted any more.
constexpr std::uint32_t kMostFailures = 64;

}  // namespace

std::vector<DriveKvBackend::LostRows> DriveKvBackend::lost_rows(const Attempt& attempt, std::uint32_t pages) const {
  const std::uint32_t first_head = division_.heads(DriveIndex{attempt.running->drive()}).first.value;
  std::vector<LostRows> rows;
  const std::size_t records = std::min<std::size_t>(pages, attempt.descriptors.size());
  for (std::size_t i = 0; i < records; ++i) {
    nvme::KvLossRecord record;
    std::memcpy(&record, attempt.buffer.bytes + i * sizeof record, sizeof record);
    rows.push_back({SequenceId{record.sequence},
                    {KvHead{first_head + record.first_head}, record.head_count},
                    record.first_token,
                    record.tokens});
  }
  // Pages of K and V of the same tokens are two records of the same rows.
  std::ranges::sort(rows);
  rows.erase(std::ranges::unique(rows).begin(), rows.end());
  return rows;
}

void DriveKvBackend::recover(const AttemptPtr& attempt, std::uint32_t pages) {
  if (++attempt->failures > kMostFailures)
    return commands_.report_lost(*attempt->running, operation_name(attempt->op.kind, attempt->op.tag),
                                 attempt->buffer.bytes, pages);
  commands_.hold(attempt->running);
  const std::vector<LostRows> lost = lost_rows(*attempt, pages);
  std::map<SequenceId, std::set<std::uint32_t>> tokens;
  for (const LostRows& rows : lost) {
    for (std::uint32_t t = rows.first; t < rows.first + rows.tokens; ++t) tokens[rows.sequence].insert(t);
    recovered_.rows += std::uint64_t{rows.tokens} * rows.heads.count;
  }
  const SimTime now = sim_time_now();
  SimTime there = now;
  for (const auto& [sequence, of_sequence] : tokens)
    there = std::max(there, recompute_(attempt->op, {sequence, static_cast<std::uint32_t>(of_sequence.size()),
                                                     *of_sequence.rbegin() + 1}));
  recovered_.computing += there - now;
  attempt->running->waits_for_gpu(there - now);
  commands_.at(there, [this, attempt, lost] { rewrite(attempt, lost); });
}

void DriveKvBackend::rewrite(const AttemptPtr& attempt, const std::vector<LostRows>& lost) {
  const auto& work = std::get<DriveWork>(attempt->op.work);
  const LayerId layer = *attempt->op.tag.layer;
  const auto head_dim = static_cast<std::uint16_t>(shape_.head_dim);
  const auto left = std::make_shared<std::size_t>(lost.size());
  for (const LostRows& rows : lost) {
    const nvme::KvRewrite command{{.sequence = rows.sequence,
                                   .layer = layer,
                                   .first_token = TokenIndex{rows.first},
                                   .token_count = static_cast<std::uint16_t>(rows.tokens),
                                   .first_head = in_drive(attempt->running, rows.heads.first),
                                   .head_count = static_cast<std::uint16_t>(rows.heads.count)}};
    const Bytes size = nvme::append_size(command, head_dim);
    recovered_.written += size;
    const DriveCommands::Buffer buffer = commands_.allocate(work.memory, size);
    if (data_ != nullptr) {
      const std::size_t elements = size.value / (2 * sizeof(Half));
      data_->load_recomputed(attempt->op, rows.sequence, rows.first, rows.tokens, rows.heads,
                             halves(buffer.bytes, elements), halves(buffer.bytes + elements * sizeof(Half), elements));
    }
    commands_.submit(attempt->running, commands_.next_queue(attempt->running->drive()),
                     nvme::encode(kKvNamespace, command, head_dim), buffer,
                     fmt::format("writing tokens {} to {} of sequence {}, layer {} again", rows.first,
                                 rows.first + rows.tokens - 1, rows.sequence.value, layer.value),
                     [this, attempt, buffer, left] {
                       commands_.release(buffer);
                       if (--*left == 0) send_again(attempt);
                     });
  }
}

/// Records of losses took the place of the descriptors. The new token is in the drive already.
void DriveKvBackend::send_again(const AttemptPtr& attempt) {
  for (nvme::AttendDescriptor& d : attempt->descriptors)
    d.flags &= static_cast<std::uint16_t>(~nvme::attend_flag::append);
  std::memcpy(attempt->buffer.bytes, attempt->descriptors.data(),
              attempt->descriptors.size() * sizeof(nvme::AttendDescriptor));
  send(attempt);
  commands_.end_command(attempt->running);
}

}  // namespace csdsim::host
