// A KV mapping policy of your own: where pages go, and when they are written. docs/mapping_policies.md explains it.
#include "ftl/plugin/mapping_plugin.h"

using namespace csdsim;

namespace {

/// Page i of a head stands on channel layer + head + i, so that layers start on different channels as well as heads.
/// Token groups wait in DRAM until `batch` of them are full: fewer and larger flushes, for more group buffer.
class Diagonal final : public ftl::KvPlanePolicy {
 public:
  explicit Diagonal(const ftl::PolicyContext& context) : geometry_(context.geometry) {
    ftl::SettingsReader settings(name(), context);
    batch_ = settings.value("batch", std::uint32_t{1}, {1, 64});
    settings.finish();
  }

  std::string_view name() const override { return "diagonal"; }

  PlaneId plane(const ftl::KvPageId& page, const ftl::KvSequenceInfo& sequence) override {
    const ftl::KvLayout& layout = sequence.layout;
    std::uint64_t i = page.group;
    if (page.kind == ftl::PageKind::embedding) i += layout.embedding_position(layout.window(page.window));
    if (page.kind == ftl::PageKind::token_v) i += geometry_.planes() / 2;
    i += page.key.sequence.value + page.key.layer.value + page.key.head.value;
    const auto channel = static_cast<std::uint32_t>(i % geometry_.channels);
    const auto row = static_cast<std::uint32_t>(i / geometry_.channels % geometry_.planes_per_channel());
    return geometry_.plane(ChannelId{channel}, row % geometry_.dies_per_channel, row / geometry_.dies_per_channel);
  }

  std::uint32_t groups_to_write(const ftl::KvSequenceInfo& sequence, std::uint32_t tokens,
                                std::uint32_t written_groups) const override {
    const std::uint32_t waiting = tokens / sequence.layout.group_tokens - written_groups;
    return waiting - waiting % batch_;
  }

 private:
  FlashGeometry geometry_;
  std::uint32_t batch_ = 1;
};

}  // namespace

CSDSIM_MAPPING_POLICY(Diagonal, "diagonal",
                      "Layers and heads start on different channels, groups are written in batches.")
