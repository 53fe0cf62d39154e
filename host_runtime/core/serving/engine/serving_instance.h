// One serving engine: a GPU with its pool of KV blocks, and a scheduler that decides what each step computes
// (continuous batching: Orca, OSDI 2022; PagedAttention: SOSP 2023; chunked prefill: Sarathi-Serve, OSDI 2024).
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "host_runtime/core/serving/engine/engine_config.h"
#include "host_runtime/core/serving/engine/kv_tiers.h"
#include "host_runtime/core/serving/engine/served_sequence.h"
#include "host_runtime/core/serving/engine/serving_meter.h"
#include "host_runtime/core/serving/engine/step_cost.h"
#include "host_runtime/core/serving/kv_block_slots.h"

namespace csdsim::host {

class ServingInstance {
 public:
  struct Hooks {
    std::function<void(ServedSequence&)> ended;  ///< a sequence has its last token
    std::function<void()> stepped;               ///< a step has ended
  };

  /// All references and `contents` must outlive this; it is null in runs that carry no data.
  ServingInstance(std::uint32_t index, const EngineConfig& config, const StepCost& cost, KvTiers& tiers,
                  KvTransport& transport, KvContents* contents, ServingMeter& meter, Hooks hooks);

  /// A request arrives. It must stay until it has ended.
  void add(ServedSequence& sequence);
  /// Something has happened outside that may let a waiting request begin.
  void wake();

  /// Leading blocks of a request that the GPU has.
  std::size_t match(std::span<const KvBlockId> ids) const;
  std::size_t waiting() const { return waiting_.size() - loading_; }
  std::size_t loading() const { return loading_; }
  std::size_t running() const { return running_.size(); }
  std::size_t load() const { return waiting_.size() + running_.size(); }
  std::uint64_t blocks_taken() const { return pool_.taken(); }

 private:
  struct Part {
    ServedSequence* sequence = nullptr;
    std::uint64_t tokens = 0;
  };
  /// The step that is made or runs. The GPU computes it in pieces: all of it, or its layers and its ends.
  struct Step {
    std::vector<Part> parts = {};
    StepWork work = {};
    std::uint32_t loads = 0;                  ///< loads of its sequences
    std::vector<std::uint32_t> arrived = {};  ///< [part of a load]: loads of which it has arrived
    std::uint32_t piece = 0;                  ///< the next one
    bool computing = false;                   ///< a piece
    SimTime began;
    SimTime loaded_at;  ///< when the last load has ended
  };
  enum class Admission : std::uint8_t { joined, stays, no_room };

  /// Whether a request comes before another one that waits.
  bool precedes(const ServedSequence& a, const ServedSequence& b) const;

  // Who is in the next step.
  void begin_step();
  void schedule_running();
  void schedule_waiting();
  Admission admit(ServedSequence& sequence);
  Admission admit_with(ServedSequence& sequence, std::size_t in_gpu, const KvTiers::Found& found);
  /// What is used of what the tiers have beyond the blocks that the GPU has. Nothing: the request has to ask again.
  std::optional<KvTiers::Found> ask_tiers(ServedSequence& sequence, std::size_t in_gpu);
  bool loading_pays(std::uint64_t before, std::uint32_t blocks) const;
  void count_hits(ServedSequence& sequence, std::size_t in_gpu, const KvTiers::Found& found);
  /// Holds blocks of the tiers. They are read once the result is called.
  std::function<void()> prepare_load(ServedSequence& sequence, std::size_t first, std::uint32_t blocks, bool in_step);
  void load_ended(ServedSequence& sequence, std::uint32_t blocks);
  /// Tokens from here on have to be computed, because a tier has lost a block.
  void lose(ServedSequence& sequence, std::uint64_t from);
  bool fits(const ServedSequence& sequence) const;
  bool resume(ServedSequence& sequence);
  void join(ServedSequence& sequence);
  void add_part(ServedSequence& sequence, std::uint64_t tokens);

  // Blocks of the GPU.
  std::uint64_t missing_blocks(const ServedSequence& sequence, std::uint64_t tokens) const;
  void take_blocks(ServedSequence& sequence, std::uint64_t count);
  void leave_gpu(KvBlockId id, KvBlockSlot slot);
  void release(ServedSequence& sequence);
  void preempt(ServedSequence& victim);
  void name_blocks(ServedSequence& sequence);

  // The step.
  std::uint32_t pieces() const;
  SimTime piece_time();
  SimTime memory_taken();
  bool may_compute() const;
  void advance_step();
  void end_step();
  void store_blocks(ServedSequence& sequence);
  void end_sequence(ServedSequence& sequence);
  /// Calls `then` when blocks that leave the GPU, and sequences that come back, have been copied.
  void when_clear(std::function<void()> then);
  void copied();

  std::uint32_t index_;
  EngineConfig config_;
  const StepCost& cost_;
  KvTiers& tiers_;
  KvTransport& transport_;
  KvContents* contents_;
  ServingMeter& meter_;
  Hooks hooks_;
  KvBlockSlots pool_;
  std::deque<ServedSequence*> waiting_;
  std::vector<ServedSequence*> running_;
  std::size_t loading_ = 0;  ///< waiting requests whose loads are under way
  Bytes swapped_;
  std::optional<Step> step_;
  bool preempted_ = false;    ///< in the step that is being made
  bool asks_again_ = false;   ///< a request waits for an answer of the tiers that comes in steps
  std::uint64_t budget_ = 0;  ///< tokens that are left for the step that is being made
  std::uint32_t copies_ = 0;  ///< that nothing may pass: of blocks that have new owners, and of preempted sequences
  std::vector<std::function<void()>> gated_;
  /// Blocks of the GPU of a block of the tiers that begins to leave, by the id of its last one.
  std::unordered_map<std::uint64_t, std::vector<KvBlockId>> groups_;
  /// Sums over the loads so far: their bytes and their times. Older loads count less.
  double load_bytes_ = 0, load_seconds_ = 0;
  std::uint64_t steps_ = 0;  ///< that have been made
  Bytes passed_;             ///< K and V through the memory of the GPU, up to the last piece
  Bytes swapped_bytes_;      ///< copied by preemptions, so far
};

}  // namespace csdsim::host
