#include "ftl/plugin/mapping_config.h"

#include <type_traits>

#include "base/error.h"
#include "ftl/plugin/load_plugin.h"

namespace csdsim {

ftl::EmbeddingGroup Codec<ftl::EmbeddingGroup>::parse(std::string_view text) {
  if (text == "auto") return {};
  if (text == "adaptive") return {.adaptive = true};
  constexpr std::uint32_t kMost = ftl::EmbeddingGroup::kMost;
  return {.components = detail::parse_in_range<std::uint32_t>(text, Range<std::uint32_t>{1, kMost})};
}

std::string Codec<ftl::EmbeddingGroup>::format(const ftl::EmbeddingGroup& group) {
  if (group.adaptive) return "adaptive";
  return group.components == 0 ? "auto" : std::to_string(group.components);
}

}  // namespace csdsim

namespace csdsim::ftl {

const KvMapping* kv_mapping(const MappingConfig& mapping) {
  return std::visit(
      [](const auto& m) -> const KvMapping* {
        if constexpr (std::is_base_of_v<KvMapping, std::decay_t<decltype(m)>>) return &m;
        return nullptr;
      },
      mapping);
}

std::unique_ptr<KvMappingPolicy> make_policy(const MappingConfig& mapping, const FlashGeometry& geometry) {
  if (std::holds_alternative<PageMapping>(mapping)) return nullptr;
  auto registry = PolicyRegistry::with_builtin();
  PolicyContext context{geometry, {}};
  std::string policy(std::visit([](const auto& m) { return m.kKind; }, mapping));
  if (const auto* balanced = std::get_if<ChannelBalancedMapping>(&mapping)) {
    context.settings["slack"] = format_value(balanced->slack);
  } else if (const auto* plugin = std::get_if<PluginMapping>(&mapping)) {
    policy = load_mapping_plugin(plugin->library.value().path, registry);
    context.settings = plugin->settings;
  }
  return registry.make(policy, context);
}

void describe(ParamVisitor& v, KvMapping& c) {
  v.param(
      "embedding_group", c.embedding_group, {{1, false}, {EmbeddingGroup::kMost, false}},
      "m, components an embedding page: a power of two that divides the head dimension; adaptive halves it as the "
      "context grows.",
      assumed("auto: the largest window of at most max(256, half the longest sequence); InstInfer IV-C uses 2 to 8"));
  v.param("group_codewords", c.group_codewords, {1, 1024},
          "Codewords of a group of tokens, the unit in which K and V are selected and read: n follows from it. Without "
          "`flash.codewords` a group is a page.",
          assumed("one: the least that can be corrected"));
  v.param("tail", c.tail, "Where K of tokens that fill no embedding window yet is kept.",
          assumed("the paper does not discuss it; dram needs up to 419 MB a sequence of OPT-13B"));
  v.param("tail_rewrites", c.tail_rewrites, {1, 4096},
          "How often partial_program writes a window before it is full; as often as it has token groups at most.",
          assumed("one halves what is scored from token pages, for as many programs again"));
}

void describe(ParamVisitor&, PageL2pMapping&) {}

void describe(ParamVisitor& v, ChannelBalancedMapping& c) {
  describe(v, static_cast<KvMapping&>(c));
  v.param("slack", c.slack, {Ratio{0, 1}, Ratio{10, 1}},
          "By how much of the mean a channel may be busier than the mean before pages avoid it.",
          assumed("small enough to matter, large enough to leave striping alone"));
}

void describe(ParamVisitor& v, PluginMapping& c) {
  v.optional("library", c.library, "none", "The shared library.", assumed("there is none to assume"));
  v.entries("settings", c.settings, "What the policy is told: names and values that its documentation gives.",
            assumed("what the policy assumes"));
  describe(v, static_cast<KvMapping&>(c));
}

void describe(ParamVisitor&, PageMapping&) {}

}  // namespace csdsim::ftl
