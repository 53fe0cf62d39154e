#include "host_runtime/core/features/head_rows/head_rows_feature.h"

#include "host_runtime/core/features/head_rows/head_rows.h"

namespace csdsim::host {

CarriedFeature* FileRows::carry(DecoderData& data, const CheckpointSources&) {
  carried_ = std::make_unique<CarriedHeadRows>(data);
  return carried_.get();
}

std::optional<Work> FileRows::resolve(const Operation& op) {
  if (carried_) return carried_->resolve(op);
  const auto* const planned = std::get_if<FileWork>(&op.work);
  if (!modelled_ || op.kind != OpKind::read_file || planned == nullptr || !planned->rows) return std::nullopt;
  FileWork work = *planned;
  work.ranges = chosen_ranges(*planned->rows, [&](const HeadRows::Sequence& of, std::uint32_t head) {
    return modelled_(*planned->rows, *op.tag.layer, of, head);
  });
  return work;
}

}  // namespace csdsim::host
