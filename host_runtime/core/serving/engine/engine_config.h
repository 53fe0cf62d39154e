// The configuration of a serving engine.
#pragma once

#include <cstdint>

#include "base/param_codec.h"
#include "base/units.h"

namespace csdsim::host {

/// When K and V of tiers reach the GPU.
enum class LoadPolicy : std::uint8_t { prefetch_waiting, before_step, by_layer };
/// Whether K and V of tiers are read, or computed again.
enum class RetrievalPolicy : std::uint8_t { load, recompute, cheaper_of_both };
/// When blocks of drives come to host memory.
enum class PromotionPolicy : std::uint8_t { with_load, at_lookup };
/// What becomes of a sequence that has to make room.
enum class Preemption : std::uint8_t { recompute, swap };
/// The order in which requests join the batch.
enum class AdmissionOrder : std::uint8_t { arrival, shortest_prompt, priority };
/// How a step occupies the GPU.
enum class StepGranularity : std::uint8_t { step, layer };

struct EngineConfig {
  std::uint32_t block_tokens = 16;  ///< tokens of a block of the GPU
  std::uint64_t gpu_blocks = 0;     ///< blocks of the GPU
  Bytes block_bytes;                ///< K and V of one of them, in all layers
  std::uint32_t factor = 1;         ///< blocks of the GPU in a block of the tiers
  bool prefix_caching = true;       ///< blocks of sequences that have ended stay in the GPU while there is room
  std::uint32_t most_running = 256;
  std::uint32_t step_tokens = 8192;  ///< most tokens of a step
  bool chunked_prefill = true;
  AdmissionOrder order = AdmissionOrder::arrival;
  Preemption preemption = Preemption::recompute;
  Bytes swap_space;  ///< in host memory, of this engine
  LoadPolicy load = LoadPolicy::prefetch_waiting;
  RetrievalPolicy retrieval = RetrievalPolicy::load;
  PromotionPolicy promotion = PromotionPolicy::with_load;
  bool wait_for_pending = false;   ///< a request waits for blocks that are being written to a tier
  std::uint32_t lookup_steps = 0;  ///< steps between the arrival of a request in the queue and the answer of the tiers
  bool evicts_to_tiers = false;    ///< a block that leaves the GPU goes to the tiers (StorePolicy::on_eviction)
  bool stores_answers = true;
  bool waits_for_stores = false;  ///< the next step begins when what this one has stored has left the GPU
  StepGranularity granularity = StepGranularity::step;
  SimTime step_overhead;   ///< time per step that the host takes while the GPU waits
  Bandwidth gpu_memory{};  ///< bandwidth that K and V on their way share with the kernels; 0: they take nothing of it
  bool unified_memory = false;  ///< GPU and host have one memory: a copy between them reads and writes it
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::LoadPolicy> {
  static constexpr EnumValue<host::LoadPolicy> values[] = {
      {host::LoadPolicy::prefetch_waiting, "prefetch_waiting",
       "While the request waits: it joins the batch when they are there (vLLM's asynchronous load)."},
      {host::LoadPolicy::before_step, "before_step", "The request's first step waits for all of them."},
      {host::LoadPolicy::by_layer, "by_layer",
       "In the request's first step each layer waits for its own (LMCache's layer-wise load)."}};
};
template <>
struct EnumValues<host::RetrievalPolicy> {
  static constexpr EnumValue<host::RetrievalPolicy> values[] = {
      {host::RetrievalPolicy::load, "load", "Blocks that a tier has are always loaded."},
      {host::RetrievalPolicy::recompute, "recompute", "Blocks are stored, but never loaded."},
      {host::RetrievalPolicy::cheaper_of_both, "cheaper_of_both",
       "Blocks are loaded if that takes less time, by the rate of the last loads, than to compute them."}};
};
template <>
struct EnumValues<host::PromotionPolicy> {
  static constexpr EnumValue<host::PromotionPolicy> values[] = {
      {host::PromotionPolicy::with_load, "with_load",
       "While they are loaded, through the staging buffer; they stay in host memory if it has room."},
      {host::PromotionPolicy::at_lookup, "at_lookup",
       "When a waiting request looks them up: it takes blocks of host memory for all of them, waits until they are "
       "there, and is loaded from there; without room it computes them (vLLM's tiers)."}};
};
template <>
struct EnumValues<host::Preemption> {
  static constexpr EnumValue<host::Preemption> values[] = {
      {host::Preemption::recompute, "recompute", "Its K and V are dropped, and computed or loaded again."},
      {host::Preemption::swap, "swap", "They are copied to host memory and back."}};
};
template <>
struct EnumValues<host::AdmissionOrder> {
  static constexpr EnumValue<host::AdmissionOrder> values[] = {
      {host::AdmissionOrder::arrival, "arrival", "First come, first served."},
      {host::AdmissionOrder::shortest_prompt, "shortest_prompt", "The shortest prompt that waits comes first."},
      {host::AdmissionOrder::priority, "priority",
       "The lowest priority value of the trace comes first and makes room last; of equals the first that came."}};
};
template <>
struct EnumValues<host::StepGranularity> {
  static constexpr EnumValue<host::StepGranularity> values[] = {
      {host::StepGranularity::step, "step", "A step is one piece of work of the GPU."},
      {host::StepGranularity::layer, "layer", "Each layer is a piece of its own; by_layer loads come layer by layer."}};
};

}  // namespace csdsim
