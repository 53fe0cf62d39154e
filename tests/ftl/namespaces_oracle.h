// Both namespaces of one drive beside plain maps that hold the expected value of every byte.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <deque>
#include <map>
#include <unordered_map>

#include "base/rng.h"
#include "faulty_media.h"
#include "flash_model.h"
#include "ftl/block/block_ftl.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/policies/instinfer.h"

namespace csdsim::ftl::test {

inline constexpr Bytes kPage{512};
inline constexpr std::uint32_t kDim = 16;
inline constexpr std::uint32_t kHeads = 2;

struct Variant {
  FlashGeometry geometry;
  BlockFtlConfig block;
  VictimPolicy gc;
  FreeBlockChoice free_block;
  TailPolicy tail;
};

/// Page contents are a function of a number, so that the oracle stores only numbers: 0 is a page of zeros.
inline void fill(std::span<std::byte> page, std::uint64_t key) {
  if (key == 0) {
    std::ranges::fill(page, std::byte{0});
    return;
  }
  for (std::size_t i = 0; i < page.size(); i += sizeof key) {
    const std::uint64_t word = counter_random(key, i);
    std::memcpy(page.data() + i, &word, sizeof word);
  }
}

inline Half element(std::uint64_t key, std::uint32_t head, std::uint32_t token, std::uint32_t component) {
  return static_cast<Half>(counter_random(key + head, std::uint64_t{token} * kDim + component));
}

/// The pages of the KV cache: a word line of units each.
inline FlashGeometry kv_pages(const Variant& v) {
  FlashGeometry g = v.geometry;
  g.page_size = g.page_size * v.block.units_per_program;
  g.pages_per_block /= v.block.units_per_program;
  return g;
}

class Oracle {
 public:
  Oracle(const Variant& v, std::uint64_t seed)
      : media_(seed),
        blocks_(v.geometry, quota(v), manager(v, seed)),
        store_(v.geometry, DataMode::carried),
        kv_store_(kv_pages(v), DataMode::carried),
        dram_(Bytes::mib(64)),
        block_(v.block, blocks_, store_, &media_),
        kv_({.tail = v.tail, .layout = {2}, .check = PageCheck::key_and_crc}, blocks_, kv_store_, dram_,
            std::make_unique<InstinferPolicy>(kv_pages(v)), &media_),
        flash_(v.geometry),
        pads_(v.block.pads),
        units_(v.block.units_per_program),
        rng_(seed, "oracle"),
        pages_(block_.capacity().value / kPage.value),
        buffer_(8 * kPage.value) {
    if (v.block.units_per_program > 1) return;  // where units share a page, nothing fails
    media_.retry = 0.01;
    media_.program = 4e-4;
    media_.erase = 1e-3;
  }

  /// Until `operations` are done or the drive is read-only.
  std::uint64_t run(std::uint64_t operations, std::uint64_t checkpoint) {
    std::uint64_t done = 0;
    for (; done < operations && !blocks_.read_only(); ++done) {
      step();
      if (done % checkpoint == 0) check();
    }
    while (!jobs_.empty()) finish_job();
    check();
    return done;
  }

  const BlockFtlStats& block_stats() const { return block_.stats(); }
  const KvFtlStats& kv_stats() const { return kv_.stats(); }
  const BlockManager& blocks() const { return blocks_; }

 private:
  struct Sequence {
    std::uint64_t key = 0;
    std::uint32_t tokens = 0;
    bool pinned = false;
  };

  static constexpr std::uint32_t kSpare = 10;
  static BlockQuota quota(const Variant& v) {
    const std::uint32_t kv = v.geometry.blocks_per_plane / 3;
    return {v.geometry.blocks_per_plane - kv - kSpare, kv};
  }
  static BlockManagerConfig manager(const Variant& v, std::uint64_t seed) {
    return {.gc = v.gc, .free_block = v.free_block, .spare_blocks = kSpare, .factory_bad_blocks = 0.02, .seed = seed};
  }

  void run_plan(const IoPlan& plan) {
    for (const Phase& phase : plan.phases) {
      for (const PageOp& op : phase) flash_.run(op, !pads_);
    }
  }

  /// An operation on a page of the KV cache is one on each of its units, but for an erase.
  void run_kv(PageOp op) {
    op.ppa.value *= units_;
    op.channel_bytes /= units_;
    for (std::uint32_t i = 0; i < (op.kind == PageOpKind::erase ? 1 : units_); ++i, ++op.ppa.value)
      flash_.run(op, false);
  }

  void step() {
    switch (rng_.below(16)) {
      case 0:
        return append();
      case 1:
        return rng_.below(6) == 0 ? free_or_pin() : read_kv();
      case 2:
        return finish_job();
      case 3:
        return trim();
      case 4:
      case 5:
      case 6:
        return read();
      default:
        return write();
    }
  }

  void write() {
    const bool partial = rng_.below(8) == 0;
    const std::uint64_t first = rng_.below(4) == 0 ? rng_.below(pages_) : rng_.below(pages_ / 4 + 1);
    const std::uint64_t count = partial ? 1 : std::min(pages_ - first, 1 + rng_.below(rng_.below(4) == 0 ? 8 : 1));
    const std::span<std::byte> data = std::span(buffer_).first(count * kPage.value);
    if (partial) {
      // Writes half a page with a new key over the old contents; the oracle keeps such a page as bytes.
      std::vector<std::byte>& mixed = image(first);
      fill(data, ++key_);
      const std::uint64_t at = rng_.below(2) * kPage.value / 2;
      const std::span<std::byte> half = data.subspan(at, kPage.value / 2);
      const IoPlan plan = block_.write(kPage * first + Bytes{at}, Bytes{kPage.value / 2}, half);
      run_plan(plan);
      if (plan.status == IoStatus::ok) std::ranges::copy(half, mixed.begin() + static_cast<std::ptrdiff_t>(at));
      return;
    }
    for (std::uint64_t i = 0; i < count; ++i) fill(data.subspan(i * kPage.value, kPage.value), key_ + 1 + i);
    const std::uint64_t before = block_.stats().host_pages_written;
    const IoPlan plan = block_.write(kPage * first, kPage * count, data);
    run_plan(plan);
    const std::uint64_t written = block_.stats().host_pages_written - before;
    if (written != count) REQUIRE(plan.status == IoStatus::read_only);
    for (std::uint64_t i = 0; i < written; ++i) {
      whole_[first + i] = key_ + 1 + i;
      mixed_.erase(first + i);
    }
    key_ += count;
    background();
  }

  void background() {
    const PlaneId plane{static_cast<std::uint32_t>(rng_.below(blocks_.geometry().planes()))};
    if (const auto step = block_.background_step(plane)) run_plan(*step);
  }

  /// What page `p` holds, as bytes.
  std::vector<std::byte>& image(std::uint64_t p) {
    const auto [at, fresh] = mixed_.try_emplace(p);
    if (fresh) {
      at->second.resize(kPage.value);
      const auto key = whole_.find(p);
      fill(at->second, key == whole_.end() ? 0 : key->second);
      whole_.erase(p);
    }
    return at->second;
  }

  void check_page(std::uint64_t p, std::span<const std::byte> found) {
    std::vector<std::byte> expected(kPage.value);
    if (const auto mixed = mixed_.find(p); mixed != mixed_.end()) {
      expected = mixed->second;
    } else if (const auto key = whole_.find(p); key != whole_.end()) {
      fill(expected, key->second);
    }
    if (std::memcmp(expected.data(), found.data(), found.size()) != 0) FAIL("logical page " << p << " differs");
  }

  void read() {
    const std::uint64_t first = rng_.below(pages_);
    const std::uint64_t count = std::min(pages_ - first, 1 + rng_.below(4));
    const std::span<std::byte> data = std::span(buffer_).first(count * kPage.value);
    const IoPlan plan = block_.read(kPage * first, kPage * count, data);
    run_plan(plan);
    if (plan.status != IoStatus::ok) FAIL("a read failed");
    for (std::uint64_t i = 0; i < count; ++i) check_page(first + i, data.subspan(i * kPage.value, kPage.value));
  }

  void trim() {
    const std::uint64_t first = rng_.below(pages_);
    const std::uint64_t count = std::min(pages_ - first, 1 + rng_.below(rng_.below(64) == 0 ? pages_ / 4 : 4));
    if (block_.trim(kPage * first, kPage * count).status != IoStatus::ok) FAIL("a trim failed");
    for (std::uint64_t p = first; p < first + count; ++p) {
      whole_.erase(p);
      mixed_.erase(p);
    }
  }

  void erase(const std::vector<PageOp>& erases) {
    for (const PageOp& op : erases) {
      run_kv(op);
      kv_.erase_done(op.ppa);
    }
  }

  void finish_job() {
    if (jobs_.empty()) return;
    const std::size_t i = rng_.below(jobs_.size());
    const FlushJob job = std::move(jobs_[i]);
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
    for (const PageOp& op : job.reads) run_kv(op);
    for (const PageOp& op : job.programs) run_kv(op);
    erase(kv_.flush_done(job.id));
  }

  void append() {
    const SequenceId id{static_cast<std::uint32_t>(rng_.below(6))};
    if (!live_.contains(id)) {
      if (kv_.create_sequence(id, {1, kHeads, kDim, 0}) != KvStatus::ok) return;  // its pages are still in use
      live_[id].key = ++key_ << 8;
    }
    Sequence& s = live_.at(id);
    const auto count = static_cast<std::uint32_t>(1 + rng_.below(rng_.below(4) == 0 ? 200 : 20));
    std::vector<Half> keys;
    std::vector<Half> values;
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      for (std::uint32_t t = s.tokens; t < s.tokens + count; ++t) {
        for (std::uint32_t c = 0; c < kDim; ++c) {
          keys.push_back(element(s.key, h, t, c));
          values.push_back(element(s.key, h + kHeads, t, c));
        }
      }
    }
    const AppendResult result =
        kv_.append(id, LayerId{0}, TokenIndex{s.tokens}, count, {KvHead{0}, kHeads}, keys, values);
    for (const FlushJob& job : result.jobs) jobs_.push_back(job);
    erase(result.erases);
    ++appends_[result.status];
    if (result.status == KvStatus::ok) {
      s.tokens += count;
    } else if (result.status == KvStatus::out_of_space) {
      free(id);
    } else if (result.status == KvStatus::busy) {
      finish_job();
    } else {
      REQUIRE(result.status == KvStatus::read_only);
    }
  }

  void free(SequenceId id) {
    if (live_.at(id).pinned) erase(kv_.unpin(id));
    erase(kv_.free_sequence(id).erases);
    live_.erase(id);
  }

  void free_or_pin() {
    if (live_.empty()) return;
    auto it = live_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(rng_.below(live_.size())));
    if (rng_.below(3) == 0) return free(it->first);
    if (it->second.pinned) {
      erase(kv_.unpin(it->first));
    } else {
      REQUIRE(kv_.pin(it->first) == KvStatus::ok);
    }
    it->second.pinned = !it->second.pinned;
  }

  void check_token(SequenceId id, const Sequence& s, std::uint32_t t) {
    for (std::uint32_t h = 0; h < kHeads; ++h) {
      const HeadKey key{id, LayerId{0}, KvHead{h}};
      const Half* k = kv_.token_row(key, KvKind::key, TokenIndex{t});
      const Half* v = kv_.token_row(key, KvKind::value, TokenIndex{t});
      for (std::uint32_t c = 0; c < kDim; ++c) {
        if (k[c] != element(s.key, h, t, c) || v[c] != element(s.key, h + kHeads, t, c)) {
          FAIL("token " << t << " of sequence " << id.value << " differs");
        }
      }
    }
  }

  void read_kv() {
    for (const auto& [id, s] : live_) {
      if (s.tokens > 0) check_token(id, s, static_cast<std::uint32_t>(rng_.below(s.tokens)));
    }
  }

  /// Checks that the mapping is one to one over both namespaces, that blocks count the mapped pages, and that all of
  /// them can be read.
  void check() {
    const FlashGeometry& g = blocks_.geometry();
    std::vector<bool> used(g.pages(), false);
    std::vector<std::uint32_t> valid(g.blocks(), 0);
    const auto take = [&](PhysicalPageAddress ppa) {
      if (used[ppa.value]) FAIL("physical page " << ppa.value << " is mapped twice");
      if (!blocks_.valid(ppa)) FAIL("physical page " << ppa.value << " is mapped and not valid");
      used[ppa.value] = true;
      ++valid[blocks_.block_of(ppa).value];
    };
    std::uint64_t mapped = 0;
    for (std::uint64_t p = 0; p < pages_; ++p) {
      const PhysicalPageAddress ppa = block_.lookup(LogicalPage{p});
      if (!ppa.valid()) continue;
      take(ppa);
      ++mapped;
    }
    if (mapped != whole_.size() + mixed_.size()) FAIL("the drive maps " << mapped << " pages");
    kv_.visit_pages([&](const KvPageId&, PhysicalPageAddress ppa) {
      for (std::uint64_t unit = ppa.value * units_; unit < (ppa.value + 1) * units_; ++unit) take({unit});
    });
    for (std::uint32_t b = 0; b < g.blocks(); ++b) {
      if (valid[b] != blocks_.valid_pages(BlockId{b})) FAIL("block " << b << " counts its valid pages wrongly");
    }
    for (std::uint64_t p = 0; p < pages_; ++p) {
      const std::span<std::byte> data = std::span(buffer_).first(kPage.value);
      block_.read(kPage * p, kPage, data);
      check_page(p, data);
    }
    for (const auto& [id, s] : live_) {
      for (std::uint32_t t = 0; t < s.tokens; ++t) check_token(id, s, t);
    }
    if (kv_.verify() + store_.integrity_errors() + kv_store_.integrity_errors() != 0)
      FAIL("a page is not what was mapped");
  }

  FaultyMedia media_;
  BlockManager blocks_;
  BackingStore store_;
  BackingStore kv_store_;
  DramBudget dram_;
  BlockFtl block_;
  KvFtl kv_;
  FlashModel flash_;
  bool pads_;
  std::uint32_t units_;  ///< units of a page of the KV cache
  Rng rng_;
  std::uint64_t pages_;
  std::vector<std::byte> buffer_;
  std::uint64_t key_ = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> whole_;           ///< pages that were written whole, by key
  std::unordered_map<std::uint64_t, std::vector<std::byte>> mixed_;  ///< pages that were written in parts
  std::map<SequenceId, Sequence> live_;
  std::deque<FlushJob> jobs_;

 public:
  std::map<KvStatus, std::uint64_t> appends_;
};

}  // namespace csdsim::ftl::test
