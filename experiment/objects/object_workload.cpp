#include "experiment/objects/object_workload.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "experiment/assemble.h"
#include "experiment/block_io/block_result.h"
#include "experiment/block_io/block_workload.h"
#include "experiment/block_io/check_block_workload.h"
#include "experiment/block_io/check_blocks.h"
#include "experiment/objects/object_result.h"
#include "experiment/objects/object_run.h"
#include "experiment/objects/wear_run.h"

namespace csdsim::experiment {

using scenario::Checker;

void describe(ParamVisitor& v, WritersConfig& c) {
  constexpr Range<std::size_t> kOptional{0, WritersConfig::kMost};
  v.list("object_sizes", c.object_sizes, {1, WritersConfig::kMost},
         "Bytes of an object of each writer, whole logical blocks; the number of writers follows from it.",
         assumed("one writer of 4 MiB objects"));
  v.list("footprints", c.footprints, kOptional, "Bytes of the namespace that each writer has; empty: parts.",
         assumed("shares are the same for any drive"));
  v.list("parts", c.parts, kOptional, "Share of the namespace that each writer has; empty: equal parts of 80 %.",
         assumed("as the working set of block_io"));
  v.list("names", c.names, kOptional, "Name of each writer in the results; empty: writer 1 and so on.",
         assumed("numbers"));
  v.list("classes", c.classes, kOptional,
         "Class of each writer's data, from 0 on, which is its placement handle; empty: each has its own.",
         assumed("writers know their own data only"));
  v.list("orders", c.orders, kOptional, "Which object each writer overwrites or deletes next; empty: uniform.",
         assumed("no object is more likely than another"));
  v.list("stores", c.stores, kOptional, "How each writer keeps its objects; empty: slots.",
         assumed("the simplest store"));
  v.list("shares", c.shares, kOptional, "Bytes of new objects of each writer, relative to the others; empty: equal.",
         assumed("writers are equally fast"));
}

void ObjectWorkload::describe(ParamVisitor& v) {
  v.section("writers", writers, "Who writes; lists with an item per writer.");
  v.param("placement", placement_of_writes, "Which placement handle a write carries.",
          assumed("hosts do not say what belongs together"));
  v.param("writes", writes, {Ratio::of(1, 100), Ratio{100'000, 1}},
          "Bytes that all writers write, the first fill included, over the capacity of the namespace.",
          assumed("four capacities: most of it is written to a full drive"));
  v.param("warmup", warmup, {Ratio{0, 1}, Ratio{100'000, 1}},
          "Part of `writes`, in the same unit, that the metrics leave out.", assumed("0: from the empty drive on"));
  v.param("request_size", request_size, {Bytes{512}, Bytes::gib(1)},
          "Largest write command; writers take turns command by command.", assumed("1 MiB, common for object stores"));
  v.param("queue_depth", queue_depth, {1, 1'048'576}, "Requests in flight (simulation.data: timing).",
          assumed("1: requests have one order"));
  v.param("zipf_exponent", zipf_exponent, {Ratio::of(1, 100), Ratio{10, 1}}, "Exponent of the order zipf.",
          assumed("0.99, as in YCSB (Cooper et al., SoCC 2010)"));
  v.param("free_space", free_space, {Ratio{0, 1}, Ratio::of(99, 100)},
          "Share of a footprint without live objects, of files, log and buckets.",
          assumed("file systems and caches stay below full"));
  v.param("segment_size", segment_size, {Bytes{512}, Bytes::gib(64)}, "Bytes of a segment of log and buckets.",
          paper("Mooncake 1054: buckets of 256 MiB"));
  v.param("compaction_threshold", compaction_threshold, {Ratio{0, 1}, Ratio::of(99, 100)},
          "Live share below which a bucket is copied on.", assumed("half"));
  v.param("trims", trims, "Whether deleted files and freed segments are trimmed.",
          assumed("mounted with discard, or trimmed by the store"));
  v.param("samples", samples, {1, 10'000}, "Intervals of the run for which the result states write amplification.",
          assumed("enough for a curve"));
  v.optional("sampling_error", sampling_error, "off", {Ratio::of(1, 10'000), Ratio::of(1, 2)},
             "Ends the run after the interval at which the mean write amplification of all measured ones is known to "
             "this part of itself, with a confidence of 95 % (simulation.data: wear; `samples` of at least 20).",
             assumed("everything is written"));
}

std::uint32_t ObjectWorkload::class_of_writer(std::size_t writer) const {
  return writers.classes.empty() ? static_cast<std::uint32_t>(writer) : writers.classes[writer];
}

ftl::PlacementHandle ObjectWorkload::handle_of_writer(std::size_t writer) const {
  return ftl::PlacementHandle{placement_of_writes == ObjectPlacement::by_class ? class_of_writer(writer) : 0};
}

std::string ObjectWorkload::name_of_writer(std::size_t writer) const {
  return writers.names.empty() ? fmt::format("writer {}", writer + 1) : writers.names[writer];
}

std::vector<WriterConfig> ObjectWorkload::writer_configs(Bytes capacity, Bytes alignment) const {
  std::vector<WriterConfig> configs;
  const std::size_t count = writers.count();
  const std::string_view key = writers.footprints.empty() ? "workload.writers.parts" : "workload.writers.footprints";
  std::uint64_t begin = 0, asked = 0;
  for (std::size_t i = 0; i < count; ++i) {
    WriterConfig config{.object = writers.object_sizes[i],
                        .zipf_exponent = zipf_exponent.value(),
                        .free_space = free_space.value(),
                        .segment = segment_size,
                        .threshold = compaction_threshold.value(),
                        .trims = trims};
    const Ratio part = writers.parts.empty() ? Ratio::of(8, 10 * static_cast<std::int64_t>(count)) : writers.parts[i];
    config.begin = Bytes{begin};
    config.region = writers.footprints.empty() ? Bytes{part.floor_of(capacity.value)} : writers.footprints[i];
    asked += config.region.value;
    // Regions begin at multiples of the alignment. Parts that fill the namespace without that fill it with it, too.
    if (writers.footprints.empty() && asked <= capacity.value)
      config.region = Bytes{std::min(config.region.value, capacity.value - std::min(begin, capacity.value))};
    if (!writers.orders.empty()) config.order = writers.orders[i];
    if (!writers.stores.empty()) config.store = writers.stores[i];
    if (!writers.shares.empty()) config.share = writers.shares[i];
    try {
      store_shape(config);
    } catch (const UserError& error) {
      throw UserError(
          fmt::format("{}: {} of {} {}", key, format_quantity(config.region), name_of_writer(i), error.what()));
    }
    const std::uint64_t end = begin + config.region.value;
    if (end > capacity.value)
      throw UserError(fmt::format("{}: {} of {} end at byte {}, the namespace has {}", key,
                                  format_quantity(config.region), name_of_writer(i), end, capacity.value));
    begin = (end + alignment.value - 1) / alignment.value * alignment.value;
    configs.push_back(config);
  }
  return configs;
}

namespace {

bool check_lists(Checker& c, const WritersConfig& writers) {
  if (writers.count() == 0 && c.readable({"workload.writers.object_sizes"})) {
    c.error_at("workload.writers", "workload.writers: no writer: give object_sizes, one for each of 1 to 64 writers");
    return false;
  }
  bool complete = true;
  const auto same_length = [&](std::string_view name, std::size_t length) {
    const std::string path = fmt::format("workload.writers.{}", name);
    const bool fits = length == 0 || length == writers.count();
    c.require(fits, {path, "workload.writers.object_sizes"},
              fmt::format("{}: {} items for {} object_sizes", path, length, writers.count()));
    complete &= fits;
  };
  same_length("footprints", writers.footprints.size());
  same_length("parts", writers.parts.size());
  same_length("names", writers.names.size());
  same_length("classes", writers.classes.size());
  same_length("orders", writers.orders.size());
  same_length("stores", writers.stores.size());
  same_length("shares", writers.shares.size());
  const bool both = !writers.footprints.empty() && !writers.parts.empty();
  c.require(!both, {"workload.writers.footprints", "workload.writers.parts"},
            "workload.writers.footprints: parts says the same; leave one of the two out");
  const bool idle = std::ranges::count(writers.shares, 0U) > 0;
  c.require(!idle, {"workload.writers.shares"}, "workload.writers.shares: a writer writes nothing");
  return complete && !both && !idle;
}

void check_sizes(Checker& c, const ObjectWorkload& work) {
  const Bytes block = c.scenario().platform.device.nvme.block_size;
  const auto whole = [&](std::string_view path, Bytes size) {
    c.require(size.value > 0 && size.value % block.value == 0, {path, "platform.device.nvme.block_size"},
              fmt::format("{}: {} is not a multiple of the logical block of {}", path, format_quantity(size),
                          format_quantity(block)));
  };
  for (const Bytes size : work.writers.object_sizes) whole("workload.writers.object_sizes", size);
  for (const Bytes size : work.writers.footprints) whole("workload.writers.footprints", size);
  whole("workload.request_size", work.request_size);
}

/// What a drive without time cannot do.
void check_wear_drive(Checker& c) {
  const csd_model::DeviceConfig& device = c.scenario().platform.device;
  const auto refuse = [&](bool bad, std::string_view path, std::string_view why) {
    c.require(!bad, {path, "simulation.data"}, fmt::format("{}: {}: use simulation.data: timing", path, why));
  };
  refuse(device.ftl.gc.background.has_value(), "platform.device.ftl.gc.background",
         "collection between writes needs time");
  refuse(device.ftl.refresh_age.has_value(), "platform.device.ftl.refresh_age", "the age of data is a time");
  refuse(device.ftl.factory_bad_blocks.numerator > 0, "platform.device.ftl.factory_bad_blocks",
         "a drive of simulation.data: wear has no bad blocks");
  if (device.flash.reliability)
    c.note_at("platform.device.flash.reliability",
              "platform.device.flash.reliability: nothing fails in a run without time; only rated_cycles counts");
}

/// Writes of the timed drive carry the class of their writer as placement identifier.
void check_timed_placement(Checker& c, const ObjectWorkload& work) {
  constexpr std::string_view path = "workload.placement";
  std::vector<std::uint32_t> classes;
  for (std::size_t i = 0; i < work.writers.count(); ++i) classes.push_back(work.class_of_writer(i));
  check_placements(c, classes, path);
  const std::uint32_t groups = c.scenario().platform.device.reclaim_groups();
  c.require(groups == 1, {path, "platform.device.ftl.reclaim_unit_blocks"},
            fmt::format("{}: identifiers would keep all data in the first of {} reclaim groups: give reclaim units "
                        "over all planes (ftl.reclaim_unit_blocks)",
                        path, groups));
}

/// A smaller copy with short requests is no copy (docs/endurance.md).
void note_short_requests(Checker& c, const ObjectWorkload& work) {
  constexpr std::uint64_t kLeastUnits = 4;
  const csd_model::DeviceConfig& device = c.scenario().platform.device;
  const Bytes unit = device.ftl.mapping_unit.value_or(device.flash.geometry.page_size);
  if (c.given("platform.device.ftl.scaled_from_blocks") && work.request_size < unit * kLeastUnits)
    c.note_at(
        "workload.request_size",
        fmt::format("workload.request_size: with requests of {}, fewer than {} mapping units of {}, a smaller copy "
                    "(ftl.scaled_from_blocks) may be more than 3 % off the write amplification of the whole drive",
                    format_quantity(work.request_size), kLeastUnits, format_quantity(unit)));
}

}  // namespace

void ObjectWorkload::check(Checker& c) {
  const scenario::Scenario& s = c.scenario();
  const csd_model::DeviceConfig& device = s.platform.device;
  check_block_drive(c, kKind, {});
  check_sizes(c, *this);
  note_short_requests(c, *this);
  c.require(warmup < writes, {"workload.warmup", "workload.writes"},
            fmt::format("workload.warmup: {} of {} written capacities leave nothing to measure",
                        format_quantity(warmup), format_quantity(writes)));
  const bool by_class = placement_of_writes == ObjectPlacement::by_class;
  const bool wear = s.simulation.data == ftl::DataMode::wear;
  if (wear) {
    check_wear_drive(c);
    c.require(
        !sampling_error || samples >= kLeastWindows, {"workload.sampling_error", "workload.samples"},
        fmt::format("workload.sampling_error: {} samples show no error: use at least {}", samples, kLeastWindows));
    if (c.given("workload.queue_depth")) c.refuse_unused("workload.queue_depth", "simulation.data", "wear has no time");
  } else {
    c.require(!sampling_error, {"workload.sampling_error", "simulation.data"},
              "workload.sampling_error: a run with time is not sampled: use simulation.data: wear");
    check_queue_depth(c, queue_depth, "workload.queue_depth", std::nullopt);
  }
  if (!check_lists(c, writers)) return;
  if (by_class && !wear) check_timed_placement(c, *this);
  for (std::size_t i = 0; by_class && i < writers.count(); ++i)
    c.require(class_of_writer(i) < device.ftl.placement.handles,
              {"workload.writers.classes", "platform.device.ftl.placement.handles", "workload.placement"},
              fmt::format("workload.writers.classes: class {} of {} needs {} placement handles, the drive has {}",
                          class_of_writer(i), name_of_writer(i), class_of_writer(i) + 1, device.ftl.placement.handles));
  if (!c.readable({"workload.writers.footprints", "workload.writers.parts", "workload.writers.object_sizes"})) return;
  Bytes capacity;
  try {
    capacity = exported_capacity(s);
  } catch (const UserError& error) {
    c.require(false, {"platform.device.ftl.reclaim_unit_blocks", "platform.device.flash.blocks_per_plane"},
              fmt::format("platform.device.ftl.{}", error.what()));
    return;
  }
  try {
    writer_configs(capacity, region_alignment(capacity, drive_config(s)));
  } catch (const UserError& error) {
    c.require(false,
              {"workload.writers.footprints", "workload.writers.parts", "workload.free_space", "workload.segment_size"},
              error.what());
  }
}

void ObjectWorkload::prune(nlohmann::ordered_json& config, const scenario::Scenario& s) const {
  prune_attention(config);
  if (s.simulation.data == ftl::DataMode::wear) scenario::erase_path(config, "workload.queue_depth");
  const auto uses = [&](auto... stores) {
    return std::ranges::any_of(writers.stores, [&](ObjectStore store) { return ((store == stores) || ...); });
  };
  if (!uses(ObjectStore::files, ObjectStore::log, ObjectStore::buckets))
    for (const char* const unused : {"free_space", "trims"})
      scenario::erase_path(config, fmt::format("workload.{}", unused));
  if (!uses(ObjectStore::log, ObjectStore::buckets)) scenario::erase_path(config, "workload.segment_size");
  if (!uses(ObjectStore::buckets)) scenario::erase_path(config, "workload.compaction_threshold");
  if (std::ranges::count(writers.orders, ObjectOrder::zipf) == 0)
    scenario::erase_path(config, "workload.zipf_exponent");
}

scenario::RunResult ObjectWorkload::run(const scenario::Scenario& s, const scenario::RunOptions& options) const {
  return run_objects(s, *this, options);
}

std::vector<MetricInfo> ObjectWorkload::metrics(const scenario::Registries&) const {
  std::vector<MetricInfo> all = object_metrics();
  for (const MetricInfo& info : block_metrics())
    if (std::ranges::find(all, info.name, &MetricInfo::name) == all.end()) all.push_back(info);
  return all;
}

}  // namespace csdsim::experiment
