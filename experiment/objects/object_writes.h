// Writers of objects: which bytes of a drive they write and trim, in which order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/rng.h"
#include "base/units.h"
#include "experiment/block_io/requests/zipf.h"

namespace csdsim::experiment {

/// Which object is written again or deleted next.
enum class ObjectOrder : std::uint8_t { uniform, in_turn, zipf };

/// How a writer keeps its objects.
enum class ObjectStore : std::uint8_t {
  slots,   ///< each has a fixed place, which is overwritten
  files,   ///< a new version goes to the place that has been free longest; then the old one is deleted
  log,     ///< appended to segments; of full segments the emptiest is copied on and freed when none is free
  buckets  ///< the same, but a segment is copied on as soon as less than a threshold of it is live
};

struct WriterConfig {
  Bytes object;             ///< size
  Bytes begin{}, region{};  ///< the part of the namespace that it writes
  ObjectOrder order = ObjectOrder::uniform;
  double zipf_exponent = 0.99;
  ObjectStore store = ObjectStore::slots;
  double free_space = 0;  ///< share of the region that holds no live object; not for slots
  Bytes segment{};        ///< log and buckets
  double threshold = 0;   ///< buckets: live share of a segment below which it is copied
  bool trims = true;      ///< deleted files and freed segments are trimmed
  double share = 1;       ///< its share of the bytes of new objects, relative to other writers
};

/// A write or a trim.
struct ObjectRequest {
  Bytes offset;
  Bytes length;
  std::uint32_t writer = 0;
  bool trim = false;
};

struct WriterCounts {
  std::uint64_t new_bytes = 0;     ///< bytes of objects that the application wrote
  std::uint64_t copied_bytes = 0;  ///< by the store, of live objects in segments
  std::uint64_t trimmed_bytes = 0;
  std::uint64_t written() const { return new_bytes + copied_bytes; }
};

/// One writer: whole objects, one after the other. It fills its region first, in order.
class ObjectWriter {
 public:
  ObjectWriter(const WriterConfig& config, std::uint64_t seed);
  virtual ~ObjectWriter() = default;

  /// An extent that is written or trimmed.
  struct Extent {
    std::uint64_t offset = 0;
    std::uint64_t length = 0;
    bool trim = false;
    bool copy = false;
  };
  virtual Extent next() = 0;

 protected:
  /// The object that is written next, below objects_: first each once.
  std::uint64_t choose();

  WriterConfig config_;
  std::uint64_t objects_ = 0;  ///< live, once all are written

 private:
  Rng rng_;
  std::optional<workload::ZipfSampler> zipf_;
  std::uint64_t written_ = 0;
};

/// Objects of a region, and how many of them may be live. UserError (without key) for a region that the store cannot
/// work in.
struct StoreShape {
  std::uint64_t places = 0;   ///< for objects
  std::uint64_t objects = 0;  ///< live
  std::uint64_t per_segment = 0;
};
StoreShape store_shape(const WriterConfig& config);

std::unique_ptr<ObjectWriter> make_writer(const WriterConfig& config, std::uint64_t seed);

/// All writers at a time. They take turns by `share`, a request of `request` bytes or the end of an extent at a time.
class ObjectRequests {
 public:
  ObjectRequests(const std::vector<WriterConfig>& writers, Bytes request, std::uint64_t seed);

  ObjectRequest next();
  const std::vector<WriterCounts>& counts() const { return counts_; }

 private:
  struct Turn {
    std::unique_ptr<ObjectWriter> writer;
    ObjectWriter::Extent extent;
    double per_byte = 0;  ///< bytes of `sent` per byte of a new object
    double sent = 0;
  };
  std::size_t next_turn() const;

  std::vector<Turn> turns_;
  std::vector<WriterCounts> counts_;
  std::uint64_t request_;
};

}  // namespace csdsim::experiment
