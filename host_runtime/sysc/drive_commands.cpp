#include "host_runtime/sysc/drive_commands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "nfc/sysc/sim_time.h"
#include "nvme_if/spec/kv_command.h"

namespace csdsim::host {

using nvme::Segment;

namespace {

/// Time that transfers took on the drive's link, and waited for links that it shares with others.
SimTime link_busy(const csd_model::Drive& drive) {
  SimTime sum;
  for (const nvme::LinkDirection direction : {nvme::LinkDirection::to_host, nvme::LinkDirection::to_drive}) {
    const nvme::LinkStats& stats = drive.link().stats(direction);
    sum += stats.busy + stats.waited;
  }
  return sum;
}

/// The first of the pages that an attend, score or fetch could not read back.
std::string lost_pages(const std::byte* buffer, std::uint32_t count) {
  constexpr std::array<std::string_view, 4> kContents{"K", "V", "K and V", "components of K"};
  nvme::KvLossRecord first;
  std::memcpy(&first, buffer, sizeof first);
  std::string text = fmt::format(": {} of tokens {} to {} of sequence {}, layer {}, KV head {} of the drive",
                                 kContents.at(first.content), first.first_token, first.first_token + first.tokens - 1,
                                 first.sequence, first.layer, first.first_head);
  if (first.head_count > 1) text += fmt::format(" and {} more", first.head_count - 1);
  text += " cannot be read back";
  if (count > 1) text += fmt::format(", nor can {} other pages", count - 1);
  return text;
}

/// Advice for the user.
std::string hint(nvme::Status status) {
  if (status == nvme::status::kv_out_of_dram)
    return ": tails, maps and buffered pages exceed platform.device.dram.capacity; give it more, or use "
           "tail: token_index";
  if (status == nvme::status::kv_bad_parameters)
    return ": a head of this length may exceed platform.device.engine.buffer";
  if (status == nvme::status::engine_buffer_exceeded)
    return ": inputs and sums of so many tokens exceed platform.device.engine.buffer";
  if (status == nvme::status::kv_out_of_flash)
    return ": the KV cache exceeds the flash; give platform.device.flash more blocks, or use fewer sequences";
  return "";
}

/// Time in which no station of the drive worked.
SimTime unused(const csd_model::ActivitySplit& spent) {
  return spent.flash + spent.engine + spent.other - spent.stations.sum();
}

std::vector<platform::BufferPool> gpu_pools(platform::Platform& platform) {
  std::vector<platform::BufferPool> pools;
  for (std::uint32_t gpu = 0; gpu < platform.gpus(); ++gpu)
    pools.emplace_back("GPU memory", Segment{platform::Platform::gpu_base(gpu), platform.gpu_memory(gpu).size()});
  return pools;
}

Segment host_segment(platform::Platform& platform) {
  const nvme::PhysicalAddress first = platform.free_host_memory();
  return {first, platform.host_memory().size() - Bytes{first.value}};
}

}  // namespace

DriveCommands::DriveCommands(platform::Platform& platform, std::uint16_t queues_of_others, Completed completed,
                             Failed failed)
    : platform_(platform),
      queues_of_others_(queues_of_others),
      completed_(std::move(completed)),
      failed_(std::move(failed)),
      gpu_buffers_(gpu_pools(platform)),
      host_buffers_("host memory", host_segment(platform)) {}

std::shared_ptr<DriveCommands::Running> DriveCommands::begin(const Operation& op, SimTime now) {
  const auto running = std::make_shared<Running>();
  running->id_ = op.id;
  running->began_ = now;
  running->drive_ = op.resource.index;
  running->activity_ = platform_.drive(running->drive_).activity(now);
  running->link_busy_ = link_busy(platform_.drive(running->drive_));
  ++running->commands_;  // held until all commands are submitted
  return running;
}

std::shared_ptr<DriveCommands::Running> DriveCommands::begin_batch(const Operation& op, SimTime now) {
  platform_.driver(op.resource.index).begin_batch(!platform_.config().overlap_host_drive);
  return begin(op, now);
}

void DriveCommands::end_batch(const std::shared_ptr<Running>& running) {
  const SimTime submitted = platform_.driver(running->drive_).end_batch();
  if (submitted > sim_time_now())
    host_work_.at(submitted, [this, running, submitted] { host_has_submitted(*running, submitted); });
  end_command(running);
}

void DriveCommands::host_has_submitted(Running& running, SimTime now) {
  csd_model::Drive& drive = platform_.drive(running.drive_);
  const csd_model::ActivitySplit spent = drive.activity(now) - running.activity_;
  running.host_ = spent.other;
  running.host_io_ = unused(spent);
  running.link_busy_ = link_busy(drive);
}

void DriveCommands::hold(const std::shared_ptr<Running>& running) { ++running->commands_; }

void DriveCommands::end_command(const std::shared_ptr<Running>& running) {
  if (--running->commands_ > 0) return;
  const SimTime now = sim_time_now();
  csd_model::Drive& drive = platform_.drive(running->drive_);
  const csd_model::ActivitySplit spent = drive.activity(now) - running->activity_;
  // Time outside engine and flash counts as link time up to the busy time of the link; the rest is drive_other.
  const SimTime link = std::min(spent.other - running->host_, link_busy(drive) - running->link_busy_);
  const SimTime divided =
      std::max(running->host_ + link + spent.flash + spent.engine, running->host_io_ + spent.stations.sum());
  completed_(running->id_, now,
             {.host = running->host_,
              .link = link,
              .flash = spent.flash,
              .engine = spent.engine,
              .gpu = std::min(running->gpu_, now - running->began_ - divided),
              .host_io = running->host_io_,
              .stations = spent.stations});
}

DriveCommands::Buffer DriveCommands::allocate(Place memory, Bytes size) {
  const Segment segment = pool(memory).allocate(size);
  if (memory.in_host()) return {segment, platform_.host_memory().bytes().data() + segment.address.value, memory};
  const std::uint64_t offset = segment.address.value - platform::Platform::gpu_base(memory.index).value;
  return {segment, platform_.gpu_memory(memory.index).bytes().data() + offset, memory};
}

void DriveCommands::release(const Buffer& buffer) { pool(buffer.memory).release(buffer.segment); }

nvme::QueueId DriveCommands::next_queue(std::uint32_t drive) {
  const int queues = platform_.driver(drive).queues() - queues_of_others_;
  return nvme::QueueId{static_cast<std::uint16_t>(1 + next_queue_++ % queues)};
}

void DriveCommands::report(std::uint32_t drive, const std::string& what, const nvme::CompletionEntry& cqe,
                           const std::byte* buffer) {
  const nvme::Status status = cqe.code();
  const bool lost = buffer != nullptr && status == nvme::status::unrecovered_read_error;
  failed_(fmt::format("drive {}: {}: {}{}", drive, what, nvme::status_name(status),
                      lost ? lost_pages(buffer, cqe.dw0) : hint(status)));
}

nvme::NvmeDriver::Callback DriveCommands::completion(std::uint32_t drive, const std::string& what,
                                                     std::function<void()> done, const std::byte* buffer,
                                                     const Lost& lost) {
  return [this, drive, what, buffer, lost, done = std::move(done)](const nvme::CompletionEntry& cqe, SimTime) {
    if (lost && cqe.code() == nvme::status::unrecovered_read_error) return lost(cqe.dw0);
    if (!cqe.code().ok()) return report(drive, what, cqe, buffer);
    done();
  };
}

void DriveCommands::submit(std::uint32_t drive, nvme::QueueId queue, const nvme::SubmissionEntry& command,
                           Segment buffer, const std::string& what, std::function<void()> done) {
  const std::span<const Segment> segments(&buffer, buffer.length.value == 0 ? 0 : 1);
  platform_.driver(drive).submit(queue, command, segments, completion(drive, what, std::move(done)));
}

void DriveCommands::submit(const std::shared_ptr<Running>& running, nvme::QueueId queue,
                           const nvme::SubmissionEntry& command, const Buffer& buffer, const std::string& what,
                           std::function<void()> done, const Lost& lost) {
  ++running->commands_;
  const auto ended = [this, running, done = std::move(done)] {
    done();
    end_command(running);
  };
  Lost lost_and_ended;
  if (lost)
    lost_and_ended = [this, running, lost](std::uint32_t pages) {
      lost(pages);
      end_command(running);
    };
  const std::span<const Segment> segments(&buffer.segment, buffer.segment.length.value == 0 ? 0 : 1);
  platform_.driver(running->drive_)
      .submit(queue, command, segments, completion(running->drive_, what, ended, buffer.bytes, lost_and_ended));
}

void DriveCommands::report_lost(const Running& running, const std::string& what, const std::byte* records,
                                std::uint32_t pages) {
  failed_(fmt::format("drive {}: {}: {}{}", running.drive_, what,
                      nvme::status_name(nvme::status::unrecovered_read_error), lost_pages(records, pages)));
}

void DriveCommands::submit_extent(std::uint32_t drive, std::uint8_t opcode, const Extent& extent, Segment buffer,
                                  nvme::NvmeDriver::Callback done) {
  platform_.driver(drive).submit_block(next_queue(drive), opcode, nvme::Lba{extent.first}, extent.blocks,
                                       std::span(&buffer, 1), std::move(done));
}

void DriveCommands::write_in_background(std::uint32_t drive, const Extent& extent, Segment buffer,
                                        const std::string& what, std::function<void()> done) {
  submit_extent(drive, nvme::nvm_opcode::write, extent, buffer, completion(drive, what, std::move(done)));
}

void DriveCommands::submit_blocks(const std::shared_ptr<Running>& running, std::uint8_t opcode, const Extent& extent,
                                  Segment buffer, const std::string& what, std::function<void()> done,
                                  const std::function<void()>& lost) {
  ++running->commands_;
  const auto ended = [this, running, done = std::move(done)] {
    done();
    end_command(running);
  };
  Lost lost_and_ended;
  if (lost)
    lost_and_ended = [this, running, lost](std::uint32_t) {
      lost();
      end_command(running);
    };
  submit_extent(running->drive_, opcode, extent, buffer,
                completion(running->drive_, what, ended, nullptr, lost_and_ended));
}

}  // namespace csdsim::host
