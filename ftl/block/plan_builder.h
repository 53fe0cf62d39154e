// The plan of a request, while its operations are being collected.
#pragma once

#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <utility>
#include <vector>

#include "ftl/block/block_types.h"
#include "ftl/block/plane_load.h"

namespace csdsim::ftl {

/// Collects the operations of one request. Collection of a plane runs before the request's operations there; if it has
/// some already, a new segment starts, which runs after all operations so far.
class PlanBuilder {
 public:
  enum class Records : std::uint8_t {
    operations,
    nothing,  ///< the plan stays empty; the state changes as if it were recorded
    ageing    ///< likewise, but whole blocks are collected (GcPace::blocks)
  };
  explicit PlanBuilder(Records records, PlaneLoad* load = nullptr)
      : records_(records == Records::operations), paced_(records != Records::ageing), load_(load) {}
  PlanBuilder(const PlanBuilder&) = delete;
  PlanBuilder& operator=(const PlanBuilder&) = delete;
  /// Removes from the load what place() added to it. Who runs the plan adds all of its operations.
  ~PlanBuilder() {
    for (const PlaneId plane : placed_) load_->remove(plane, load_->times().program);
  }

  bool records() const { return records_; }
  /// Whether collection keeps to the configured pace.
  bool paced() const { return paced_; }
  Phase* programs() { return records_ ? &programs_ : nullptr; }

  /// The load by which planes are chosen; null: they are taken in turn.
  PlaneLoad* load() const { return load_; }
  /// Adds a program in `plane` to the load, so that the next page of the request sees it. Without operations it stays
  /// there.
  void place(PlaneId plane) {
    if (records_) placed_.push_back(plane);
    load_->add(plane, load_->times().program);
  }

  void touch(PlaneId plane) {
    if (records_) touched_.push_back(plane);
  }
  void read(const PageOp& op) {
    if (records_) reads_.push_back(op);
  }

  /// Adds the collection of a plane. Collections of different planes run side by side; `phases` run in their order.
  void collect(PlaneId plane, std::vector<Phase> phases) {
    if (std::find(touched_.begin(), touched_.end(), plane) != touched_.end()) close_segment();
    touch(plane);
    if (collection_.size() < phases.size()) collection_.resize(phases.size());
    for (std::size_t i = 0; i < phases.size(); ++i) {
      collection_[i].insert(collection_[i].end(), phases[i].begin(), phases[i].end());
    }
  }

  /// Whether the page is programmed by the segment that is being collected, so that it is in DRAM until then.
  bool programs(PhysicalPageAddress ppa) const {
    return std::ranges::find(programs_, ppa, &PageOp::ppa) != programs_.end();
  }

  /// Operations that are added from now on wait for all operations so far.
  void barrier() { close_segment(); }

  std::vector<Phase> finish() {
    close_segment();
    return std::move(done_);
  }

 private:
  void close_segment() {
    for (Phase& phase : collection_) push(std::move(phase));
    push(std::move(reads_));
    push(std::move(programs_));
    collection_.clear();
    reads_.clear();
    programs_.clear();
    touched_.clear();
  }
  void push(Phase phase) {
    if (!phase.empty()) done_.push_back(std::move(phase));
  }

  bool records_;
  bool paced_;
  PlaneLoad* load_;
  boost::container::small_vector<PlaneId, 8> placed_;
  Phase reads_;
  Phase programs_;
  boost::container::small_vector<PlaneId, 8> touched_;
  std::vector<Phase> collection_;
  std::vector<Phase> done_;
};

}  // namespace csdsim::ftl
