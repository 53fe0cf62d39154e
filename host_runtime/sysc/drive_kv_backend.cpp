#include "host_runtime/sysc/drive_backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "nfc/sysc/sim_time.h"
#include "nvme_if/spec/encode.h"

namespace csdsim::host {

using host::DriveMethod;
using host::DriveWork;
using host::HeadRange;
using host::Operation;
using host::OpKind;
using host::SequenceWork;
using nvme::Segment;
using nvme::SubmissionEntry;

namespace {

constexpr nvme::NamespaceId kNamespace{1};

nvme::KvAttend attend_command(const Operation& op, const DriveBackend::Shape& shape, std::size_t n,
                              std::uint32_t total_heads) {
  const DriveWork& work = std::get<DriveWork>(op.work);
  return {.layer = *op.tag.layer,
          .n = static_cast<std::uint16_t>(n),
          .method = work.method == DriveMethod::sparf ? nvme::AttendMethod::sparf : nvme::AttendMethod::dense,
          .group = static_cast<std::uint8_t>(shape.group),
          .head_dim = static_cast<std::uint16_t>(shape.head_dim),
          .total_heads = total_heads};
}

SimTime link_busy(const csd_model::Drive& drive) {
  return drive.link().stats(nvme::LinkDirection::to_host).busy + drive.link().stats(nvme::LinkDirection::to_drive).busy;
}

/// What the user can do about it.
std::string_view hint(nvme::Status status) {
  if (status == nvme::status::kv_out_of_dram)
    return ": tails, maps and pages on their way to flash exceed platform.device.dram.capacity; give it more, or use "
           "tail: token_index";
  if (status == nvme::status::kv_bad_parameters)
    return ": a head of this length may exceed platform.device.engine.buffer";
  if (status == nvme::status::kv_out_of_flash)
    return ": the KV cache exceeds the flash; give platform.device.flash more blocks, or use fewer sequences";
  return "";
}

Segment buffer_memory(platform::Platform& platform, bool through_host) {
  if (!through_host) return {nvme::PhysicalAddress{platform::Platform::kGpuBase}, platform.gpu_memory().size()};
  const nvme::PhysicalAddress first = platform.free_host_memory();
  return {first, platform.host_memory().size() - Bytes{first.value}};
}

std::span<Half> halves(std::byte* at, std::size_t count) { return {reinterpret_cast<Half*>(at), count}; }

}  // namespace

/// An operation that waits for its commands.
struct DriveBackend::Running {
  host::OperationId id;
  std::uint32_t drive = 0;
  std::size_t commands = 0;
  SimTime start;
  csd_model::ActivitySplit activity;  ///< of the drive, when the operation started
  SimTime link_busy;                  ///< both directions, when the operation started
};

/// One descriptor of an attend command.
struct DriveBackend::AttendPart {
  std::size_t index = 0;  ///< in DriveWork::sequences
  HeadRange heads;
};

DriveBackend::DriveBackend(platform::Platform& platform, const Shape& shape, OperationData* data, Completed completed,
                           Failed failed)
    : platform_(platform),
      shape_(shape),
      memory_(buffer_memory(platform, shape.through_host)),
      base_(shape.through_host ? platform.host_memory().bytes().data() + memory_.address.value
                               : platform.gpu_memory().bytes().data()),
      data_(data),
      completed_(std::move(completed)),
      failed_(std::move(failed)),
      shards_(host::shard_heads(shape.kv_heads, platform.drives())),
      buffers_(memory_) {}

std::byte* DriveBackend::bytes(Segment buffer) { return base_ + (buffer.address.value - memory_.address.value); }

nvme::QueueId DriveBackend::next_queue(std::uint32_t drive) {
  const int queues = platform_.driver(drive).queues() - shape_.queues_of_others;
  return nvme::QueueId{static_cast<std::uint16_t>(1 + next_queue_++ % queues)};
}

void DriveBackend::submit(std::uint32_t drive, nvme::QueueId queue, const SubmissionEntry& command, Segment buffer,
                          const std::string& what, std::function<void()> done) {
  nvme::NvmeDriver& driver = platform_.driver(drive);
  const std::span<const Segment> segments(&buffer, buffer.length.value == 0 ? 0 : 1);
  driver.submit(
      queue, command, segments, [this, drive, what, done = std::move(done)](const nvme::CompletionEntry& cqe, SimTime) {
        const nvme::Status status = cqe.code();
        if (!status.ok())
          return failed_(fmt::format("drive {}: {}: {}{}", drive, what, nvme::status_name(status), hint(status)));
        done();
      });
}

void DriveBackend::for_all_sequences(std::uint32_t count, const std::string& what,
                                     const std::function<SubmissionEntry(std::uint32_t, std::uint32_t)>& encode,
                                     std::function<void()> done) {
  const auto left = std::make_shared<std::uint64_t>(std::uint64_t{count} * platform_.drives());
  for (std::uint32_t drive = 0; drive < platform_.drives(); ++drive)
    for (std::uint32_t sequence = 0; sequence < count; ++sequence)
      submit(drive, next_queue(drive), encode(drive, sequence), {}, fmt::format("{} {}", what, sequence), [left, done] {
        if (--*left == 0) done();
      });
}

void DriveBackend::create_sequences(std::uint32_t count, std::function<void()> done) {
  for_all_sequences(
      count, "creating sequence",
      [this](std::uint32_t drive, std::uint32_t sequence) {
        return nvme::encode(kNamespace, nvme::KvCreate{.sequence = SequenceId{sequence},
                                                       .layers = static_cast<std::uint16_t>(shape_.layers),
                                                       .kv_heads = static_cast<std::uint16_t>(shards_[drive].count),
                                                       .head_dim = static_cast<std::uint16_t>(shape_.head_dim),
                                                       .flags = shape_.component_major ? std::uint16_t{0}
                                                                                       : nvme::create_flag::token_major,
                                                       .max_tokens = shape_.max_tokens});
      },
      std::move(done));
}

void DriveBackend::free_sequences(std::uint32_t count, std::function<void()> done) {
  for_all_sequences(
      count, "freeing sequence",
      [](std::uint32_t, std::uint32_t sequence) {
        return nvme::encode(kNamespace, nvme::KvFree{.sequence = SequenceId{sequence}});
      },
      std::move(done));
}

std::optional<SimTime> DriveBackend::start(const Operation& op, SimTime now) {
  if (op.resource.kind != host::ResourceKind::drive)
    throw InternalError(fmt::format("{} does not belong to a drive", host::operation_name(op.kind, op.tag)));
  const auto running = std::make_shared<Running>();
  running->id = op.id;
  running->drive = op.resource.index;
  running->start = now;
  running->activity = platform_.drive(running->drive).activity(now);
  running->link_busy = link_busy(platform_.drive(running->drive));
  ++running->commands;  // held until all commands are submitted
  if (op.kind == OpKind::append_kv) {
    start_append(op, running);
  } else {
    start_attend(op, running);
  }
  command_done(running);
  return std::nullopt;
}

void DriveBackend::command_done(const std::shared_ptr<Running>& running) {
  if (--running->commands > 0) return;
  const SimTime now = sim_time_now();
  const csd_model::ActivitySplit spent = platform_.drive(running->drive).activity(now) - running->activity;
  // Outside of the engine: transfers on the link, as far as there were any; the rest is firmware, queues and programs.
  const SimTime link = std::min(spent.other, link_busy(platform_.drive(running->drive)) - running->link_busy);
  completed_(running->id, now, {.link = link, .flash = spent.flash, .engine = spent.engine});
}

void DriveBackend::start_append(const Operation& op, const std::shared_ptr<Running>& running) {
  const auto& work = std::get<DriveWork>(op.work);
  const std::uint32_t shard_first = shards_[running->drive].first.value;
  const std::uint64_t mdts = platform_.driver(running->drive).mdts().value;
  const std::uint64_t token_bytes = std::uint64_t{shape_.head_dim} * 4;  // K and V of one head
  for (std::size_t index = 0; index < work.sequences.size(); ++index) {
    const SequenceWork& s = work.sequences[index];
    // Whole heads where one fits: full windows then come in one command and need no read-back.
    const std::uint64_t tokens_fit = std::min<std::uint64_t>(mdts / token_bytes, 0xFFFF);
    const std::uint32_t token_step = static_cast<std::uint32_t>(std::min<std::uint64_t>(s.tokens, tokens_fit));
    const std::uint32_t most_heads = shape_.granularity == Granularity::head ? 1 : work.heads.count;
    const std::uint32_t head_step =
        static_cast<std::uint32_t>(std::clamp<std::uint64_t>(mdts / (token_bytes * token_step), 1, most_heads));
    for (std::uint32_t head = 0; head < work.heads.count; head += head_step) {
      // The drive takes the tokens of a head in order: one queue keeps it.
      const nvme::QueueId queue = next_queue(running->drive);
      for (std::uint32_t token = 0; token < s.tokens; token += token_step) {
        const HeadRange heads{KvHead{work.heads.first.value + head}, std::min(head_step, work.heads.count - head)};
        const std::uint32_t count = std::min(token_step, s.tokens - token);
        const nvme::KvAppend command{.sequence = s.sequence,
                                     .layer = *op.tag.layer,
                                     .first_token = TokenIndex{s.first_token.value + token},
                                     .token_count = static_cast<std::uint16_t>(count),
                                     .first_head = KvHead{heads.first.value - shard_first},
                                     .head_count = static_cast<std::uint16_t>(heads.count)};
        const auto head_dim = static_cast<std::uint16_t>(shape_.head_dim);
        const Segment buffer = buffers_.allocate(nvme::append_size(command, head_dim));
        if (data_ != nullptr) {
          const std::size_t elements = std::size_t{heads.count} * count * shape_.head_dim;
          data_->load_append(op, index, token, count, heads, halves(bytes(buffer), elements),
                             halves(bytes(buffer) + elements * sizeof(Half), elements));
        }
        ++running->commands;
        submit(running->drive, queue, nvme::encode(kNamespace, command, head_dim), buffer,
               fmt::format("appending to sequence {} layer {}", s.sequence.value, op.tag.layer->value),
               [this, running, buffer] {
                 buffers_.release(buffer);
                 command_done(running);
               });
      }
    }
  }
}

void DriveBackend::start_attend(const Operation& op, const std::shared_ptr<Running>& running) {
  const auto& work = std::get<DriveWork>(op.work);
  const std::uint64_t mdts = platform_.driver(running->drive).mdts().value;
  const std::size_t most_parts = shape_.granularity == Granularity::layer_mini_batch ? 0xFFFF : 1;
  const auto fits = [&](std::size_t parts, std::uint32_t heads) {
    return parts <= most_parts && nvme::attend_layout(attend_command(op, shape_, parts, heads)).size.value <= mdts;
  };
  std::uint32_t head_step = shape_.granularity == Granularity::head ? 1 : work.heads.count;
  while (head_step > 1 && !fits(1, head_step)) head_step = (head_step + 1) / 2;

  std::vector<AttendPart> parts;
  std::uint32_t heads_in_parts = 0;
  for (std::size_t index = 0; index < work.sequences.size(); ++index)
    for (std::uint32_t head = 0; head < work.heads.count; head += head_step) {
      const HeadRange heads{KvHead{work.heads.first.value + head}, std::min(head_step, work.heads.count - head)};
      if (!parts.empty() && !fits(parts.size() + 1, heads_in_parts + heads.count)) {
        submit_attend(op, running, parts);
        parts.clear();
        heads_in_parts = 0;
      }
      parts.push_back({index, heads});
      heads_in_parts += heads.count;
    }
  submit_attend(op, running, parts);
}

void DriveBackend::submit_attend(const Operation& op, const std::shared_ptr<Running>& running,
                                 const std::vector<AttendPart>& parts) {
  const auto& work = std::get<DriveWork>(op.work);
  const std::uint32_t shard_first = shards_[running->drive].first.value;
  std::uint32_t total_heads = 0;
  for (const AttendPart& part : parts) total_heads += part.heads.count;
  const nvme::KvAttend command = attend_command(op, shape_, parts.size(), total_heads);
  const nvme::AttendLayout layout = nvme::attend_layout(command);
  const Segment buffer = buffers_.allocate(layout.size);
  std::byte* const base = bytes(buffer);

  const std::size_t d = shape_.head_dim;
  std::size_t head_offset = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const AttendPart& part = parts[i];
    const SequenceWork& s = work.sequences[part.index];
    const bool sparf = work.method == DriveMethod::sparf;
    const nvme::AttendDescriptor descriptor{
        .sequence = s.sequence.value,
        .token = s.first_token.value,
        .first_head = static_cast<std::uint16_t>(part.heads.first.value - shard_first),
        .head_count = static_cast<std::uint16_t>(part.heads.count),
        .r = static_cast<std::uint16_t>(sparf ? work.components : 0),
        .flags = nvme::attend_flag::append,
        .k = sparf ? s.top_k : 0,
        .l = sparf ? s.local : 0};
    std::memcpy(base + i * sizeof(descriptor), &descriptor, sizeof(descriptor));
    if (data_ != nullptr) {
      const std::size_t kv = head_offset * d;
      const std::size_t count = part.heads.count * d;
      data_->load_attend(op, part.index, part.heads,
                         halves(base + layout.q.value + kv * shape_.group * sizeof(Half), count * shape_.group),
                         halves(base + layout.k.value + kv * sizeof(Half), count),
                         halves(base + layout.v.value + kv * sizeof(Half), count));
    }
    head_offset += part.heads.count;
  }

  ++running->commands;
  submit(running->drive, next_queue(running->drive), nvme::encode(kNamespace, command), buffer,
         fmt::format("{}", host::operation_name(op.kind, op.tag)), [this, &op, running, buffer, layout, parts] {
           if (data_ != nullptr) {
             std::byte* const out = bytes(buffer) + layout.out.value;
             std::size_t offset = 0;
             for (const AttendPart& part : parts) {
               const std::size_t count = std::size_t{part.heads.count} * shape_.group * shape_.head_dim;
               data_->store_output(op, part.index, part.heads, halves(out + offset * sizeof(Half), count));
               offset += count;
             }
           }
           buffers_.release(buffer);
           command_done(running);
         });
}

}  // namespace csdsim::host
