// Scatter gather lists: the walk from SGL1 to segments, what it refuses, and
// back.
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "base/error.h"
#include "nvme_if/core/sgl.h"

namespace test_sgl {

using namespace csdsim;
using namespace csdsim::nvme;

namespace {

using Memory = std::map<std::uint64_t, std::uint64_t>;  ///< qwords by address

struct Walked {
  Status error;
  std::vector<Segment> segments;
  std::uint32_t pieces = 0;
};

Segment seg(std::uint64_t address, std::uint64_t length) { return {PhysicalAddress{address}, Bytes{length}}; }
SglDescriptor data(std::uint64_t address, std::uint32_t length) {
  return SglDescriptor::of(SglType::data_block, address, length);
}
SglDescriptor segment(std::uint64_t address, std::uint32_t length) {
  return SglDescriptor::of(SglType::segment, address, length);
}
SglDescriptor last(std::uint64_t address, std::uint32_t length) {
  return SglDescriptor::of(SglType::last_segment, address, length);
}

/// Descriptors one after another from `at` on.
void put(Memory& memory, std::uint64_t at, const std::vector<SglDescriptor>& descriptors) {
  for (const SglDescriptor& d : descriptors)
    for (const std::uint64_t word : std::bit_cast<std::array<std::uint64_t, 2>>(d)) {
      memory[at] = word;
      at += 8;
    }
}

Walked walk(const SglDescriptor& first, std::uint64_t length, const Memory& memory = {}) {
  SglWalker w;
  w.start(first, Bytes{length});
  Walked out;
  while (w.state() == WalkState::needs_list) {
    ++out.pieces;
    REQUIRE(w.list().length.value <= 4096);
    std::vector<std::uint64_t> words;
    for (std::uint64_t at = 0; at < w.list().length.value; at += 8)
      words.push_back(memory.at(w.list().address.value + at));
    w.feed(words);
  }
  if (w.state() == WalkState::failed)
    out.error = w.error();
  else
    out.segments.assign(w.segments().begin(), w.segments().end());
  return out;
}

}  // namespace

TEST_CASE(
    "one data block, a last segment, and a chain of segments describe a "
    "buffer") {
  CHECK(walk(data(0x1004, 512), 512).segments == std::vector{seg(0x1004, 512)});
  Memory m;
  put(m, 0x8000, {data(0x1000, 512), data(0x5000, 8), data(0x9000, 0), data(0x3004, 504)});
  CHECK(walk(last(0x8000, 64), 1024, m).segments == std::vector{seg(0x1000, 512), seg(0x5000, 8), seg(0x3004, 504)});
  // Neighbours are one piece of memory.
  put(m, 0x8000, {data(0x1000, 512), data(0x1200, 512), data(0x4000, 512), segment(0xA008, 32)});
  put(m, 0xA008, {data(0x4200, 512), last(0xB000, 16)});
  put(m, 0xB000, {data(0x7000, 2048)});
  const Walked w = walk(segment(0x8000, 64), 4096, m);
  CHECK(w.segments == std::vector{seg(0x1000, 1024), seg(0x4000, 1024), seg(0x7000, 2048)});
  CHECK(w.pieces == 3);
  // Without data nobody looks at the descriptor.
  CHECK(walk(segment(1, 1), 0).error.ok());
}

TEST_CASE("malformed SGLs get the status of the specification") {
  const auto of = [](const std::vector<SglDescriptor>& descriptors, std::uint64_t length = 1024) {
    Memory m;
    put(m, 0x8000, descriptors);
    put(m, 0xC000, {data(0x2000, 512)});
    return walk(last(0x8000, static_cast<std::uint32_t>(16 * descriptors.size())), length, m).error;
  };
  SglDescriptor odd = data(0x1000, 1024);
  odd.identifier = 0x01;  // an offset
  CHECK(walk(odd, 1024).error == status::sgl_subtype_invalid);
  odd.identifier = 0x10;  // a bit bucket
  CHECK(walk(odd, 1024).error == status::sgl_type_invalid);
  odd.identifier = 0xF0;
  CHECK(of({odd}) == status::sgl_type_invalid);
  CHECK(walk(data(0x1002, 1024), 1024).error == status::sgl_granularity_invalid);
  CHECK(of({data(0x1000, 1022), data(0x2000, 2)}) == status::sgl_granularity_invalid);
  for (const std::uint32_t length : {512U, 1020U, 1028U, 4096U})
    CHECK(walk(data(0x1000, length), 1024).error == status::sgl_length_invalid);
  CHECK(of({data(0x1000, 512), data(0x2000, 508)}) == status::sgl_length_invalid);
  CHECK(of({data(0x1000, 512), data(0x2000, 516)}) == status::sgl_length_invalid);
  // Segments: empty, not of descriptors, not on a qword.
  CHECK(walk(last(0x8000, 0), 1024).error == status::sgl_segment_invalid);
  CHECK(walk(segment(0x8000, 24), 1024).error == status::sgl_segment_invalid);
  CHECK(walk(last(0x8004, 16), 1024).error == status::sgl_segment_invalid);
  // A last segment that leads on, a segment that does not, and one that leads
  // on in its middle.
  CHECK(of({data(0x1000, 512), last(0xC000, 16)}) == status::sgl_segment_invalid);
  Memory m;
  put(m, 0x8000, {data(0x1000, 512), data(0x2000, 512)});
  CHECK(walk(segment(0x8000, 32), 1024, m).error == status::sgl_segment_invalid);
  put(m, 0x8000, {last(0xC000, 16), data(0x2000, 512)});
  CHECK(walk(segment(0x8000, 32), 1024, m).error == status::sgl_number_invalid);
  // A segment that leads to itself, with no data.
  put(m, 0x8000, {data(0, 0), segment(0x8000, 32)});
  CHECK(walk(segment(0x8000, 32), 1024, m).error == status::sgl_number_invalid);
}

TEST_CASE("feeding another piece than the one that was asked for is refused") {
  SglWalker w;
  w.start(last(0x8000, 32), Bytes{1024});
  const std::vector<std::uint64_t> one{0, 0};
  CHECK_THROWS_AS(w.feed(one), InternalError);
}

TEST_CASE(
    "what the host builds is what the drive walks, whatever the number "
    "of pieces") {
  const auto seed = Catch::rngSeed() + 5;
  INFO("seed " << seed);
  std::mt19937_64 rng(seed);
  std::vector<std::uint32_t> counts{1, 2, 255, 256, 257, 510, 511, 512, 513, 766, 2000};
  for (int i = 0; i < 200; ++i) counts.push_back(static_cast<std::uint32_t>(1 + rng() % 600));
  for (const std::uint32_t count : counts) {
    CAPTURE(count);
    std::vector<Segment> buffer;
    std::uint64_t at = 0x100000, length = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      at += 4 * (1 + rng() % 1000);  // never contiguous
      buffer.push_back(seg(at, 4 * (1 + rng() % 2000)));
      at += buffer.back().length.value;
      length += buffer.back().length.value;
    }
    Memory memory;
    std::uint32_t pages = 0;
    const SglDescriptor first = build_sgl(
        buffer,
        [&](std::uint32_t i) {
          REQUIRE(i == pages++);
          return PhysicalAddress{0x8000'0000 + i * 0x2000ull};
        },
        [&](PhysicalAddress a, std::uint64_t v) {
          REQUIRE(a.value % 0x2000 < 4096);
          memory[a.value] = v;
        });
    const Walked w = walk(first, length, memory);
    REQUIRE(w.error.ok());
    REQUIRE(w.segments == buffer);
    // A page has 256 descriptors. If a page follows it, the last of them points to that page.
    REQUIRE(pages == (count == 1 ? 0 : count <= 256 ? 1 : (count - 256 + 254) / 255 + 1));
    REQUIRE(w.pieces == pages);
  }
}

TEST_CASE("a buffer that an SGL cannot describe is the user's mistake, one beyond 4 GiB is cut") {
  const auto build = [](std::vector<Segment> buffer) {
    return build_sgl(
        buffer, [](std::uint32_t) { return PhysicalAddress{0x8000}; }, [](PhysicalAddress, std::uint64_t) {});
  };
  CHECK(build({}) == SglDescriptor{});
  CHECK_THROWS_AS(build({seg(0x1000, 0)}), UserError);
  CHECK_THROWS_AS(build({seg(0x1002, 512)}), UserError);
  CHECK_THROWS_AS(build({seg(0x1000, 511)}), UserError);
  CHECK(build({seg(0x1000, 0xFFFF'FFFCull)}) == data(0x1000, 0xFFFF'FFFC));
  CHECK(build({seg(0x1000, 0x1'0000'0000ull)}) == last(0x8000, 32));
}

}  // namespace test_sgl
