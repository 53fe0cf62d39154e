// Work of the controller that is rare: admin commands, deletion of queues, reset.
#include <algorithm>
#include <utility>

#include "nvme_if/sysc/nvme_controller.h"
#include "nvme_if/sysc/sc_sim_time.h"

namespace csdsim::nvme {

void NvmeController::execute_admin(Command& c) { answer(c, core_.execute_admin(c.sqe_)); }

void NvmeController::answer(Command& c, AdminResult r) {
  switch (r.action) {
    case AdminResult::Action::complete:
      return c.complete(r.status, r.dw0);
    case AdminResult::Action::send_data:
      return send_admin_data(c, std::move(r.data), r.dw0);
    case AdminResult::Action::take_data:
      return take_admin_data(c, std::move(r.data));
    case AdminResult::Action::log_page: {
      auto page = core_.read_log(c.sqe_, handler_.health(), sim_now());
      if (!page) return c.complete(status::invalid_log_page);
      send_admin_data(c, std::move(*page), 0);
      return deliver_events();
    }
    case AdminResult::Action::hold:
      if (event_requests_.size() == kAsyncEventRequests) return c.complete(status::async_event_limit);
      --live_commands_;  // it may wait for ever: a shutdown does not wait for it
      event_requests_.push_back(&c);
      core_.note_health(handler_.health());
      return deliver_events();
    case AdminResult::Action::abort:
      return c.complete(status::success, try_abort(r.queue, r.cid) ? 0 : 1);
    case AdminResult::Action::delete_sq:
      return start_deletion(r.queue, c);
    case AdminResult::Action::drain:
      return handler_.drain([&c, status = r.status] { c.complete(status); });
    case AdminResult::Action::erase_namespace:
      return handler_.erase_namespace([&c] { c.complete(status::success); });
  }
}

void NvmeController::send_admin_data(Command& c, std::vector<std::byte> data, std::uint32_t dw0) {
  c.data_ = std::move(data);
  c.io_ = {.data = Bytes{c.data_.size()}, .direction = DataDirection::drive_to_host, .nsid = {}, .operation = {}};
  c.walk_data_pointer(core_.memory_page());
  if (dw0 == 0) return c.complete_with_data(Bytes{0}, c.data_, [](Status) {});
  c.write_host(Bytes{0}, c.data_, [&c, dw0](Status s) { c.complete(s, s.ok() ? dw0 : 0); });
}

void NvmeController::take_admin_data(Command& c, std::vector<std::byte> data) {
  c.data_ = std::move(data);
  c.io_ = {.data = Bytes{c.data_.size()}, .direction = DataDirection::host_to_drive, .nsid = {}, .operation = {}};
  c.walk_data_pointer(core_.memory_page());
  c.read_host(Bytes{0}, c.data_, [this, &c](Status s) {
    if (!s.ok()) return c.complete(s);
    answer(c, core_.execute_with_data(c.sqe_, c.data_));
  });
}

/// Ends requests for events that there are.
void NvmeController::deliver_events() {
  while (!event_requests_.empty()) {
    const std::optional<std::uint32_t> event = core_.events().next_event();
    if (!event) return;
    end_event_request(event_requests_.front(), status::success, *event);
  }
}

void NvmeController::end_event_request(Command* c, Status status, std::uint32_t dw0) {
  std::erase(event_requests_, c);
  ++live_commands_;
  c->complete(status, dw0);
}

bool NvmeController::try_abort(QueueId queue, CommandId cid) {
  const auto meant = [&](const Command* c) { return c->queue_ == queue && c->cid() == cid; };
  if (const auto held = std::ranges::find_if(event_requests_, meant); held != event_requests_.end()) {
    end_event_request(*held, status::abort_requested, 0);
    return true;
  }
  const auto it = std::ranges::find_if(firmware_, meant);
  if (it == firmware_.end()) return false;
  Command& c = **it;
  firmware_.erase(it);
  finish(c, status::abort_requested);
  return true;
}

void NvmeController::start_deletion(QueueId queue, Command& c) {
  std::vector<Command*> queued;
  std::erase_if(firmware_, [&](Command* f) {
    if (f->queue_ != queue) return false;
    queued.push_back(f);
    return true;
  });
  for (Command* f : queued) finish(*f, status::abort_sq_deletion);
  deletions_.push_back({queue, &c});
  finish_deletions();
}

void NvmeController::finish_ready_deletions() {
  while (!deletions_.empty()) {
    const auto it =
        std::ranges::find_if(deletions_, [&](const Deletion& d) { return core_.existing_sq(d.queue).idle(); });
    if (it == deletions_.end()) return;
    const Deletion d = *it;
    deletions_.erase(it);
    core_.finish_sq_deletion(d.queue);
    d.command->complete(status::success);
  }
}

/// All commands are done, and the host has asked for a shutdown. A normal one ends when nothing would be lost without
/// power.
void NvmeController::end_shutdown() {
  if (core_.shuts_down_abruptly()) return core_.finish_shutdown();
  handler_.drain([this, epoch = epoch_] {
    if (epoch == epoch_ && core_.shutting_down() && live_commands_ == 0) core_.finish_shutdown();
  });
}

void NvmeController::begin_reset() {
  ++epoch_;
  // Commands that the handler or the DMA engine still holds return later and are dropped then.
  for (std::deque<Command*>* const held : {&firmware_, &event_requests_})
    for (Command* c : *held) recycle(*c);
  event_requests_.clear();
  firmware_.clear();
  for (RingQueue<Command*>& waiting : waiting_)
    for (; !waiting.empty(); waiting.pop_front()) recycle(*waiting.front());
  for (const Deletion& d : deletions_) recycle(*d.command);
  deletions_.clear();
  live_commands_ = 0;
  std::ranges::fill(unsignalled_, Unsignalled{});
  ++dma_in_flight_;
  dma_finished();
}

}  // namespace csdsim::nvme
