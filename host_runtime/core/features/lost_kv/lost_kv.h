// The feature of runs that go on when a drive cannot read K or V back.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "host_runtime/core/features/lost_kv/kv_replay.h"
#include "host_runtime/core/model/model_shape.h"
#include "host_runtime/core/plan/lost_rows.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

/// With `drop`, drives attend without the lost tokens. With `recompute`, the GPU computes their K and V again and the
/// host writes them again. In runs that carry data they come from a replay of the mini-batch from the start of the run
/// (KvReplay).
class LostTokens final : public RunFeature, public LostRows {
 public:
  /// `way`: not stop.
  LostTokens(LostKv way, const ModelShape& model) : way_(way), model_(model) {}

  void check_run(config::Problems& problems, const FeatureContext& run) const override;
  CarriedFeature* carry(DecoderData& data, const CheckpointSources&) override;
  LostRows* lost_rows() override { return this; }
  std::vector<FeatureMetric> metrics() const override;

  bool left_out() const override { return way_ == LostKv::drop; }
  void attending(const Operation& attend, std::size_t index) override;
  /// The prompt and all tokens so far pass the layers before the operation's.
  std::vector<ComputeWork> work(const Operation& attend, std::uint32_t tokens, std::uint32_t end) const override;
  void load(const Operation& attend, SequenceId sequence, std::uint32_t first, std::uint32_t count, HeadRange heads,
            std::span<Half> k, std::span<Half> v) override;
  void computed(std::uint64_t rows, SimTime computing) override;
  void written(Bytes kv) override { written_ += kv; }

 private:
  LostKv way_;
  ModelShape model_;
  DecoderData* data_ = nullptr;
  KvReplay::Choices attended_;  ///< the drives' choices for each sequence with so many tokens
  std::map<MiniBatch, std::unique_ptr<KvReplay>> replays_;
  std::uint64_t rows_ = 0;
  Bytes written_;
  SimTime computing_;
};

}  // namespace csdsim::host
