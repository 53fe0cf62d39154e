#include "host_runtime/core/serving/policy_registry.h"

#include "host_runtime/core/serving/admission/always.h"
#include "host_runtime/core/serving/admission/frequency.h"
#include "host_runtime/core/serving/admission/nth_sighting.h"
#include "host_runtime/core/serving/eviction/arc.h"
#include "host_runtime/core/serving/eviction/fifo.h"
#include "host_runtime/core/serving/eviction/lfu.h"
#include "host_runtime/core/serving/eviction/lru.h"
#include "host_runtime/core/serving/eviction/s3fifo.h"

namespace csdsim::host {

namespace {

template <class Policy, class Base>
void add(CachePolicyRegistry<Base>& registry) {
  registry.add(std::string(Policy::kName), std::string(Policy::kSummary), [](const CachePolicyContext& context) {
    return make_cache_policy<Base, Policy>(Policy::kName, context);
  });
}

}  // namespace

EvictionRegistry builtin_eviction_policies() {
  EvictionRegistry registry("eviction policy");
  add<LruEviction>(registry);
  add<FifoEviction>(registry);
  add<LfuEviction>(registry);
  add<ArcEviction>(registry);
  add<S3FifoEviction>(registry);
  return registry;
}

AdmissionRegistry builtin_admission_policies() {
  AdmissionRegistry registry("admission policy");
  add<AlwaysAdmission>(registry);
  add<NthSightingAdmission>(registry);
  add<FrequencyAdmission>(registry);
  return registry;
}

}  // namespace csdsim::host
