// The mapping of the KV cache in a scenario: a policy and its settings.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/address.h"
#include "base/param.h"
#include "ftl/kv/kv_policy.h"
#include "ftl/policies/channel_balanced.h"
#include "ftl/policies/head_per_channel.h"
#include "ftl/policies/instinfer.h"
#include "ftl/policies/page_l2p.h"
#include "ftl/policies/paired.h"
#include "ftl/policies/sequence_block.h"
#include "ftl/policies/token_striped.h"

namespace csdsim::ftl {

/// m, components an embedding page: given, chosen by the policy ("auto"), or halved as the context grows ("adaptive").
struct EmbeddingGroup {
  static constexpr std::uint32_t kMost = 1024;
  std::uint32_t components = 0;  ///< 0: not given
  bool adaptive = false;
  bool operator==(const EmbeddingGroup&) const = default;
};

/// What any mapping that keeps a KV cache can be told.
struct KvMapping {
  EmbeddingGroup embedding_group;
  std::uint32_t group_codewords = 1;
  TailPolicy tail = TailPolicy::token_index;
  std::uint32_t tail_rewrites = 1;

  KvLayoutOptions layout_options() const { return {embedding_group.components, embedding_group.adaptive}; }
};

/// A policy that csdsim comes with.
template <class Policy>
struct PolicyMapping : KvMapping {
  static constexpr std::string_view kKind = Policy::kName;
  static constexpr std::string_view kDoc = Policy::kSummary;
};
using InstinferMapping = PolicyMapping<InstinferPolicy>;
using PageL2pMapping = PolicyMapping<PageL2pPolicy>;
struct ChannelBalancedMapping : PolicyMapping<ChannelBalancedPolicy> {
  Ratio slack = ChannelBalancedPolicy::kSlack;
};

/// A policy out of a shared library (ftl/plugin/mapping_plugin.h).
struct PluginMapping : KvMapping {
  static constexpr std::string_view kKind = "plugin";
  static constexpr std::string_view kDoc = "A policy of your own out of a shared library (docs/mapping_policies.md).";
  std::optional<InputPath> library;
  std::map<std::string, std::string> settings;
};

/// A page map only: a drive that keeps no KV cache.
struct PageMapping {
  static constexpr std::string_view kKind = "page";
  static constexpr std::string_view kDoc = "A page map for block commands; the drive keeps no KV cache.";
};

using MappingConfig =
    std::variant<InstinferMapping, PageL2pMapping, PolicyMapping<TokenStripedPolicy>,
                 PolicyMapping<HeadPerChannelPolicy>, ChannelBalancedMapping, PolicyMapping<SequenceBlockPolicy>,
                 PolicyMapping<PairedPolicy>, PluginMapping, PageMapping>;

/// Null where the drive keeps no KV cache.
const KvMapping* kv_mapping(const MappingConfig& mapping);

/// The policy, for a drive of this geometry; null where the drive keeps no KV cache. Throws UserError for settings that
/// it does not take and for a library that cannot be used. Precondition: the path of a library is resolved.
std::unique_ptr<KvMappingPolicy> make_policy(const MappingConfig& mapping, const FlashGeometry& geometry);

void describe(ParamVisitor& v, KvMapping& c);
void describe(ParamVisitor& v, PageL2pMapping& c);
void describe(ParamVisitor& v, ChannelBalancedMapping& c);
void describe(ParamVisitor& v, PluginMapping& c);
void describe(ParamVisitor& v, PageMapping& c);

}  // namespace csdsim::ftl

namespace csdsim {

template <>
struct Codec<ftl::EmbeddingGroup> {
  static std::string type() { return "count, auto or adaptive"; }
  static ftl::EmbeddingGroup parse(std::string_view text);
  static std::string format(const ftl::EmbeddingGroup& group);
  static Spelling spelling(const ftl::EmbeddingGroup& group) {
    return group.components > 0 ? Spelling::number : Spelling::text;
  }
};

template <>
struct EnumValues<ftl::TailPolicy> {
  static constexpr EnumValue<ftl::TailPolicy> values[] = {
      {ftl::TailPolicy::token_index, "token_index",
       "Tokens short of an embedding window are scored from token pages; a full window is read back and transposed."},
      {ftl::TailPolicy::dram, "dram", "The component-major tail stays in controller DRAM until its window is full."},
      {ftl::TailPolicy::partial_program, "partial_program",
       "As token_index, but a window is also programmed before it is full, padded, and again as it fills."}};
};

}  // namespace csdsim
