#include "host_runtime/core/systems/kv_parameters.h"

#include "base/error.h"

namespace csdsim::host {

void describe_kv(ParamVisitor& v, KvFormat& kv) {
  v.param("kv_bits", kv.bits,
          "Bits per element of K and V where they are kept and where they travel. The GPU quantises new ones; whoever "
          "attends dequantises them first.",
          paper("KVPR and FlexGen: fp16, with groups of 4 bits as an option"));
  v.param("kv_group", kv.group, {1, 65'536},
          "Elements of a head's K or V of a token that share a scale, which is an FP16 number. Divides the size of a "
          "head. With kv_bits of 8 and 4.",
          assumed("64 in FlexGen, as recalled"));
}

void check_kv(config::Problems& problems, const SystemContext& context, const KvFormat& kv) {
  if (kv.bits == ElementBits::sixteen) {
    problems.refuse_unused("system.kv_group", "system.kv_bits", "elements of 16 bits have no scale");
    return;
  }
  if (context.head_dim == 0) return;
  const std::string problem = kept_kv_problem(kv.rows(), context.head_dim);
  problems.require(problem.empty(), {"system.kv_group", "system.kv_bits", "model.head_dim"}, "system." + problem);
}

void add_unused_kv(const KvFormat& kv, std::vector<std::string>& unused) {
  if (kv.bits == ElementBits::sixteen) unused.emplace_back("kv_group");
}

std::vector<std::string> unused_parameters(const WeightPlacement& weights, const KvFormat& kv) {
  std::vector<std::string> unused = unused_weight_parameters(weights);
  add_unused_kv(kv, unused);
  return unused;
}

SystemNeeds needs_kv_on_host(const PlannerInputs& run, const WeightPlacement& weights, const KvFormat& kv) {
  SystemNeeds needs{.kv = Place::host(), .residents = weight_residents(run.model, weights)};
  needs.residents.push_back({Place::host(), "K and V", kv_bytes(run.model, kv, run.workload.longest_contexts())});
  return needs;
}

Bytes kv_bytes(const ModelShape& model, const KvFormat& kv, std::uint64_t tokens) {
  return kept_kv_bytes(model, kv.rows()) * (model.kv_heads * model.layers * tokens);
}

void refuse_few_bits(const KvFormat& kv) {
  if (kv.bits != ElementBits::sixteen)
    throw UserError("system.kv_bits: a run on the streams of a GPU keeps K and V of 16 bits");
}

}  // namespace csdsim::host
