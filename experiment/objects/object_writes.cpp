#include "experiment/objects/object_writes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace csdsim::experiment {
namespace {

class SlotWriter final : public ObjectWriter {
 public:
  using ObjectWriter::ObjectWriter;
  Extent next() override {
    return {config_.begin.value + choose() * config_.object.value, config_.object.value, false, false};
  }
};

/// Free places are taken in the order in which they became free, so that a region is filled from its begin to its end.
class FileWriter final : public ObjectWriter {
 public:
  FileWriter(const WriterConfig& config, std::uint64_t seed) : ObjectWriter(config, seed), place_(objects_, kNone) {
    for (std::uint64_t place = 0; place < store_shape(config).places; ++place) free_.push_back(place);
  }

  Extent next() override {
    if (deleted_) {
      const std::uint64_t place = *std::exchange(deleted_, std::nullopt);
      free_.push_back(place);
      if (config_.trims) return {at(place), config_.object.value, true, false};
    }
    const std::uint64_t object = choose(), place = free_.front();
    free_.pop_front();
    const std::uint64_t old = std::exchange(place_[object], place);
    if (old != kNone) deleted_ = old;
    return {at(place), config_.object.value, false, false};
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  std::uint64_t at(std::uint64_t place) const { return config_.begin.value + place * config_.object.value; }

  std::vector<std::uint64_t> place_;  ///< by object
  std::deque<std::uint64_t> free_;
  std::optional<std::uint64_t> deleted_;
};

/// Segments that objects are appended to. A log copies the live objects of the emptiest segment when no other is free;
/// buckets copy those of every segment that falls below the threshold, and of the emptiest one if that frees none.
class SegmentWriter final : public ObjectWriter {
 public:
  SegmentWriter(const WriterConfig& config, std::uint64_t seed)
      : ObjectWriter(config, seed),
        per_segment_(store_shape(config).per_segment),
        segments_(store_shape(config).places / per_segment_),
        place_(objects_, kNone),
        owner_(segments_.size() * per_segment_, kNone),
        least_live_(config.store == ObjectStore::buckets
                        ? static_cast<std::uint64_t>(config.threshold * static_cast<double>(per_segment_))
                        : 0) {
    for (std::uint64_t segment = 1; segment < segments_.size(); ++segment) free_.push_back(segment);
  }

  Extent next() override {
    if (trims_.empty() && copies_.empty()) compact();
    while (!copies_.empty()) {
      const std::uint64_t from = copies_.front();
      copies_.pop_front();
      const std::uint64_t object = owner_[from];
      const bool live = object != kNone && place_[object] == from;
      std::optional<Extent> copy;
      if (live) copy = append(object, true);
      if (copies_.empty()) release(compacting_);
      if (copy) return *copy;
    }
    if (!trims_.empty()) {
      const std::uint64_t segment = trims_.front();
      trims_.pop_front();
      if (config_.trims) return {begin_of(segment), per_segment_ * config_.object.value, true, false};
    }
    return append(choose(), false);
  }

 private:
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};
  struct Segment {
    std::uint64_t live = 0;
    bool full = false;
  };

  std::uint64_t begin_of(std::uint64_t segment) const {
    return config_.begin.value + segment * per_segment_ * config_.object.value;
  }

  Extent append(std::uint64_t object, bool copy) {
    const std::uint64_t place = open_ * per_segment_ + filled_;
    const std::uint64_t old = std::exchange(place_[object], place);
    if (old != kNone) lose(old / per_segment_);
    owner_[place] = object;
    ++segments_[open_].live;
    if (++filled_ == per_segment_) {
      segments_[open_].full = true;
      if (segments_[open_].live < least_live_) below_.push_back(open_);
      open_ = free_.front();
      free_.pop_front();
      filled_ = 0;
    }
    return {config_.begin.value + place * config_.object.value, config_.object.value, false, copy};
  }

  void lose(std::uint64_t segment) {
    Segment& s = segments_[segment];
    --s.live;
    if (s.full && s.live + 1 == least_live_) below_.push_back(segment);
  }

  /// Begins to copy a segment if one is below the threshold, or if none is free: the open one, which is empty then,
  /// takes its live objects.
  void compact() {
    std::optional<std::uint64_t> victim;
    while (!below_.empty() && !victim) {
      if (segments_[below_.front()].full) victim = below_.front();
      below_.pop_front();
    }
    if (!victim && free_.empty()) {
      for (std::uint64_t i = 0; i < segments_.size(); ++i)
        if (segments_[i].full && (!victim || segments_[i].live < segments_[*victim].live)) victim = i;
    }
    if (!victim) return;
    compacting_ = *victim;
    segments_[*victim].full = false;
    for (std::uint64_t i = 0; i < per_segment_; ++i) {
      const std::uint64_t place = *victim * per_segment_ + i;
      if (owner_[place] != kNone && place_[owner_[place]] == place) copies_.push_back(place);
    }
    if (copies_.empty()) release(compacting_);
  }

  void release(std::uint64_t segment) {
    std::fill_n(owner_.begin() + static_cast<std::ptrdiff_t>(segment * per_segment_), per_segment_, kNone);
    segments_[segment] = {};
    free_.push_back(segment);
    trims_.push_back(segment);
  }

  std::uint64_t per_segment_;
  std::vector<Segment> segments_;
  std::vector<std::uint64_t> place_;  ///< by object
  std::vector<std::uint64_t> owner_;  ///< by place: the object that was written there last
  std::uint64_t least_live_;          ///< live bytes of a bucket that is not copied, at least
  std::uint64_t open_ = 0, filled_ = 0;
  std::deque<std::uint64_t> free_, below_, trims_;
  std::deque<std::uint64_t> copies_;  ///< places of the segment that is being copied
  std::uint64_t compacting_ = 0;
};

}  // namespace

StoreShape store_shape(const WriterConfig& config) {
  StoreShape shape{.places = config.region.value / config.object.value};
  shape.objects = shape.places;
  if (config.store == ObjectStore::slots) {
    if (shape.objects == 0) throw UserError("holds no object");
    return shape;
  }
  std::uint64_t most = shape.places - std::min<std::uint64_t>(shape.places, 1);
  if (config.store != ObjectStore::files) {
    shape.per_segment = config.segment.value / config.object.value;
    if (shape.per_segment == 0) throw UserError("has segments that hold no object");
    const std::uint64_t segments = shape.places / shape.per_segment;
    if (segments < 4) throw UserError(fmt::format("holds {} segments, a store needs at least 4", segments));
    shape.places = segments * shape.per_segment;
    // One is open, one is free, and one of the others always has a dead object.
    most = (segments - 2) * shape.per_segment - 1;
  }
  const auto live = static_cast<std::uint64_t>(static_cast<double>(shape.places) * (1 - config.free_space));
  shape.objects = std::min(live, most);
  if (shape.objects == 0) throw UserError("holds no object beside its free space");
  return shape;
}

ObjectWriter::ObjectWriter(const WriterConfig& config, std::uint64_t seed)
    : config_(config), objects_(store_shape(config).objects), rng_(seed, "objects") {
  if (config.order == ObjectOrder::zipf) zipf_.emplace(objects_, config.zipf_exponent);
}

std::uint64_t ObjectWriter::choose() {
  const std::uint64_t n = written_++;
  if (n < objects_ || config_.order == ObjectOrder::in_turn) return n % objects_;
  return zipf_ ? (*zipf_)(rng_) : rng_.below(objects_);
}

std::unique_ptr<ObjectWriter> make_writer(const WriterConfig& config, std::uint64_t seed) {
  switch (config.store) {
    case ObjectStore::slots:
      return std::make_unique<SlotWriter>(config, seed);
    case ObjectStore::files:
      return std::make_unique<FileWriter>(config, seed);
    case ObjectStore::log:
    case ObjectStore::buckets:
      break;
  }
  return std::make_unique<SegmentWriter>(config, seed);
}

ObjectRequests::ObjectRequests(const std::vector<WriterConfig>& writers, Bytes request, std::uint64_t seed)
    : counts_(writers.size()), request_(request.value) {
  for (const WriterConfig& writer : writers)
    turns_.push_back({make_writer(writer, counter_random(seed, turns_.size())), {}, 1 / writer.share});
}

/// The first of the writers that have had least of their share.
std::size_t ObjectRequests::next_turn() const {
  std::size_t least = 0;
  for (std::size_t i = 1; i < turns_.size(); ++i)
    if (turns_[i].sent < turns_[least].sent) least = i;
  return least;
}

ObjectRequest ObjectRequests::next() {
  const std::size_t i = next_turn();
  Turn& turn = turns_[i];
  if (turn.extent.length == 0) turn.extent = turn.writer->next();
  ObjectWriter::Extent& extent = turn.extent;
  const std::uint64_t length = extent.trim ? extent.length : std::min(extent.length, request_);
  const ObjectRequest request{Bytes{extent.offset}, Bytes{length}, static_cast<std::uint32_t>(i), extent.trim};
  WriterCounts& counts = counts_[i];
  (extent.trim ? counts.trimmed_bytes : extent.copy ? counts.copied_bytes : counts.new_bytes) += length;
  if (!extent.trim && !extent.copy) turn.sent += turn.per_byte * static_cast<double>(length);
  extent.offset += length;
  extent.length -= length;
  return request;
}

}  // namespace csdsim::experiment
