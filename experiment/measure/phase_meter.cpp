#include "experiment/measure/phase_meter.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <vector>

#include "platform/platform.h"

namespace csdsim::experiment {

namespace {

/// The longest busy time of processors and links, which work on one operation at a time.
double longest_s(const BusyTimes& busy, double gpus) {
  using host::ResourceKind;
  double most = 0;
  for (const ResourceKind kind :
       {ResourceKind::gpu, ResourceKind::host, ResourceKind::host_to_gpu, ResourceKind::gpu_to_host})
    most = std::max(most, busy[static_cast<std::size_t>(kind)].seconds() / (kind == ResourceKind::host ? 1 : gpus));
  return most;
}

}  // namespace

void PhaseMeter::begin(const host::SampledGroup& group) {
  group_ = &group;
  groups_.emplace_back().step_layers.resize(group.measured);
  busy_ = {};
  waited_ = {};
  gpu_link_ = {};
  gpu_outside_ = gpu_outside_before_ = {};
  before_ = totals();
  passed_before_ = passed_heads();
  layer_marks_.clear();
  marks_files_ = false;
  between_steps_ = true;
}

/// Before a step begins that had to wait for a request, nothing ran.
void PhaseMeter::begins(SimTime step) {
  const double idle = step.seconds() - before_.seconds;
  if (idle <= 0) return;
  idle_s_ += idle;
  before_.seconds += idle;
}

bool PhaseMeter::observe(const host::OperationRecord& record) {
  if (open_ended_ && between_steps_ && record.kind == host::OpKind::embed) begins(record.start);
  if (record.kind == host::OpKind::embed) between_steps_ = false;
  busy_[static_cast<std::size_t>(record.resource.kind)] += record.end - record.start;
  waited_[static_cast<std::size_t>(record.resource.kind)] += record.waited;
  if (record.kind == host::OpKind::transfer) gpu_link_ += record.moved;
  if (features_ != nullptr)
    for (const auto& feature : *features_) feature->observe(record, !open_ended_ && measured(record.tag));
  if (record.resource.kind == host::ResourceKind::gpu && !record.tag.layer) gpu_outside_ += record.end - record.start;
  if (record.tag.phase == host::Phase::prefill) mark_layer(record);
  if (record.tag.phase == host::Phase::prefill && record.tag.layer)
    groups_.back().prefill_layers[static_cast<std::size_t>(record.resource.kind)] += record.end - record.start;
  if (!open_ended_ && measured(record.tag) && record.tag.layer)
    groups_.back()
        .step_layers[record.tag.step - group_->first_measured()][static_cast<std::size_t>(record.resource.kind)] +=
        record.end - record.start;
  if (record.kind != host::OpKind::sample) return false;
  if (!record.ended_step) return false;
  between_steps_ = true;
  const bool prefill = record.tag.phase == host::Phase::prefill;
  const PhaseTotals now = totals();
  if (open_ended_) {
    PhaseTotals& phase = prefill ? prefill_ : decode_;
    phase = combine(phase, 1, now - before_);
    before_ = now;
    return true;
  }
  if (prefill) end_prefill(now);
  if (measured(record.tag))
    groups_.back().steps.push_back(
        {now - before_, (gpu_outside_ - gpu_outside_before_).seconds(), passed_heads() - passed_before_});
  passed_before_ = passed_heads();
  before_ = now;
  gpu_outside_before_ = gpu_outside_;
  return true;
}

bool PhaseMeter::measured(const host::OpTag& tag) const {
  return tag.phase == host::Phase::decode && tag.step >= group_->first_measured() &&
         tag.step < group_->first_measured() + group_->measured;
}

/// K and V of a layer have arrived where they stay: in files, if any are written.
void PhaseMeter::mark_layer(const host::OperationRecord& record) {
  const bool to_file = record.kind == host::OpKind::write_file;
  if (to_file && !marks_files_) {
    marks_files_ = true;
    layer_marks_.clear();
  }
  if (to_file || (record.kind == host::OpKind::append_kv && !marks_files_))
    layer_marks_[record.tag.layer->value] = totals();
}

double PhaseMeter::prefill_work_s(double gpus) const {
  return longest_s(groups_.front().prefill_layers, gpus) / plan_.groups().front().layers * plan_.model_layers();
}

std::vector<double> PhaseMeter::step_work_s(double gpus) const {
  std::vector<double> work;
  for (const BusyTimes& busy : groups_.back().step_layers) work.push_back(longest_s(busy, gpus));
  return work;
}

PhaseTotals PhaseMeter::decode() const {
  if (open_ended_) return decode_;
  PhaseTotals decode;
  if (plan_.measured_steps().empty()) return decode;
  PhaseNumbers totals{};
  for (std::size_t i = 0; i < totals.size(); ++i)
    totals[i] = plan_.decode_total(costs_of([i](const StepTotals& step) {
      return std::bit_cast<PhaseNumbers>(static_cast<const PhaseWork&>(step.totals))[i];
    }));
  static_cast<PhaseWork&>(decode) = std::bit_cast<PhaseWork>(totals);
  decode.seconds = 0;
  // Only the GPU also works outside the layers.
  decode.of(host::ResourceKind::gpu).busy_s =
      plan_.decode_total(costs_of([](const StepTotals& step) { return step.totals.gpu_busy_s(); }, true));
  for (std::size_t i = 0; i < groups_.front().steps.front().totals.features.size(); ++i)
    decode.features.push_back(
        plan_.decode_total(costs_of([i](const StepTotals& step) { return step.totals.features[i]; })));
  return decode;
}

template <class Read>
std::vector<host::LayeredCost> PhaseMeter::costs_of(Read read, bool of_gpu) const {
  std::vector<host::LayeredCost> costs;
  for (const GroupWork& group : groups_)
    for (const StepTotals& step : group.steps) {
      const double fixed = of_gpu ? step.gpu_outside_layers_s : 0;
      costs.push_back({.layered = read(step) - fixed, .fixed = fixed});
    }
  return costs;
}

double PhaseMeter::feature_error(std::size_t count) const {
  if (open_ended_ || plan_.measured_steps().empty()) return 0;
  return plan_.decode_error(costs_of([&](const StepTotals& step) { return step.totals.features[count]; })).relative;
}

csd_model::PassedHeadsError PhaseMeter::passed_heads() {
  csd_model::PassedHeadsError sum;
  for (std::uint32_t i = 0; i < platform_.drives(); ++i)
    if (const csd_model::PassedHeads* const passed = platform_.drive(i).passed_heads()) {
      // Drives work at the same time: the slowest counts, which is no further off than all of them together.
      sum.variance += passed->error().variance;
      sum.drift += passed->error().drift / platform_.drives();
    }
  return sum;
}

PhaseMeter::HeadsError PhaseMeter::heads_error() const {
  if (open_ended_) return {};
  std::vector<double> variances;
  std::vector<host::LayeredCost> drifts;
  const double layers = plan_.groups().back().layers;
  // The pace shows between the first layer and the last two: these are fewer than the layers of the step.
  const double fewer = layers < plan_.model_layers() && layers > 3 ? layers / (layers - 3) : 1;
  for (const GroupWork& group : groups_)
    for (const StepTotals& step : group.steps) {
      variances.push_back(fewer * step.passed.variance);
      drifts.push_back({.layered = step.passed.drift, .fixed = 0});
    }
  return {.noise_s = 2 * plan_.decode_deviation(variances), .drift_s = std::abs(plan_.decode_total(drifts))};
}

PhaseTotals PhaseMeter::totals() {
  PhaseTotals sum = totals_of(platform_);
  for (std::size_t kind = 0; kind < host::kResourceKinds; ++kind)
    sum.resources[kind] = {busy_[kind].seconds(), waited_[kind].seconds()};
  if (gpu_ != nullptr) sum.of(host::ResourceKind::gpu).busy_s += gpu_->between().seconds();
  sum.gpu_link_bytes = double(gpu_link_.value);
  if (features_ != nullptr) sum.features = features_->counts();
  return sum;
}

/// Further layers cost what a layer does once the pipeline is full: between the first and the last layer whose K and
/// V had arrived when the prefill ended.
void PhaseMeter::end_prefill(const PhaseTotals& now) {
  PhaseTotals& prefill = groups_.back().prefill;
  prefill = now - before_;
  const double missing = double(plan_.model_layers()) - plan_.groups().front().layers;
  if (missing == 0) return;
  const bool steady = layer_marks_.size() >= 2;
  const auto first = layer_marks_.begin();
  const auto last = steady ? std::prev(layer_marks_.end()) : first;
  const PhaseTotals more = steady ? last->second - first->second : prefill;
  const double layers = steady ? double(last->first - first->first) : double(plan_.groups().front().layers);
  prefill = combine(prefill, missing / layers, more);
}

}  // namespace csdsim::experiment
