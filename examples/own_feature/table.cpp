// A user's offload system whose plan depends on data, in a shared library: everything is on the GPU but a table in host
// memory, of which each decode step fetches the rows that its tokens hit. Which ones is known when the copy starts.
//
// The feature says how large the copy is, counts what it moved, and reports it as a metric; csdsim lists, documents and
// sweeps the metric like its own.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "host_runtime/core/systems/gpu_only/gpu_only.h"
#include "scenario/plugin.h"

namespace table {

using namespace csdsim;

constexpr std::uint32_t kRows = 4096;
constexpr Bytes kRow = Bytes::kib(64);

/// Each row of the table is hit with a probability, by every token anew.
class HitRows final : public host::RunFeature {
 public:
  explicit HitRows(double hits) : hits_(hits) {}

  void begin(const host::ModelledSources& sources) override { seed_ = sources.seed; }
  std::optional<host::Work> resolve(const host::Operation& op) override {
    if (!is_fetch(op.kind, op.resource)) return std::nullopt;
    std::uint64_t rows = 0;
    for (std::uint32_t row = 0; row < kRows; ++row)
      if (static_cast<double>(counter_random(counter_random(seed_, op.tag.step), row) >> 11) * 0x1p-53 < hits_) ++rows;
    return host::LinkWork{kRow * rows, host::LinkPayload::weights};
  }
  void observe(const host::OperationRecord& record, bool) override {
    if (is_fetch(record.kind, record.resource)) fetched_ += record.moved;
  }
  void count(std::vector<double>& totals) const override { totals.push_back(static_cast<double>(fetched_.value)); }
  std::vector<host::FeatureMetric> metrics() const override {
    return {{.info = {.name = "table_bytes_per_step",
                      .unit = "B",
                      .meaning = "Rows of the table that a decode step fetches."},
             .value = [](const host::FeatureCounts& c) -> std::optional<double> {
               if (c.decode_steps == 0) return std::nullopt;
               return c.decode[0] / c.decode_steps;
             }}};
  }

 private:
  static bool is_fetch(host::OpKind kind, host::Resource resource) {
    return kind == host::OpKind::transfer && resource.kind == host::ResourceKind::host_to_gpu;
  }

  double hits_;
  std::uint64_t seed_ = 0;
  Bytes fetched_;
};

/// The operations of another planner; a decode step begins with the rows that the tokens of the step before hit.
class TablePlanner final : public host::Planner {
 public:
  explicit TablePlanner(std::unique_ptr<host::Planner> planner) : planner_(std::move(planner)) {}

  std::vector<host::PlacedTensor> resident() const override { return planner_->resident(); }

  bool next_step(host::OperationSink& sink) override {
    if (!planner_->next_step(inner_)) return false;
    std::optional<host::OperationId> rows;
    for (host::Operation& op : inner_.take()) {
      if (op.tag.phase == host::Phase::decode && !rows)
        rows = sink.add(host::OpKind::transfer, {host::ResourceKind::host_to_gpu, 0}, op.tag,
                        host::LinkWork{{}, host::LinkPayload::weights}, {outer_.back()});
      for (host::OperationId& dep : op.deps) dep = outer_[dep.value];
      if (rows && op.kind == host::OpKind::embed) op.deps.push_back(*rows);
      outer_.push_back(
          sink.add(op.kind, op.resource, op.tag, std::move(op.work), std::move(op.deps), std::move(op.tensors)));
    }
    return true;
  }

 private:
  std::unique_ptr<host::Planner> planner_;
  host::OperationSink inner_;
  std::vector<host::OperationId> outer_;  ///< by the other planner's number
};

class Table final : public host::CopyableSystem<Table> {
 public:
  static constexpr std::string_view kKind = "table";
  static constexpr std::string_view kDoc = "Everything on the GPU, but for a table of which each step fetches rows.";

  void describe(ParamVisitor& v) override {
    v.param("hits", hits_, {Ratio::of(1, 1024), Ratio{1, 1}}, "Share of the rows that a decode step fetches.",
            assumed("a step needs some of them"));
  }
  void check(config::Problems& problems, const host::SystemContext& context) const override {
    problems.require(context.gpus <= 1, {"platform.gpu.count", "system.kind"},
                     "platform.gpu.count: table sends its rows to one GPU: use 1");
  }
  host::SystemTraits traits() const override { return {.mini_batches = 1}; }
  host::SystemNeeds needs(const host::PlannerInputs& run) const override {
    host::SystemNeeds needs = host::GpuOnly().needs(run);
    needs.residents.push_back({host::Place::host(), "the table", kRow * kRows});
    return needs;
  }
  std::unique_ptr<host::Planner> plan(const host::PlannerInputs& inputs) const override {
    return std::make_unique<TablePlanner>(host::GpuOnly().plan(inputs));
  }
  host::RunFeatures features(const host::PlannerInputs&) const override {
    host::RunFeatures features;
    features.add(std::make_unique<HitRows>(hits_.value()));
    return features;
  }

 private:
  Ratio hits_{1, 4};
};

}  // namespace table

CSDSIM_PLUGIN(registries.systems.add<table::Table>())
