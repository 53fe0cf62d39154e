#include "nvme_if/sysc/nvme_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <ranges>
#include <utility>

#include "base/error.h"
#include "nvme_if/spec/encode.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {
namespace {

/// The driver always uses the smallest memory page.
constexpr Bytes kPage = Bytes::kib(4);

/// Bytes [offset, offset + length) of a buffer.
std::vector<Segment> slice(std::span<const Segment> segments, std::uint64_t offset, std::uint64_t length) {
  std::vector<Segment> part;
  for (const Segment& s : segments) {
    if (length == 0) break;
    if (offset >= s.length.value) {
      offset -= s.length.value;
      continue;
    }
    const std::uint64_t size = std::min(s.length.value - offset, length);
    part.push_back({s.address + Bytes{offset}, Bytes{size}});
    offset = 0;
    length -= size;
  }
  return part;
}

std::uint64_t total(std::span<const Segment> segments) {
  std::uint64_t sum = 0;
  for (const Segment& s : segments) sum += s.length.value;
  return sum;
}

/// One page-aligned piece of at most one page: PRP1 alone describes it.
bool fits_a_page(std::span<const Segment> segments) {
  return segments.size() == 1 && segments[0].length.value - 1 < kPage.value &&
         segments[0].address.value % kPage.value == 0;
}

}  // namespace

NvmeDriver::NvmeDriver(const sc_core::sc_module_name& name, const NvmeDriverParams& params)
    : sc_module(name), bar("bar"), memory("memory"), params_(params), next_page_(params.queue_memory.address) {
  if (params.queue_memory.address.value % kPage.value != 0 || params.queue_memory.address.value == 0)
    throw UserError(fmt::format("NVMe driver: queue memory at {:#x} must be page aligned and not at 0",
                                params.queue_memory.address.value));
  if (params.queues == 0 || params.queue_depth < 2)
    throw UserError("NVMe driver: at least one I/O queue of two entries is needed");
  const InterruptCoalescing& coalescing = params.coalescing;
  if (coalescing.completions < 1 || coalescing.completions > 256)
    throw UserError(fmt::format("NVMe driver: {} completions an interrupt, must be 1 to 256", coalescing.completions));
  constexpr SimTime kUnit = InterruptCoalescing::kUnit;
  if (coalescing.completions > 1 &&
      (coalescing.time < kUnit || coalescing.time > kUnit * 255 || coalescing.time.ps % kUnit.ps != 0))
    throw UserError(fmt::format(
        "NVMe driver: an interrupt is late by {} ps, must be a multiple of 100 us up to 25.5 ms", coalescing.time.ps));
  if (params_.cores == nullptr) params_.cores = std::make_shared<HostCores>(params.queues + 1U);
  SC_METHOD(poll_method);
  hold_.engage();
}

void NvmeDriver::start_of_simulation() {
  bells_ = dynamic_cast<DoorbellPort*>(hold_.loop().behind(*bar.get_interface()));
}

void NvmeDriver::on_ready(std::function<void()> callback) {
  if (ready())
    callback();
  else
    ready_callbacks_.push_back(std::move(callback));
}

// Submission.

void NvmeDriver::refuse_queue(QueueId queue) const {
  throw UserError(fmt::format("NVMe queue {} does not exist: there are {} I/O queues", queue.value,
                              queues_.empty() ? 0 : queues()));
}

void NvmeDriver::submit(QueueId queue, SubmissionEntry command, std::span<const Segment> segments, Callback&& done) {
  Queue& q = queue_of(queue);
  ++issued_;
  const SimTime now = sim_now();
  if (params_.io_overhead.ps == 0 && q.pending.empty() && !q.free_cids.empty())
    return place(q, command, segments, std::move(done));
  const SimTime ready = params_.cores->run(params_.first_core + q.id.value, params_.io_overhead, now);
  batch_.ready = std::max(batch_.ready, ready);
  ++pending_;
  q.pending.push_back(
      {command, {segments.begin(), segments.end()}, std::move(done), batch_.together ? kInOpenBatch : ready});
  if (!batch_.together) issue_pending(q);
}

void NvmeDriver::begin_batch(bool together) { batch_ = {together, sim_now()}; }

SimTime NvmeDriver::end_batch() {
  const auto [together, ready] = std::exchange(batch_, {});
  if (!together) return ready;
  for (const auto& q : queues_) {
    for (Pending& p : std::views::reverse(q->pending)) {
      if (p.ready_at != kInOpenBatch) break;
      p.ready_at = ready;
    }
    issue_pending(*q);
  }
  return ready;
}

void NvmeDriver::issue_pending(Queue& q) {
  const SimTime now = sim_now();
  while (!q.pending.empty() && !q.free_cids.empty() && q.pending.front().ready_at <= now) {
    Pending p = std::move(q.pending.front());
    q.pending.pop_front();
    --pending_;
    place(q, p.command, p.segments, std::move(p.done));
  }
  // An earlier alarm stays set; react() looks at all queues again.
  if (!q.pending.empty() && q.pending.front().ready_at > now) reaction_due_.set(q.pending.front().ready_at);
}

DataPointerField NvmeDriver::build_lists(std::vector<PhysicalAddress>& lists, std::span<const Segment> segments,
                                         bool sgl) {
  const auto list_page = [this, &lists](std::uint32_t) { return lists.emplace_back(take_list()); };
  const auto write = [this](PhysicalAddress to, std::uint64_t entry) { write_memory(to, &entry, sizeof entry); };
  if (!sgl) return build_prps(segments, kPage, list_page, write);
  return std::bit_cast<DataPointerField>(build_sgl(segments, list_page, write));
}

/// Builds the data pointer of the command that will have `cid`. What throws comes before the slot is taken.
inline DataPointerField NvmeDriver::data_pointer_of(Queue& q, std::uint16_t cid, std::span<const Segment> segments,
                                                    bool sgl) {
  if (!sgl && fits_a_page(segments)) return {.prp1 = segments[0].address.value, .prp2 = 0};
  std::vector<PhysicalAddress>& lists = q.extras[cid].lists;
  const DataPointerField pointer = build_lists(lists, segments, sgl);
  q.slots[cid].has_lists = !lists.empty();
  return pointer;
}

inline void NvmeDriver::occupy(Slot& slot, std::uint8_t opcode) {
  slot.busy = true;
  if (params_.timeout == SimTime::max()) return;
  slot.placed = sim_now();
  slot.opcode = opcode;
  if (!std::exchange(watching_, true)) timeout_due_.set(slot.placed + params_.timeout);
}

inline void NvmeDriver::advance_tail(Queue& q) {
  q.free_cids.pop_back();
  q.sq_tail = q.sq_tail + 1 == q.depth ? 0 : q.sq_tail + 1;
  if (std::exchange(q.doorbell_due, true)) return;
  rings_.push_back(&q);
  if (!reacting_) doorbells_due_.set(sim_now());
}

void NvmeDriver::place(Queue& q, SubmissionEntry& command, std::span<const Segment> segments, Callback&& done) {
  command.cid = q.free_cids.back();
  const bool sgl = uses_sgl(q) && !segments.empty();
  const DataPointerField pointer = data_pointer_of(q, command.cid, segments, sgl);
  if (sgl) command.flags |= kPsdtSgl;
  q.extras[command.cid].done = std::move(done);
  occupy(q.slots[command.cid], command.opcode);
  command.prp1 = pointer.prp1;
  command.prp2 = pointer.prp2;
  if (params_.may_lose_controller) keep_command(q, command);
  write_memory(q.sq + Bytes{std::uint64_t{q.sq_tail} * sizeof command}, &command, sizeof command);
  advance_tail(q);
}

void NvmeDriver::ring_doorbell(Queue& q) {
  q.doorbell_due = false;
  ++doorbells_;
  if (bells_ != nullptr)
    bells_->ring_submission_queue(q.id, q.sq_tail);
  else
    bar_access(tlm::TLM_WRITE_COMMAND, sq_tail_doorbell(q.id, cap_.dstrd), 4, q.sq_tail);
}

[[gnu::always_inline]] inline void NvmeDriver::ring_doorbells() {
  if (rings_.size() > 1) std::ranges::sort(rings_, {}, [](const Queue* q) { return q->id; });
  if (rings_.empty()) return;
  Queue& last = *rings_.back();
  rings_.pop_back();
  for (Queue* q : rings_) ring_doorbell(*q);
  rings_.clear();
  if (bells_ == nullptr) return ring_doorbell(last);
  last.doorbell_due = false;
  ++doorbells_;
  bells_->ring_submission_queue_last(last.id, last.sq_tail);
}

void NvmeDriver::submit_block(QueueId queue, std::uint8_t opcode, Lba slba, std::uint64_t blocks,
                              std::span<const Segment> segments, Callback&& done,
                              std::optional<std::uint16_t> placement) {
  const std::uint64_t block = block_size_.value;
  if (blocks == 0 || total(segments) != blocks * block)
    throw UserError(fmt::format("block IO of {} blocks needs a buffer of {} bytes, not {}", blocks, blocks * block,
                                total(segments)));
  const std::uint64_t limit = blocks_a_command_;
  const auto encode = [&](Lba first, std::uint64_t count) {
    const SubmissionEntry entry = encode_block_io(opcode, NamespaceId{1}, first, static_cast<std::uint32_t>(count));
    return placement ? with_placement(entry, *placement) : entry;
  };
  if (blocks <= limit) return submit(queue, encode(slba, blocks), segments, std::move(done));
  struct Join {
    std::uint64_t remaining;
    CompletionEntry failed;
    Callback done;
  };
  auto join = std::make_shared<Join>(Join{(blocks + limit - 1) / limit, {}, std::move(done)});
  for (std::uint64_t first = 0; first < blocks; first += limit) {
    const std::uint64_t count = std::min(limit, blocks - first);
    submit(queue, encode(Lba{slba.value + first}, count), slice(segments, first * block, count * block),
           [join](const CompletionEntry& entry, SimTime at) {
             if (!entry.code().ok() && join->failed.code().ok()) join->failed = entry;
             if (--join->remaining == 0) join->done(join->failed.code().ok() ? entry : join->failed, at);
           });
  }
}

void NvmeDriver::submit_block(QueueId queue, std::uint8_t opcode, Lba slba, std::uint64_t blocks,
                              std::span<const Segment> segments, CompletionClient& client, std::uint64_t tag,
                              std::optional<std::uint16_t> placement) {
  Queue& q = queue_of(queue);
  const bool whole =
      blocks - 1 < blocks_a_command_ && segments.size() == 1 && segments[0].length == block_size_ * blocks;
  const bool at_once = params_.io_overhead.ps == 0 && q.pending.empty() && !q.free_cids.empty();
  if (!whole || !at_once || q.submissions == nullptr)
    return submit_block(
        queue, opcode, slba, blocks, segments,
        [&client, tag](const CompletionEntry& entry, SimTime at) { client.completed(tag, entry, at); }, placement);
  ++issued_;
  const std::uint16_t cid = q.free_cids.back();
  const bool sgl = uses_sgl(q);
  const DataPointerField pointer = data_pointer_of(q, cid, segments, sgl);
  Slot& slot = q.slots[cid];
  slot.client = &client;
  slot.tag = tag;
  occupy(slot, opcode);
  // Builds the entry in place: a wide read of bytes just written by narrow stores would wait for the stores.
  auto* const entry = new (q.submissions + q.sq_tail)
      SubmissionEntry(encode_block_io(opcode, NamespaceId{1}, slba, static_cast<std::uint32_t>(blocks)));
  entry->cid = cid;
  if (sgl) entry->flags |= kPsdtSgl;
  entry->prp1 = pointer.prp1;
  entry->prp2 = pointer.prp2;
  if (placement) [[unlikely]]
    *entry = with_placement(*entry, *placement);
  if (params_.may_lose_controller) [[unlikely]]
    keep_command(q, *entry);
  advance_tail(q);
}

// Completion.

/// Queue pair i uses vector i.
inline NvmeDriver::Queue* NvmeDriver::queue_of(InterruptVector vector) {
  return vector.value < queues_.size() ? queues_[vector.value].get() : nullptr;
}

void NvmeDriver::raise(InterruptVector vector) {
  Queue* const q = queue_of(vector);
  if (q == nullptr || std::exchange(q->reap_due, true)) return;
  reaps_.push_back(q);
  reaction_due_.set(sim_now());
}

void NvmeDriver::raise_last(InterruptVector vector) {
  Queue* const q = queue_of(vector);
  // Vectors that were raised before have set the alarm for now, so that the time cannot be skipped to.
  if (q == nullptr || !ready() || !hold_.loop().skip_to(sim_now())) return raise(vector);
  reacting_ = true;
  reap(*q);
  finish_reaction();
}

/// The entry at the head of the completion queue, in memory or read into `copy`.
inline const CompletionEntry& NvmeDriver::head_of(const Queue& q, CompletionEntry& copy) {
  if (q.completions != nullptr) [[likely]]
    return q.completions[q.cq_head];
  read_memory(q.cq + Bytes{std::uint64_t{q.cq_head} * sizeof copy}, &copy, sizeof copy);
  return copy;
}

[[gnu::always_inline]] inline void NvmeDriver::reap(Queue& q) {
  const SimTime now = sim_now();
  bool any = false;
  CompletionEntry copy;
  for (;;) {
    const CompletionEntry& entry = head_of(q, copy);
    if (entry.phase() != q.phase) break;
    any = true;
    if (++q.cq_head == q.depth) {
      q.cq_head = 0;
      q.phase = !q.phase;
    }
    if (entry.cid >= q.slots.size() || !q.slots[entry.cid].busy)
      throw InternalError(
          fmt::format("completion of command {} of queue {}, which is not outstanding", entry.cid, q.id.value));
    Slot& slot = q.slots[entry.cid];
    slot.busy = false;
    if (std::exchange(slot.has_lists, false)) {
      std::vector<PhysicalAddress>& lists = q.extras[entry.cid].lists;
      free_lists_.insert(free_lists_.end(), lists.begin(), lists.end());
      lists.clear();
    }
    q.free_cids.push_back(entry.cid);
    ++completed_;
    if (CompletionClient* const client = std::exchange(slot.client, nullptr)) {
      client->completed(slot.tag, entry, now);
      continue;
    }
    const Callback done = std::move(q.extras[entry.cid].done);
    if (done) done(entry, now);
  }
  if (!any) return;
  if (watching_ && issued_ == completed_) {
    watching_ = false;
    timeout_due_.cancel();
  }
  if (bells_ != nullptr)
    bells_->ring_completion_queue(q.id, q.cq_head);
  else
    bar_access(tlm::TLM_WRITE_COMMAND, cq_head_doorbell(q.id, cap_.dstrd), 4, q.cq_head);
}

void NvmeDriver::react() {
  if (ready() && !ready_callbacks_.empty())
    for (const auto& callback : std::exchange(ready_callbacks_, {})) callback();
  reacting_ = true;
  if (reaps_.size() > 1) std::ranges::sort(reaps_, {}, [](const Queue* q) { return q->id; });
  // A callback may submit commands, but it raises no interrupt.
  for (Queue* q : reaps_) {
    q->reap_due = false;
    reap(*q);
  }
  reaps_.clear();
  finish_reaction();
}

[[gnu::always_inline]] inline void NvmeDriver::finish_reaction() {
  if (pending_ != 0)
    for (const auto& q : queues_) issue_pending(*q);
  reacting_ = false;
  ring_doorbells();
}

// Memory.

PhysicalAddress NvmeDriver::take_page() {
  const PhysicalAddress page = next_page_;
  if (page.value + kPage.value > params_.queue_memory.address.value + params_.queue_memory.length.value)
    throw UserError(fmt::format("NVMe driver: {} bytes of queue memory are too few for its queues and lists",
                                params_.queue_memory.length.value));
  next_page_ = page + kPage;
  return page;
}

/// A page for a list, or for data of the bring-up; it comes back to free_lists_.
PhysicalAddress NvmeDriver::take_list() {
  if (free_lists_.empty()) return take_page();
  const PhysicalAddress page = free_lists_.back();
  free_lists_.pop_back();
  return page;
}

void NvmeDriver::write_memory(PhysicalAddress to, const void* from, std::size_t size) {
  if (direct_ != nullptr)
    std::memcpy(direct_ + (to.value - params_.queue_memory.address.value), from, size);
  else
    access_memory(tlm::TLM_WRITE_COMMAND, to, const_cast<void*>(from), size);
}

void NvmeDriver::read_memory(PhysicalAddress from, void* to, std::size_t size) {
  if (direct_ != nullptr)
    std::memcpy(to, direct_ + (from.value - params_.queue_memory.address.value), size);
  else
    access_memory(tlm::TLM_READ_COMMAND, from, to, size);
}

}  // namespace csdsim::nvme
