// A flash that has room everywhere, and what it was asked for.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "ftl/kv/kv_policy.h"
#include "ftl/policies/registry.h"

namespace csdsim::ftl::test {

class OpenFlash final : public PageAllocator {
 public:
  explicit OpenFlash(const FlashGeometry& g) : reads(g.channels), valid(g.channels), geometry_(g), next_(g.planes()) {}

  const FlashGeometry& geometry() const override { return geometry_; }
  PhysicalPageAddress take(PlaneId wanted, AppendPoint point) override {
    points.push_back(point);
    return {wanted.value * geometry_.pages_per_plane() + next_[wanted.value]++ % geometry_.pages_per_plane()};
  }
  void close(AppendPoint point) override { closed.push_back(point); }
  std::uint64_t free_pages(PlaneId) const override { return geometry_.pages_per_plane(); }
  double read_load(ChannelId channel) const override { return reads[channel.value]; }
  std::uint64_t valid_pages(ChannelId channel) const override { return valid[channel.value]; }

  std::vector<double> reads;         ///< [channel]
  std::vector<std::uint64_t> valid;  ///< [channel]
  std::vector<AppendPoint> points;   ///< append point of every page taken
  std::vector<AppendPoint> closed;

 private:
  FlashGeometry geometry_;
  std::vector<std::uint64_t> next_;
};

inline const PolicyRegistry& builtin() {
  static const PolicyRegistry registry = PolicyRegistry::with_builtin();
  return registry;
}

/// A policy by name, with a sequence shape and a flash to place pages in.
struct Placing {
  Placing(std::string_view policy_name, const FlashGeometry& g, const KvShape& kv_shape,
          const KvLayoutOptions& options = {}, std::map<std::string, std::string> settings = {})
      : geometry(g),
        shape(kv_shape),
        policy(builtin().make(policy_name, {g, std::move(settings)})),
        layout(policy->layout(shape, g.page_size, options)),
        flash(g) {}

  KvSequenceInfo info(std::uint32_t sequence = 0) const { return {SequenceId{sequence}, shape, layout}; }
  PlaneId plane(const KvPageId& page) {
    return geometry.plane_of(policy->place(page, info(page.key.sequence.value), flash));
  }
  std::uint32_t channel(const KvPageId& page) { return geometry.channel_of(plane(page)).value; }

  FlashGeometry geometry;
  KvShape shape;
  std::unique_ptr<KvMappingPolicy> policy;
  KvLayout layout;
  OpenFlash flash;
};

inline HeadKey key_of(std::uint32_t sequence, std::uint32_t layer, std::uint32_t head) {
  return {SequenceId{sequence}, LayerId{layer}, KvHead{head}};
}

template <class T>
T imbalance(const std::vector<T>& load) {
  const auto [least, most] = std::ranges::minmax(load);
  return most - least;
}

}  // namespace csdsim::ftl::test
