// Writes and trims of writers of objects, without a drive.
#include <catch2/catch.hpp>
#include <map>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "experiment/objects/object_writes.h"

namespace test_object_writes {

using namespace csdsim;
using namespace csdsim::experiment;

TEST_CASE("writers stay in their regions, trim only what they have written, and keep their share of free space") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "writer");
    WriterConfig config{.object = Bytes{512 * (1 + rng.below(4))},
                        .begin = Bytes{512 * rng.below(100)},
                        .region = Bytes{512 * (400 + rng.below(1000))},
                        .order = static_cast<ObjectOrder>(rng.below(3)),
                        .store = static_cast<ObjectStore>(seed % 4),
                        .free_space = 0.3,
                        .segment = Bytes{512 * 32},
                        .threshold = 0.5};
    const StoreShape shape = store_shape(config);
    const auto writer = make_writer(config, seed);
    std::map<std::uint64_t, bool> written;  // by offset
    std::uint64_t trims = 0, copies = 0;
    for (int i = 0; i < 20'000; ++i) {
      const ObjectWriter::Extent e = writer->next();
      REQUIRE(e.offset >= config.begin.value);
      REQUIRE(e.offset + e.length <= config.begin.value + config.region.value);
      REQUIRE((e.offset - config.begin.value) % config.object.value == 0);
      copies += e.copy ? 1 : 0;
      trims += e.trim ? 1 : 0;
      for (std::uint64_t at = e.offset; at < e.offset + e.length; at += config.object.value) {
        if (e.trim) {
          REQUIRE(written.erase(at) == 1);
        } else {
          written[at] = true;
        }
      }
      // A file's new version is there before the old one is deleted.
      if (config.store == ObjectStore::files) REQUIRE(written.size() <= shape.objects + 1);
      REQUIRE(written.size() <= shape.places);
    }
    CHECK(written.size() >= std::min<std::uint64_t>(shape.objects, 20'000));
    CHECK((trims > 0) == (config.store != ObjectStore::slots));
    if (config.store == ObjectStore::slots || config.store == ObjectStore::files) CHECK(copies == 0);
  }
}

TEST_CASE("buckets write 1 / (1 - T) times as much as is new") {
  for (const double threshold : {0.25, 0.5, 0.75}) {
    // So much free space that the threshold, and not a lack of buckets, decides.
    const WriterConfig config{.object = Bytes{512},
                              .begin = {},
                              .region = Bytes{512 * 512 * 200},
                              .store = ObjectStore::buckets,
                              .free_space = 0.7,
                              .segment = Bytes{512 * 512},
                              .threshold = threshold};
    const auto writer = make_writer(config, 1);
    double fresh = 0, copied = 0;
    for (int i = 0; i < 1'000'000; ++i) {
      const ObjectWriter::Extent e = writer->next();
      if (i > 300'000 && !e.trim) (e.copy ? copied : fresh) += 1;
    }
    CAPTURE(threshold, fresh, copied);
    CHECK((fresh + copied) / fresh == Approx(1 / (1 - threshold)).epsilon(0.05));
  }
}

TEST_CASE("writers take turns by their shares, request by request") {
  std::vector<WriterConfig> writers(3, {.object = Bytes{8192}, .begin = {}, .region = Bytes{81'920}});
  writers[1].begin = Bytes{81'920};
  writers[2].begin = Bytes{163'840};
  writers[2].share = 2;
  ObjectRequests requests(writers, Bytes{4096}, 1);
  for (int i = 0; i < 400; ++i) {
    const ObjectRequest r = requests.next();
    REQUIRE(r.length == Bytes{4096});
    REQUIRE_FALSE(r.trim);
    REQUIRE(r.offset.value / 81'920 == r.writer);
  }
  CHECK(requests.counts()[0].new_bytes == 100 * 4096);
  CHECK(requests.counts()[1].new_bytes == 100 * 4096);
  CHECK(requests.counts()[2].new_bytes == 200 * 4096);
}

TEST_CASE("stores that do not fit are refused") {
  const auto shape = [](WriterConfig config) { return store_shape(config).objects; };
  CHECK_THROWS_AS(shape({.object = Bytes{4096}, .begin = {}, .region = Bytes{4095}}), UserError);
  CHECK_THROWS_AS(shape({.object = Bytes{4096}, .begin = {}, .region = Bytes{4096}, .store = ObjectStore::files}),
                  UserError);
  const WriterConfig log{
      .object = Bytes{4096}, .begin = {}, .region = Bytes{65'536}, .store = ObjectStore::log, .segment = Bytes{16'384}};
  CHECK(shape(log) == 7);  // 16 places in four segments, two of which are open or free; one object is dead
  WriterConfig small = log;
  small.segment = Bytes{4095};
  CHECK_THROWS_AS(shape(small), UserError);
  small.segment = Bytes{32'768};
  CHECK_THROWS_AS(shape(small), UserError);
}

}  // namespace test_object_writes
