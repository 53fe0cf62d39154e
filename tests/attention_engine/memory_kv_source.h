// Keys and values of a few heads in memory, laid out in pages as a flash translation layer would.
#pragma once

#include <cmath>
#include <map>
#include <random>
#include <vector>

#include "attention_engine/core/kv_source.h"

namespace csdsim::engine::test {

struct CacheShape {
  std::uint32_t tokens = 1;
  std::uint32_t head_dim = 64;
  std::uint32_t page_size = 4096;     ///< P
  std::uint32_t embedding_group = 2;  ///< m
  TailScoring tail = TailScoring::token_pages;
  RowQuantisation format = {};  ///< format of rows; data are fp16
  bool in_flash = true;         ///< false: every page is still readable in DRAM

  std::uint32_t n() const { return page_size / (head_dim * 2); }
  std::uint32_t window() const { return page_size / (embedding_group * 2); }
};

class MemoryKvSource : public KvSource {
 public:
  /// Normally distributed keys and values; the same seed and S, d give the same data whatever the layout.
  void add(HeadKey key, const CacheShape& shape, unsigned seed) {
    Head& head = heads_[key];
    head.shape = shape;
    head.index = static_cast<std::uint32_t>(heads_.size());
    std::mt19937 rng(seed);
    std::normal_distribution<float> normal;
    const std::size_t size = std::size_t{shape.tokens} * shape.head_dim;
    head.k.resize(size);
    head.v.resize(size);
    for (Half& h : head.k) h = float_to_half(normal(rng));
    for (Half& h : head.v) h = float_to_half(normal(rng));
    lay_out(head);
  }

  std::vector<Half>& keys(HeadKey key) { return heads_.at(key).k; }
  std::vector<Half>& values(HeadKey key) { return heads_.at(key).v; }
  /// Call this after the data were changed.
  void refresh(HeadKey key) { lay_out(heads_.at(key)); }
  /// Page reads planned so far, by token K, token V, embedding.
  std::uint64_t planned_k = 0, planned_v = 0, planned_embedding = 0;

  KvHeadView view(HeadKey key) const override {
    const CacheShape& s = heads_.at(key).shape;
    return {.tokens = s.tokens,
            .head_dim = s.head_dim,
            .tokens_per_page = s.n(),
            .embedding_group = s.embedding_group,
            .window = s.window(),
            .flushed_tokens = s.tokens / s.n() * s.n(),
            .transposed_tokens = s.tokens / s.window() * s.window(),
            .tail = s.tail,
            .format = s.format};
  }
  void plan_token_groups(HeadKey key, KvRows which, std::span<const std::uint32_t> groups,
                         std::span<const std::uint32_t>, ReadPlan& out) override {
    const Head& head = heads_.at(key);
    for (const KvKind kind : {KvKind::key, KvKind::value}) {
      if (which == (kind == KvKind::key ? KvRows::values : KvRows::keys)) continue;
      if (which == KvRows::both && kind == KvKind::value) out.values_from = out.ops.size();
      for (const std::uint32_t g : groups) {
        if (g >= view(key).flushed_groups()) throw std::logic_error("group is not flushed");
        if (!head.shape.in_flash) continue;
        ++(kind == KvKind::key ? planned_k : planned_v);
        out.ops.push_back(op(head, kind == KvKind::key ? 0 : 1, g));
        ++out.lookups;
      }
    }
  }
  void plan_embedding_groups(HeadKey key, std::span<const std::uint32_t> groups, std::span<const std::uint32_t>,
                             ReadPlan& out) override {
    const Head& head = heads_.at(key);
    for (std::uint32_t w = 0; w * view(key).window < view(key).transposed_tokens; ++w) {
      for (const std::uint32_t g : groups) {
        if (g >= head.shape.head_dim / head.shape.embedding_group) throw std::logic_error("no such embedding group");
        if (!head.shape.in_flash) continue;
        ++planned_embedding;
        out.ops.push_back(op(head, 2 + w, g));
        ++out.lookups;
      }
    }
  }
  const Half* token_rows(HeadKey key, KvKind kind, std::uint32_t group) const override {
    const Head& head = heads_.at(key);
    const std::size_t offset = std::size_t{group} * head.shape.n() * head.shape.head_dim;
    return (kind == KvKind::key ? head.k : head.v).data() + offset;
  }
  const Half* embedding_page(HeadKey key, std::uint32_t group, std::uint32_t window) const override {
    const Head& head = heads_.at(key);
    if (window * view(key).window >= view(key).transposed_tokens) throw std::logic_error("window is not complete");
    const std::size_t page = head.shape.page_size / 2;
    return head.transposed.data() + (window * (head.shape.head_dim / head.shape.embedding_group) + group) * page;
  }
  std::span<const float> value_mean(HeadKey key) const override { return heads_.at(key).mean; }

 private:
  struct Head {
    CacheShape shape;
    std::uint32_t index = 0;
    std::vector<Half> k, v;        ///< [S][d]
    std::vector<Half> transposed;  ///< [window][d][T]: embedding pages one after another
    std::vector<float> mean;
  };

  static PageOp op(const Head& head, std::uint64_t part, std::uint64_t group) {
    return {.ppa = {(head.index * 4096 + part) * 4096 + group},
            .kind = PageOpKind::read,
            .op_class = OpClass::attend,
            .channel_bytes = head.shape.page_size};
  }
  static void lay_out(Head& head) {
    const std::size_t d = head.shape.head_dim, window = head.shape.window();
    const std::size_t windows = head.shape.tokens / window;
    head.transposed.resize(windows * window * d);
    for (std::size_t w = 0; w < windows; ++w) {
      for (std::size_t i = 0; i < d; ++i) {
        for (std::size_t t = 0; t < window; ++t) {
          head.transposed[(w * d + i) * window + t] = head.k[(w * window + t) * d + i];
        }
      }
    }
    head.mean.assign(d, 0.0f);
    for (std::size_t j = 0; j < head.shape.tokens; ++j) {
      for (std::size_t i = 0; i < d; ++i) {
        head.mean[i] += (half_to_float(head.v[j * d + i]) - head.mean[i]) / static_cast<float>(j + 1);
      }
    }
  }

  std::map<HeadKey, Head> heads_;
};

inline constexpr HeadKey kHead{SequenceId{1}, LayerId{2}, KvHead{3}};

/// Query heads [group][d] that fp16 holds exactly.
inline std::vector<float> random_query(std::size_t size, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0.0f, 1.5f);
  std::vector<float> q(size);
  for (float& x : q) x = half_to_float(float_to_half(normal(rng)));
  return q;
}

}  // namespace csdsim::engine::test
