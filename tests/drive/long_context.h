// Long contexts in a drive that carries no data: how long a command over them takes.
#pragma once

#include <algorithm>
#include <numeric>

#include "tests/drive/drive_host.h"

namespace csdsim::test {

/// One sequence of one layer, d = 128, whose heads hold `tokens` tokens in full pages.
class LongContext : public DriveHost {
 public:
  static constexpr std::uint16_t kDim = 128;

  LongContext(csd_model::DriveConfig config, std::uint16_t heads, std::uint32_t tokens)
      : DriveHost(in_timing(config)), heads_(heads), tokens_(tokens) {
    const auto flags = nvme::create_flag::token_major;
    if (!run(create_entry(1, 1, heads, kDim, flags)).ok()) throw std::runtime_error("create");
    drive().materialise(SequenceId{1}, LayerId{0}, {KvHead{0}, heads}, tokens);
  }

  std::uint64_t key_bytes() const { return std::uint64_t{heads_} * tokens_ * kDim * sizeof(Half); }

  /// Time of one command that scores all tokens.
  SimTime score(ScorePrecision precision, std::uint8_t group = 1, ScoreAggregate aggregate = ScoreAggregate::sum_raw) {
    const std::uint32_t lists = aggregate == ScoreAggregate::per_head ? heads_ : 1;
    const nvme::KvScore c{.layer = LayerId{0},
                          .n = 1,
                          .group = group,
                          .head_dim = kDim,
                          .total_heads = heads_,
                          .total_scores = lists * tokens_,
                          .precision = precision,
                          .aggregate = aggregate};
    const nvme::Segment b = buffer(nvme::score_layout(c).size);
    put(b.address, std::vector{nvme::AttendDescriptor{.sequence = 1, .token = tokens_ - 1, .head_count = heads_}});
    const SimTime start = sim_time_now();
    const SentPtr sent = send(nvme::encode(kNamespace, c), b);
    if (!run(sent).ok()) throw std::runtime_error("score");
    return sent->at - start;
  }

  /// Time of commands, one per KV head, all submitted at once, that fetch the first `rows` tokens of every page.
  SimTime fetch(std::uint32_t rows) {
    const std::uint32_t per_page = static_cast<std::uint32_t>(drive().config().geometry.page_size.value) / (2 * kDim);
    std::vector<std::uint32_t> wanted;
    for (std::uint32_t t = 0; t < tokens_; ++t)
      if (t % per_page < rows) wanted.push_back(t);
    const SimTime start = sim_time_now();
    std::vector<SentPtr> sent;
    for (std::uint16_t h = 0; h < heads_; ++h) {
      const nvme::KvFetch c{LayerId{0}, kDim, static_cast<std::uint32_t>(wanted.size()), 1};
      const nvme::Segment b = buffer(nvme::fetch_layout(c).size);
      put(b.address, std::vector{nvme::AttendDescriptor{.sequence = 1, .first_head = h, .head_count = 1}});
      put(b.address + nvme::fetch_layout(c).tokens, wanted);
      sent.push_back(send(nvme::encode(kNamespace, c), b, static_cast<std::uint16_t>(1 + h % 4)));
    }
    SimTime end;
    for (const SentPtr& s : sent) {
      if (!run(s).ok()) throw std::runtime_error("fetch");
      end = std::max(end, s->at);
    }
    return end - start;
  }

 private:
  static csd_model::DriveConfig in_timing(csd_model::DriveConfig config) {
    config.data = ftl::DataMode::timing;
    config.nvme.controller.mdts = Bytes::mib(16);
    return config;
  }

  std::uint16_t heads_;
  std::uint32_t tokens_;
};

/// 8 channels of 1.4 GB/s with 4 KiB pages, as InstInfer has them, and a unit of 128 products per precision.
inline csd_model::DriveConfig scoring_drive() {
  csd_model::DriveConfig drive;
  drive.geometry = {.channels = 8,
                    .dies_per_channel = 8,
                    .planes_per_die = 4,
                    .blocks_per_plane = 32,
                    .pages_per_block = 128,
                    .page_size = Bytes::kib(4)};
  drive.engine.scoring = {.fp16_lanes = 128, .int8_lanes = 128, .int4_lanes = 128};
  return drive;
}

}  // namespace csdsim::test
