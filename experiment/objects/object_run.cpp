#include "experiment/objects/object_run.h"

#include "experiment/block_io/block_io.h"
#include "experiment/block_io/block_result.h"
#include "experiment/block_io/common_setup.h"
#include "experiment/objects/object_result.h"
#include "experiment/objects/wear_run.h"

namespace csdsim::experiment {
namespace {

/// The same requests as commands to a timed drive.
class TimedObjects final : public workload::RequestSource {
 public:
  /// `placed`: writes carry the handle of their writer as placement identifier.
  TimedObjects(const WearSetup& setup, bool placed)
      : requests_(setup.writers, setup.request, setup.seed), left_(setup.writes.value) {
    if (placed) handles_ = setup.handles;
    const WriterConfig& last = setup.writers.back();
    end_ = last.begin + last.region;
  }

  std::optional<workload::BlockRequest> next(std::uint32_t) override {
    if (left_ == 0) return std::nullopt;
    const ObjectRequest request = requests_.next();
    if (!request.trim) left_ -= std::min(left_, request.length.value);
    workload::BlockRequest command;
    command.kind = request.trim ? workload::RequestKind::trim : workload::RequestKind::write;
    command.offset = request.offset;
    command.length = request.length;
    if (!handles_.empty() && !request.trim)
      command.placement = static_cast<std::uint16_t>(handles_[request.writer].value);
    return command;
  }
  Bytes footprint() const override { return end_; }

 private:
  ObjectRequests requests_;
  std::uint64_t left_;
  Bytes end_;
  std::vector<ftl::PlacementHandle> handles_;  ///< by writer; empty: writes carry none
};

}  // namespace

scenario::RunResult run_objects(const scenario::Scenario& s, const ObjectWorkload& work,
                                const scenario::RunOptions& options) {
  const WallClock clock;
  const WearSetup wear = wear_setup(s, work);
  if (s.simulation.data == ftl::DataMode::wear) {
    return object_result(s, work,
                         run_wear(wear,
                                  [&](std::uint64_t done, std::uint64_t total) {
                                    if (options.progress) options.progress("written", done, total);
                                  }),
                         clock);
  }
  BlockIoSetup setup = common_setup(s, {}, Fill::none);
  setup.platform.waveforms = options.waveforms;
  setup.queue_depth = work.queue_depth;
  const bool placed = work.placement_of_writes == ObjectPlacement::by_class;
  setup.source = [&wear, placed](Bytes) { return std::make_unique<TimedObjects>(wear, placed); };
  return block_result(s, run_traced(setup, options), clock, fill_statement(setup));
}

}  // namespace csdsim::experiment
