// The experiment objects: writers that store objects on a drive, and what that wears.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/param.h"
#include "experiment/objects/object_writes.h"
#include "ftl/core/block_manager.h"
#include "scenario/experiment.h"

namespace csdsim::experiment {

/// Which placement handle a write carries.
enum class ObjectPlacement : std::uint8_t { none, by_class };

/// Lists with an item for each writer. Where one is empty, all writers have its default.
struct WritersConfig {
  static constexpr std::size_t kMost = 64;
  std::vector<Bytes> object_sizes;
  std::vector<Bytes> footprints;  ///< bytes of the namespace; this or `parts`
  std::vector<Ratio> parts;       ///< the same as shares of the namespace
  std::vector<std::string> names;
  std::vector<std::uint32_t> classes;
  std::vector<ObjectOrder> orders;
  std::vector<ObjectStore> stores;
  std::vector<std::uint32_t> shares;

  std::size_t count() const { return object_sizes.size(); }
};

struct ObjectWorkload final : scenario::CopyableExperiment<ObjectWorkload> {
  static constexpr std::string_view kKind = "objects";
  static constexpr std::string_view kDoc = "Writers that store, overwrite and delete objects: what they wear.";
  WritersConfig writers;
  ObjectPlacement placement_of_writes = ObjectPlacement::none;
  Ratio writes{4, 1};  ///< bytes that all writers write, over the capacity of the namespace
  Ratio warmup{0, 1};  ///< the first of these, which are not measured, over the same capacity
  Bytes request_size = Bytes::mib(1);
  std::uint32_t queue_depth = 1;
  Ratio zipf_exponent = Ratio::of(99, 100);
  Ratio free_space = Ratio::of(1, 10);
  Bytes segment_size = Bytes::mib(256);
  Ratio compaction_threshold = Ratio::of(1, 2);
  bool trims = true;
  std::uint32_t samples = 16;
  std::optional<Ratio> sampling_error;

  void describe(ParamVisitor& v) override;
  void check(scenario::Checker& c) override;
  void prune(nlohmann::ordered_json& config, const scenario::Scenario& scenario) const override;
  bool attends() const override { return false; }
  bool runs_without_time() const override { return true; }
  std::vector<MetricInfo> metrics(const scenario::Registries&) const override;
  scenario::RunResult run(const scenario::Scenario& scenario, const scenario::RunOptions& options) const override;

  std::string name_of_writer(std::size_t writer) const;
  /// The handle of a writer's data.
  ftl::PlacementHandle handle_of_writer(std::size_t writer) const;
  std::uint32_t class_of_writer(std::size_t writer) const;
  /// What each writer does on a namespace of `capacity`. Regions begin at multiples of `alignment`. UserError, with the
  /// key, for writers that it cannot hold.
  std::vector<WriterConfig> writer_configs(Bytes capacity, Bytes alignment) const;
};

void describe(ParamVisitor& v, WritersConfig& c);

}  // namespace csdsim::experiment

namespace csdsim {

template <>
struct EnumValues<experiment::ObjectPlacement> {
  static constexpr EnumValue<experiment::ObjectPlacement> values[] = {
      {experiment::ObjectPlacement::none, "none", "All writes carry the first handle."},
      {experiment::ObjectPlacement::by_class, "by_class", "A write carries the class of its writer as its handle."}};
};
template <>
struct EnumValues<experiment::ObjectOrder> {
  static constexpr EnumValue<experiment::ObjectOrder> values[] = {
      {experiment::ObjectOrder::uniform, "uniform", "Any object, all alike."},
      {experiment::ObjectOrder::in_turn, "in_turn", "The one that was written longest ago (first in, first out)."},
      {experiment::ObjectOrder::zipf, "zipf", "Object k as often as k^-exponent (workload.zipf_exponent)."}};
};
template <>
struct EnumValues<experiment::ObjectStore> {
  static constexpr EnumValue<experiment::ObjectStore> values[] = {
      {experiment::ObjectStore::slots, "slots", "Each object has a place of its own, which is overwritten."},
      {experiment::ObjectStore::files, "files",
       "A new version is written to the place that has been free longest, then the old one is deleted."},
      {experiment::ObjectStore::log, "log",
       "Objects are appended to segments; when none is free, the emptiest one is copied on."},
      {experiment::ObjectStore::buckets, "buckets",
       "The same, but every segment is copied on once less of it is live than workload.compaction_threshold."}};
};

}  // namespace csdsim
