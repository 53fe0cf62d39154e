#include "experiment/mapping_policies/policy_scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "experiment/assemble.h"
#include "experiment/evaluation/recorded_selection.h"
#include "experiment/generation/modelled_sources.h"
#include "experiment/mapping_policies/policy_tables.h"
#include "experiment/result.h"
#include "ftl/policies/registry.h"
#include "report/csv.h"
#include "report/run_trace.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

struct Variant {
  PolicyVariant policy;
  std::string tail;
  std::string embedding_group;
};

Variant variant_of(const ftl::MappingConfig& mapping, const FlashGeometry& geometry) {
  const ftl::KvMapping& kv = *ftl::kv_mapping(mapping);
  Variant v;
  v.policy.policy = std::string(ftl::make_policy(mapping, geometry)->name());
  v.policy.make = [mapping](const FlashGeometry& g) { return ftl::make_policy(mapping, g); };
  v.policy.kv.tail = kv.tail;
  v.policy.kv.tail_rewrites = kv.tail_rewrites;
  v.policy.kv.layout = kv.layout_options();
  v.tail = std::string(name_of(kv.tail));
  v.embedding_group = Codec<ftl::EmbeddingGroup>::format(kv.embedding_group);
  return v;
}

/// All built-in policies, instinfer first. The scenario's mapping replaces the policy of the same name or is appended.
std::vector<Variant> policies(const ftl::MappingConfig& own, const FlashGeometry& geometry) {
  std::vector<Variant> all;
  const ftl::PolicyRegistry registry = ftl::PolicyRegistry::with_builtin();
  for (const ftl::PolicyEntry& entry : registry.entries()) {
    Variant v;
    v.policy.policy = entry.name;
    v.policy.make = [make = entry.make](const FlashGeometry& g) { return make({g, {}}); };
    v.tail = std::string(name_of(ftl::TailPolicy::token_index));
    v.embedding_group = "auto";
    all.push_back(std::move(v));
  }
  Variant mine = variant_of(own, geometry);
  const auto same = std::ranges::find(all, mine.policy.policy, [](const Variant& v) { return v.policy.policy; });
  if (same == all.end()) {
    all.push_back(std::move(mine));
  } else {
    *same = std::move(mine);
  }
  return all;
}

/// The variants of every tail policy with embedding groups of several sizes.
std::vector<Variant> tails(const FlashGeometry& geometry, std::uint32_t head_dim) {
  std::vector<Variant> all;
  for (const auto& tail : EnumValues<ftl::TailPolicy>::values) {
    for (const ftl::EmbeddingGroup group :
         {ftl::EmbeddingGroup{2}, ftl::EmbeddingGroup{4}, ftl::EmbeddingGroup{8}, ftl::EmbeddingGroup{0, true}}) {
      if (group.components > 0 && head_dim % group.components != 0) continue;
      ftl::InstinferMapping mapping;
      mapping.tail = tail.value;
      mapping.tail_rewrites = tail.value == ftl::TailPolicy::partial_program ? 3 : 1;
      mapping.embedding_group = group;
      all.push_back(variant_of(mapping, geometry));
    }
  }
  return all;
}

}  // namespace

const PolicyWorkload& policy_workload_of(const scenario::Scenario& s) {
  const auto* const workload = dynamic_cast<const PolicyWorkload*>(&*s.workload);
  if (workload == nullptr)
    throw UserError(
        fmt::format("workload.kind is {}; policies are measured on {}", s.workload.kind(), PolicyWorkload::kKind));
  return *workload;
}

PolicyStudyConfig policy_study_config(const scenario::Scenario& s) {
  const PolicyWorkload& work = policy_workload_of(s);
  const csd_model::DriveConfig drive = drive_config(s);
  PolicyStudyConfig config;
  config.geometry = drive.geometry;
  config.flash = drive.flash;
  config.blocks = drive.blocks;
  config.dram = drive.dram;
  config.layers = work.layers;
  config.kv_heads = work.kv_heads;
  config.head_dim = work.head_dim;
  config.sequences = work.sequences;
  config.live = work.live;
  config.least_tokens = work.least_tokens;
  config.most_tokens = work.most_tokens;
  config.prompt_share = work.prompt_fraction.value();
  config.attend_every = work.attend_every;
  config.sparf.ratio = work.ratio;
  config.seed = s.seed;
  return config;
}

std::unique_ptr<engine::SelectionSource> policy_selection(const scenario::Scenario& s) {
  if (const auto* recorded = std::get_if<scenario::RecordedSelectionConfig>(&s.simulation.selection))
    return std::make_unique<engine::RecordedSelection>(read_selection(recorded->file.path));
  const auto& clustered = std::get<scenario::ClusteredSelectionConfig>(s.simulation.selection);
  return clustered_selection(clustered, s.seed);
}

std::string policy_selection_text(const scenario::Scenario& s) {
  if (const auto* recorded = std::get_if<scenario::RecordedSelectionConfig>(&s.simulation.selection))
    return fmt::format("recorded on a trained checkpoint, stretched: {}", recorded->file.given);
  const auto& clustered = std::get<scenario::ClusteredSelectionConfig>(s.simulation.selection);
  if (clustered.selected_per_page)
    return fmt::format("clustered: {:.4g} selected tokens in each token page that holds any",
                       clustered.selected_per_page->value());
  return fmt::format("clustered: a share of {:.3f} of the token pages, for any page size",
                     clustered.token_page_fraction.value());
}

namespace {

std::vector<Metric<std::vector<PolicyRow>>> policy_metrics() {
  using Rows = std::vector<PolicyRow>;
  return {
      {{"policies", "1", "Policies that are compared."}, [](const Rows& rows) { return double(rows.size()); }, true},
      {{"appended_tokens", "tokens", "Tokens that the first policy has stored."},
       [](const Rows& rows) { return double(rows.front().figures.appended_tokens); },
       true},
      {{"attends", "1", "Attend commands that the first policy has served."},
       [](const Rows& rows) { return double(rows.front().figures.attends); },
       true}};
}

/// The policy whose sparse attends are fastest, beside the first two.
std::string meaning_of(const std::vector<PolicyRow>& rows, const scenario::Scenario& s) {
  if (std::ranges::all_of(rows, [](const PolicyRow& row) { return row.figures.attends == 0; }))
    return "No attend was measured: no sequence grows to workload.attend_every tokens.";
  const auto text = [](const PolicyRow& row) {
    return row.figures.attends == 0 ? "no attend"
                                    : fmt::format("{:.1f} us", row.figures.sparse_latency.seconds() * 1e6);
  };
  const auto best = std::ranges::min_element(
      rows, {}, [](const PolicyRow& r) { return std::pair(r.figures.attends == 0, r.figures.sparse_latency.ps); });
  return fmt::format("Selections: {}. {} attends sparsely in {}, {} in {}, {} in {}.", policy_selection_text(s),
                     best->policy, text(*best), rows[0].policy, text(rows[0]), rows[1].policy, text(rows[1]));
}

}  // namespace

std::vector<MetricInfo> PolicyWorkload::metrics(const scenario::Registries&) const {
  return joined(infos_of(policy_metrics()), simulation_metrics());
}

scenario::RunResult PolicyWorkload::run(const scenario::Scenario& s, const scenario::RunOptions& options) const {
  if (options.waveforms) throw UserError("--vcd: ftl_policies runs have no drive whose waveforms could be written");
  const WallClock clock;
  const PolicyStudyConfig config = policy_study_config(s);
  const auto selection = policy_selection(s);
  const std::vector<Variant> main = policies(s.platform.device.ftl.mapping, config.geometry);
  const std::vector<Variant> tail = tails(config.geometry, config.head_dim);
  std::optional<report::RunTrace> trace;
  if (options.trace) trace.emplace(*options.trace, options.trace_limit);
  std::uint64_t page_ops = 0;
  std::uint64_t done = 0;
  SimTime simulated;
  const auto study = [&](const std::vector<Variant>& variants) {
    std::vector<PolicyRow> rows;
    for (const Variant& v : variants) {
      if (options.progress) options.progress("policies", done++, main.size() + tail.size());
      nfc::FlashObservers observers;
      if (trace)
        observers =
            trace->flash(fmt::format("{}, tail {}, embedding group {}", v.policy.policy, v.tail, v.embedding_group),
                         config.geometry);
      PolicyFigures figures = study_policy(config, v.policy, *selection, observers);
      page_ops += figures.page_ops;
      simulated += figures.simulated;
      rows.push_back({v.policy.policy, v.tail, v.embedding_group, std::move(figures)});
    }
    return rows;
  };
  const std::vector<PolicyRow> rows = study(main);
  const std::vector<PolicyRow> tail_rows = study(tail);
  if (trace) trace->close(options.notice);

  scenario::RunResult result;
  result.document = result_frame(s);
  ordered_json& metrics = result.document["metrics"];
  add_metrics(metrics, policy_metrics(), rows);
  add_simulated(metrics, simulated.seconds(), page_ops);
  ordered_json tables;
  tables["reads"] = read_table(rows);
  tables["writes"] = write_table(rows);
  tables["tails"] = tail_table(tail_rows);
  result.document["tables"] = tables;
  result.document["stats"] = {{"origin", "modelled; attends run on otherwise idle flash; pages per KV head"},
                              {"selection", policy_selection_text(s)}};
  result.document["wall"] = wall_figures(clock, page_ops);
  for (const auto& [name, table] : tables.items()) result.files.push_back({name + ".csv", report::csv_rows(table)});
  result.document["tables"] = std::move(tables);
  result.files.push_back({"policies.html", report::chart_page("Mapping policies", policy_charts(rows))});
  result.meaning = meaning_of(rows, s);
  return result;
}

}  // namespace csdsim::experiment
