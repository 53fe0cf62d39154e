// State of a drive that sampled runs do not simulate.
#include <fmt/format.h>

#include "base/error.h"
#include "csd_model/drive.h"

namespace csdsim::csd_model {

void Drive::materialise(SequenceId sequence, LayerId layer, HeadRange heads, std::uint32_t tokens) {
  ftl::KvFtl& kv = kv_ftl();
  const std::uint32_t have = kv.tokens({sequence, layer, heads.first});
  if (tokens <= have) return;
  const ftl::AppendResult result = kv.append(sequence, layer, TokenIndex{have}, tokens - have, heads);
  if (result.status != ftl::KvStatus::ok)
    throw UserError(fmt::format("the drive cannot hold {} tokens of sequence {}, layer {}: {}", tokens, sequence.value,
                                layer.value, ftl::to_string(result.status)));
  for (const ftl::FlushJob& job : result.jobs)
    if (!kv.flush_done(job.id).empty()) throw InternalError("materialising a sequence made an erase possible");
}

}  // namespace csdsim::csd_model
