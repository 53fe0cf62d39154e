// A plugin that is as it should be; its name and what it calls itself come from the build.
#include <stdexcept>

#include "host_runtime/core/serving/eviction/list_policy.h"
#include "host_runtime/plugin/eviction_plugin.h"

namespace {

using namespace csdsim;

/// The block that was stored last leaves, after `spared` others.
class Newest final : public host::ListPolicy {
 public:
  explicit Newest(const host::CachePolicyContext& context) {
    SettingsReader settings(PLUGIN_NAME, context);
    spared_ = settings.value("spared", std::uint32_t{0}, {0, 100});
    settings.finish();
    if (spared_ == 13) throw std::runtime_error("13 blocks are unlucky");
  }
  std::string_view name() const override { return PLUGIN_CALLS_ITSELF; }
  void used(host::KvBlockSlot) override {}
  std::optional<host::KvBlockSlot> evict(host::KvBlockId, std::span<const std::uint32_t> holds) override {
    std::uint32_t passed = 0;
    for (host::KvBlockSlot slot = order_.newest(); slot != kNoSlot; slot = links_[slot].older) {
      if (holds[slot] != 0 || passed++ < spared_) continue;
      order_.remove(links_, slot);
      return slot;
    }
    return std::nullopt;
  }

 private:
  std::uint32_t spared_ = 0;
};

}  // namespace

CSDSIM_EVICTION_POLICY(Newest, PLUGIN_NAME, "The block that was stored last leaves.")
