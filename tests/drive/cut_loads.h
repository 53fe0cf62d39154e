// Host programs for drives whose power fails: what they send, and what must come back.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <vector>

#include "base/rng.h"
#include "ftl/durability/unit_oracle.h"
#include "tests/drive/drive_host.h"

namespace csdsim::test {

/// A host program with at most one command under way for each unit, and what its units may hold.
class BlockLoad {
 public:
  static constexpr std::uint64_t kUnit = 4096;

  BlockLoad(DriveHost& host, std::uint64_t seed)
      : host_(host),
        rng_(seed),
        trims_volatile_(host.drive().config().power_loss.capacitors() == nullptr),
        volatile_(trims_volatile_ && host.drive().config().write_buffer.value > 0),
        units_(host.drive().block_ftl().capacity().value / kUnit),
        oracle_(units_, ftl::durability::UnitOracle(kUnit)),
        busy_(units_),
        uncertain_(units_) {}

  std::size_t under_way() const { return under_way_; }
  bool consistent() const { return wrong_ == 0; }
  /// Units that have come back in an older version.
  std::uint64_t older() const { return older_; }

  /// Starts a command, if its units are free.
  void issue() {
    const std::uint64_t first = rng_.below(units_), count = 1 + rng_.below(std::min<std::uint64_t>(5, units_ - first));
    for (std::uint64_t unit = first; unit < first + count; ++unit)
      if (busy_[unit]) return;
    const std::uint64_t dice = rng_.below(20);
    if (dice == 0) return flush();
    if (dice < 3) return trim(first, count);
    if (dice < 6) return read(first, count);
    write(first, count, dice < 9);
  }

  void flush() {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> durable;
    for (std::uint64_t unit = 0; unit < units_; ++unit)
      if (!busy_[unit] && !uncertain_[unit]) durable.emplace_back(unit, oracle_[unit].version());
    send(nvme::encode_flush(kNamespace), {}, [this, durable, cuts = cuts_] {
      // What completed before a cut may have been lost by it.
      if (cuts != cuts_) return;
      for (const auto& [unit, version] : durable) oracle_[unit].make_durable(version);
    });
  }

  void read_all() {
    for (std::uint64_t unit = 0; unit < units_; ++unit) read(unit, 1);
  }

  /// The power has failed: what is only in DRAM may be gone.
  void note_cut() {
    ++cuts_;
    std::fill(uncertain_.begin(), uncertain_.end(), true);
  }

 private:
  template <class Done>
  void send(const nvme::SubmissionEntry& entry, nvme::Segment buffer, Done done) {
    ++under_way_;
    const std::span<const nvme::Segment> segments(&buffer, buffer.length.value == 0 ? 0 : 1);
    host_.driver().submit(nvme::QueueId{static_cast<std::uint16_t>(1 + rng_.below(4))}, entry, segments,
                          [this, done](const nvme::CompletionEntry& cqe, SimTime) {
                            --under_way_;
                            CHECK(cqe.code().ok());
                            done();
                          });
  }
  void occupy(std::uint64_t first, std::uint64_t count, bool busy) {
    for (std::uint64_t unit = first; unit < first + count; ++unit) busy_[unit] = busy;
  }
  nvme::Segment buffer(std::uint64_t units) {
    if (free_[units].empty()) return host_.buffer(Bytes{units * kUnit});
    const nvme::Segment taken = free_[units].back();
    free_[units].pop_back();
    return taken;
  }

  void write(std::uint64_t first, std::uint64_t count, bool fua) {
    const nvme::Segment data = buffer(count);
    ++serial_;
    for (std::uint64_t i = 0; i < count; ++i) {
      const ftl::durability::UnitBytes bytes = ftl::durability::bytes_of(first + i, serial_, kUnit);
      std::memcpy(host_.at(data.address) + i * kUnit, bytes.data(), kUnit);
      oracle_[first + i].write(bytes);
    }
    occupy(first, count, true);
    auto entry =
        nvme::encode_block_io(nvme::nvm_opcode::write, kNamespace, nvme::Lba{first}, static_cast<std::uint32_t>(count));
    if (fua) entry.cdw12 |= nvme::kForceUnitAccess;
    send(entry, data, [=, this] { written(first, count, fua || !volatile_, data); });
  }
  void written(std::uint64_t first, std::uint64_t count, bool durable, nvme::Segment data) {
    occupy(first, count, false);
    for (std::uint64_t unit = first; unit < first + count; ++unit) {
      uncertain_[unit] = false;
      if (durable) oracle_[unit].make_durable(oracle_[unit].version());
    }
    if (data.length.value > 0) free_[count].push_back(data);
  }
  void trim(std::uint64_t first, std::uint64_t count) {
    for (std::uint64_t unit = first; unit < first + count; ++unit)
      oracle_[unit].write(ftl::durability::UnitBytes(kUnit));
    occupy(first, count, true);
    const nvme::DsmRange range{.length = static_cast<std::uint32_t>(count), .slba = first};
    const nvme::Segment data = host_.buffer(Bytes{sizeof range});
    std::memcpy(host_.at(data.address), &range, sizeof range);
    send(nvme::encode_deallocate(kNamespace, 1), data, [=, this] { written(first, count, !trims_volatile_, {}); });
  }
  void read(std::uint64_t first, std::uint64_t count) {
    if (busy_[first]) return;
    occupy(first, count, true);
    const nvme::Segment data = buffer(count);
    send(nvme::encode_block_io(nvme::nvm_opcode::read, kNamespace, nvme::Lba{first}, static_cast<std::uint32_t>(count)),
         data, [=, this] {
           occupy(first, count, false);
           for (std::uint64_t i = 0; i < count; ++i) check(first + i, {host_.at(data.address) + i * kUnit, kUnit});
           free_[count].push_back(data);
         });
  }
  void check(std::uint64_t unit, std::span<const std::byte> bytes) {
    const auto age = oracle_[unit].age_of(bytes);
    if (!age || (*age > 0 && !uncertain_[unit])) {
      ++wrong_;
      FAIL_CHECK("unit " << unit << " holds neither its last durable version nor a newer one, after " << cuts_
                         << " cuts");
      return;
    }
    older_ += *age > 0 ? 1 : 0;
    if (uncertain_[unit]) oracle_[unit].settle(*age);
    uncertain_[unit] = false;
  }

  DriveHost& host_;
  Rng rng_;
  bool trims_volatile_, volatile_;
  std::uint64_t units_;
  std::vector<ftl::durability::UnitOracle> oracle_;
  std::vector<bool> busy_;
  std::vector<bool> uncertain_;  ///< a cut has come since it was last written or read
  std::map<std::uint64_t, std::vector<nvme::Segment>> free_;
  std::size_t under_way_ = 0;
  std::uint64_t serial_ = 0, cuts_ = 0, wrong_ = 0, older_ = 0;
};

/// A host program with at most one command under way for each sequence: it creates, forks, appends, attends and frees,
/// and compares what comes back with what it gave. Where capacitors protect the drive nothing may be missing.
class KvLoad {
 public:
  static constexpr std::uint32_t kSequences = 4, kLayers = 2, kHeads = 2, kDim = 16;

  /// `most`: tokens of an append.
  KvLoad(DriveHost& host, std::uint64_t seed, std::uint32_t most)
      : host_(host), rng_(seed, "kv"), most_(most), all_(kSequences) {}

  std::size_t under_way() const { return under_way_; }
  std::uint64_t compared() const { return compared_; }
  std::uint64_t refused() const { return refused_; }

  void issue() {
    const std::uint32_t id = below(kSequences);
    Sequence& s = all_[id];
    if (s.busy) return;
    if (!s.exists) return rng_.below(3) == 0 ? fork(id) : create(id);
    const std::uint32_t dice = below(20), layer = below(kLayers);
    if (dice == 0) return free(id);
    if (dice < 8) return append(id, layer);
    if (dice < 17) return attend(id, layer, dice < 14);
    fetch(id, layer);
  }

  /// Reads every row of every sequence that nothing works on.
  void read_all() {
    for (std::uint32_t id = 0; id < kSequences; ++id)
      if (all_[id].exists && !all_[id].busy) read_layer(id, 0);
  }

 private:
  struct Sequence {
    bool exists = false, busy = false;
    /// By layer: of each token, the number under which its content was made.
    std::vector<std::vector<std::uint32_t>> tokens{kLayers};
  };

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(rng_.below(n)); }
  nvme::Segment buffer(Bytes size) {
    auto& free = free_[size.value];
    if (free.empty()) return host_.buffer(size);
    const nvme::Segment taken = free.back();
    free.pop_back();
    return taken;
  }
  /// Commands that find no room are refused; all others succeed.
  template <class Done>
  void send(std::uint32_t id, const nvme::SubmissionEntry& entry, nvme::Segment b, Done done) {
    ++under_way_;
    all_[id].busy = true;
    const std::span<const nvme::Segment> segments(&b, b.length.value == 0 ? 0 : 1);
    host_.driver().submit(nvme::QueueId{static_cast<std::uint16_t>(1 + below(4))}, entry, segments,
                          [this, id, b, done](const nvme::CompletionEntry& cqe, SimTime) {
                            --under_way_;
                            all_[id].busy = false;
                            if (cqe.code() == nvme::status::kv_out_of_flash) {
                              ++refused_;
                            } else {
                              CAPTURE(id, nvme::status_name(cqe.code()));
                              CHECK(cqe.code().ok());
                              if (cqe.code().ok()) done();
                            }
                            if (b.length.value > 0) free_[b.length.value].push_back(b);
                          });
  }
  void create(std::uint32_t id) {
    const auto flags = static_cast<std::uint16_t>(below(4) == 0 ? nvme::create_flag::token_major : 0);
    send(id, DriveHost::create_entry(id, kLayers, kHeads, kDim, flags), {},
         [this, id] { all_[id] = {.exists = true}; });
  }
  void fork(std::uint32_t id) {
    const std::uint32_t parent = below(kSequences);
    Sequence& from = all_[parent];
    if (parent == id || !from.exists || from.busy || from.tokens[0].size() != from.tokens[1].size()) return;
    from.busy = true;
    send(id, nvme::encode(kNamespace, nvme::KvFork{SequenceId{parent}, SequenceId{id}}), {}, [this, id, parent] {
      all_[parent].busy = false;
      all_[id] = all_[parent];
    });
  }
  void free(std::uint32_t id) {
    send(id, DriveHost::free_entry(id), {}, [this, id] { all_[id] = {}; });
  }
  std::vector<Half> rows(Content::Kind kind, std::uint32_t layer, std::uint32_t head,
                         std::span<const std::uint32_t> numbers, std::uint32_t first) const {
    std::vector<Half> made;
    for (std::uint32_t i = 0; i < numbers.size(); ++i) {
      const std::vector<Half> row = host_.content.row(kind, numbers[i], layer, head, first + i);
      made.insert(made.end(), row.begin(), row.end());
    }
    return made;
  }
  void append(std::uint32_t id, std::uint32_t layer) {
    auto& tokens = all_[id].tokens[layer];
    const auto at = static_cast<std::uint32_t>(tokens.size());
    const std::uint32_t count = 1 + below(below(3) == 0 ? most_ : 12), number = ++contents_;
    const std::vector<std::uint32_t> numbers(count, number);
    const nvme::KvAppend c = DriveHost::append_command(id, layer, at, count, 0, kHeads);
    const nvme::Segment b = buffer(nvme::append_size(c, kDim));
    nvme::PhysicalAddress to = b.address;
    for (const auto kind : {Content::key, Content::value})
      for (std::uint32_t head = 0; head < kHeads; ++head) {
        const std::vector<Half> made = rows(kind, layer, head, numbers, at);
        host_.put(to, made);
        to = to + Bytes{made.size() * sizeof(Half)};
      }
    send(id, nvme::encode(kNamespace, c, kDim), b, [this, id, layer, numbers] {
      auto& have = all_[id].tokens[layer];
      have.insert(have.end(), numbers.begin(), numbers.end());
    });
  }
  /// Dense attention of all heads, which appends a token first or not.
  void attend(std::uint32_t id, std::uint32_t layer, bool appends) {
    std::vector<std::uint32_t> numbers = all_[id].tokens[layer];
    if (appends) numbers.push_back(++contents_);
    if (numbers.empty()) return;
    const auto token = static_cast<std::uint32_t>(numbers.size() - 1);
    const nvme::KvAttend command{LayerId{layer}, 1, nvme::AttendMethod::dense, 1, kDim, kHeads};
    const nvme::AttendLayout layout = nvme::attend_layout(command);
    const nvme::Segment b = buffer(layout.size);
    host_.put(b.address, std::vector{heads_of(id, token, 0, kHeads, appends)});
    constexpr Bytes kRow{kDim * sizeof(Half)};
    const std::uint32_t number = numbers.back();
    for (std::uint32_t head = 0; head < kHeads; ++head) {
      host_.put(b.address + layout.q + kRow * head, host_.content.row(Content::query, number, layer, head, token));
      host_.put(b.address + layout.k + kRow * head, host_.content.row(Content::key, number, layer, head, token));
      host_.put(b.address + layout.v + kRow * head, host_.content.row(Content::value, number, layer, head, token));
    }
    send(id, nvme::encode(kNamespace, command), b, [this, id, layer, token, numbers, b, layout] {
      all_[id].tokens[layer] = numbers;
      ++compared_;
      const std::vector<Half> out = host_.get<Half>(b.address + layout.out, kHeads * kDim);
      for (std::uint32_t head = 0; head < kHeads; ++head) {
        const auto matrix = [&](Content::Kind kind) {
          return engine::test::matrix(rows(kind, layer, head, numbers, 0), kDim);
        };
        const auto q =
            engine::test::matrix(host_.content.row(Content::query, numbers.back(), layer, head, token), kDim);
        const auto expected =
            engine::test::attend(q[0], matrix(Content::key), matrix(Content::value), engine::test::all(numbers.size()));
        double worst = 0;
        for (std::uint32_t i = 0; i < kDim; ++i)
          worst = std::max(worst, std::abs(expected[i] - half_to_float(out[head * kDim + i])));
        CAPTURE(id, layer, head, numbers.size());
        CHECK(worst < kOutputTolerance);
      }
    });
  }
  void fetch(std::uint32_t id, std::uint32_t layer) {
    fetch_then(id, layer, [] {});
  }
  void read_layer(std::uint32_t id, std::uint32_t layer) {
    fetch_then(id, layer, [this, id, layer] {
      if (layer + 1 < kLayers) read_layer(id, layer + 1);
    });
  }
  /// Compares all rows of a layer with what was given.
  template <class Then>
  void fetch_then(std::uint32_t id, std::uint32_t layer, Then then) {
    const std::vector<std::uint32_t> numbers = all_[id].tokens[layer];
    if (numbers.empty()) return then();
    const auto count = static_cast<std::uint32_t>(numbers.size());
    const nvme::KvFetch command{LayerId{layer}, kDim, count, kHeads};
    const nvme::FetchLayout layout = nvme::fetch_layout(command);
    const nvme::Segment b = buffer(layout.size);
    host_.put(b.address, std::vector{heads_of(id, 0, 0, kHeads)});
    std::vector<std::uint32_t> wanted(count);
    for (std::uint32_t i = 0; i < count; ++i) wanted[i] = i;
    host_.put(b.address + layout.tokens, wanted);
    send(id, nvme::encode(kNamespace, command), b, [this, id, layer, numbers, b, layout, then] {
      ++compared_;
      for (const auto kind : {Content::key, Content::value}) {
        nvme::PhysicalAddress at = b.address + (kind == Content::key ? layout.k : layout.v);
        for (std::uint32_t head = 0; head < kHeads; ++head) {
          const std::vector<Half> expected = rows(kind, layer, head, numbers, 0);
          CAPTURE(id, layer, head, kind, numbers.size());
          CHECK(host_.get<Half>(at, expected.size()) == expected);
          at = at + Bytes{expected.size() * sizeof(Half)};
        }
      }
      then();
    });
  }

  DriveHost& host_;
  Rng rng_;
  std::uint32_t most_;
  std::vector<Sequence> all_;
  std::map<std::uint64_t, std::vector<nvme::Segment>> free_;
  std::size_t under_way_ = 0;
  std::uint32_t contents_ = 0;
  std::uint64_t compared_ = 0, refused_ = 0;
};

}  // namespace csdsim::test
