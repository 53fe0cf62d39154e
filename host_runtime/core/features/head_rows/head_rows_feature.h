// The feature of systems that read rows of single heads from files (HeadRows).
#pragma once

#include <memory>
#include <optional>

#include "host_runtime/core/features/head_rows/carried_head_rows.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

/// Chooses the rows that a read of a file touches.
class FileRows final : public RunFeature {
 public:
  void begin(const ModelledSources& sources) override { modelled_ = sources.rows; }
  CarriedFeature* carry(DecoderData& data, const CheckpointSources&) override;
  std::optional<Work> resolve(const Operation& op) override;

 private:
  RowSource modelled_;
  std::unique_ptr<CarriedHeadRows> carried_;
};

}  // namespace csdsim::host
