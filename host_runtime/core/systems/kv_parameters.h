// The parameters of systems that may quantise K and V.
#pragma once

#include <string>
#include <vector>

#include "host_runtime/core/plan/kept_kv.h"
#include "host_runtime/core/plan/system.h"
#include "host_runtime/core/systems/element_bits.h"
#include "host_runtime/core/systems/weight_parameters.h"

namespace csdsim::host {

struct KvFormat {
  ElementBits bits = ElementBits::sixteen;
  std::uint32_t group = 64;

  RowQuantisation rows() const { return {.bits = bits_of(bits), .group = group}; }
};

/// `kv_bits` and `kv_group`.
void describe_kv(ParamVisitor& v, KvFormat& kv);
void check_kv(config::Problems& problems, const SystemContext& context, const KvFormat& kv);
/// UserError for few bits: a run on the streams of a GPU keeps K and V of 16 bits.
void refuse_few_bits(const KvFormat& kv);
/// Appends the parameters without effect to `unused`.
void add_unused_kv(const KvFormat& kv, std::vector<std::string>& unused);

/// The parameters without effect of a system with both.
std::vector<std::string> unused_parameters(const WeightPlacement& weights, const KvFormat& kv);
/// Needs of a system that keeps all K and V in host memory.
SystemNeeds needs_kv_on_host(const PlannerInputs& run, const WeightPlacement& weights, const KvFormat& kv);

/// K and V of `tokens` tokens in all layers.
Bytes kv_bytes(const ModelShape& model, const KvFormat& kv, std::uint64_t tokens);

}  // namespace csdsim::host
