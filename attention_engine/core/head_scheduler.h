// Times of the head jobs of attention commands: InstInfer's engine (section IV-B) as servers and phases.
//
//   dense, score   read -> kernel (score: or the scoring unit, page by page)
//   SparF          argtopk(d) -> read A -> kernel (logit-0) -> argtopk(S) -> read B -> kernel
//   feed-forward   read and kernel side by side, neuron by neuron (NeuronIntake)
//
// Kernels and argtopk units are FIFO servers in order of arrival: the scheduler's own, or modules (UnitPort). Numerics
// run when the last page of a phase has arrived. With Intake::phase the kernel's time is charged from then on; with
// Intake::page each page takes an even share of it as soon as it and all pages before it have arrived, with
// Intake::arrival as soon as it has arrived. A phase without a flash page continues at once: access to controller DRAM
// is not charged. With overlap_flash off, units and page reads take turns. Jobs start strictly in order of age: a job
// that waits for buffer space holds back the younger ones.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "attention_engine/core/engine_config.h"
#include "attention_engine/core/engine_turns.h"
#include "attention_engine/core/head_job.h"
#include "attention_engine/core/head_sampler.h"
#include "attention_engine/core/head_work.h"
#include "attention_engine/core/kv_source.h"
#include "attention_engine/core/neuron_intake.h"
#include "attention_engine/core/phase_intake.h"
#include "base/fixed_divisor.h"
#include "base/nearly_sorted_queue.h"
#include "base/units.h"
#include "base/work_observer.h"
#include "contracts/read_plan.h"

namespace csdsim::engine {

/// The scheduler's interface to its surroundings. Implementations must not call back into the scheduler.
class EnginePort {
 public:
  virtual ~EnginePort() = default;
  /// Read `ops` (at least one; valid during the call) from `at` on, then call pages_arrived(read, ...). `lookups`: map
  /// entries that are looked up to find these pages.
  virtual void read_pages(PageRead read, std::span<const PageOp> ops, std::uint64_t lookups, SimTime at) = 0;
  /// A kernel is through with these pages.
  virtual void pages_consumed(PageRead read, SimTime at) = 0;
  virtual void task_done(TaskId id, SimTime at) = 0;
};

/// The units of the engine that serve its jobs.
enum class EngineUnit : std::uint8_t { kernels, scoring, argtopk };

/// The work of a unit for a job. Waveforms show these values, and 0 where a unit has no work.
enum class UnitTask : std::uint8_t {
  components = 1,   ///< argtopk: the r largest components of |q|
  tokens = 2,       ///< argtopk: the k most important tokens
  logit0 = 3,       ///< kernel: approximate logits
  attend = 4,       ///< kernel: logits, softmax and output
  score = 5,        ///< scoring unit, or kernel: scores of tokens
  feed_forward = 6  ///< kernel: neurons
};

/// Units that are modules of their own.
class UnitPort {
 public:
  struct Work {
    EngineUnit unit;
    UnitTask task;
    std::uint64_t id;      ///< ascends
    std::uint64_t amount;  ///< argtopk: elements; others: cycles
    SimTime time;          ///< that the model's units take
  };

  virtual void begin(const Work& work, SimTime at) = 0;
  /// See HeadScheduler::work_ahead().
  virtual SimTime ahead(EngineUnit unit, SimTime now) const = 0;

 protected:
  ~UnitPort() = default;
};

/// Told of each work of a unit: when it is given to the unit, how long the unit works on it, and when it is done.
class UnitObserver {
 public:
  /// `softmax`: the part of `work` for exponentials; `page`: the work is on a page read.
  virtual void unit_begins(EngineUnit unit, SimTime work, SimTime softmax, bool page, SimTime at) = 0;
  virtual void unit_ends(EngineUnit unit, SimTime at) = 0;

 protected:
  ~UnitObserver() = default;
};

/// Never waits. Times of calls must not decrease, and no event may be skipped: call advance() no later than
/// next_event(). Every entry point first does everything that is due before or at its time.
class HeadScheduler {
 public:
  /// References must outlive the scheduler. Throws UserError for an invalid config.
  HeadScheduler(const EngineConfig& config, KvSource& source, HeadWork& work, EnginePort& port);

  /// One command's jobs. `jobs`, and what its pointers point to, must stay until task_done. Throws UserError, and
  /// accepts nothing, if there is no job, a job has group, r or k = 0, or a job alone exceeds the buffer.
  TaskId submit(std::span<const HeadJob> jobs, SimTime at);

  /// A feed-forward command, which is one job. `job`, and what its pointers point to, must stay until task_done. Throws
  /// UserError, and accepts nothing, if it has no neuron, token or column, or exceeds the buffer.
  TaskId submit_neurons(const NeuronJob& job, SimTime at);

  /// Pages that were requested have arrived.
  void pages_arrived(PageRead read, SimTime at);

  /// Does everything that is due until `at`, inclusive.
  void advance(SimTime at);
  /// Time of the next event; SimTime::max() if there is none before the next call from outside.
  SimTime next_event() const { return events_.front_time(); }

  /// Optional; without it no events are reported. It must outlive the scheduler.
  void set_observer(UnitObserver* observer) { observer_ = observer; }
  /// By EngineUnit; amounts are identifiers of jobs. Work of a unit overlaps where it has several servers. The level of
  /// unit 0 is the number of bytes in use of the buffer. It must outlive the scheduler.
  void observe_work(WorkObserver* observer) { work_observer_ = observer; }

  /// Before the first job, only where units are the scheduler's own: commands of many jobs that are alike pass over
  /// some of them. It must outlive the scheduler.
  void set_sampler(HeadSampler& sampler) { sampler_ = &sampler; }

  /// Before the first job: work goes to `units`, which must outlive the scheduler, and ends with unit_done().
  void set_units(UnitPort& units) { units_ = &units; }
  /// Work `id` has ended at `at`, after a wait in front of its unit. advance() continues its job: works that end at the
  /// same time are served in the order of their ids. EngineStats counts the wait and the time worked.
  void unit_done(std::uint64_t id, SimTime waited, SimTime worked, SimTime at);

  /// The power fails: all jobs are forgotten, and nothing of them is asked or told any more. Tasks count from 0 again.
  /// EngineStats keeps what was done; of the kernels' time for exponentials and for neurons it keeps what had begun.
  /// Only where units are the scheduler's own.
  void forget(SimTime now);

  const EngineStats& stats() const { return stats_; }
  /// Work after `now` that the units have been given and EngineStats counts already.
  SimTime work_ahead(EngineUnit unit, SimTime now) const {
    if (units_ != nullptr) return units_->ahead(unit, now);
    return unit == EngineUnit::kernels   ? kernels_.ahead(now)
           : unit == EngineUnit::scoring ? scoring_.ahead(now)
                                         : argtopk_.ahead(now);
  }
  const EngineConfig& config() const { return config_; }
  std::uint32_t jobs_running() const { return config_.jobs_in_flight - static_cast<std::uint32_t>(free_.size()); }
  Bytes buffer_in_use() const { return buffer_in_use_; }

 private:
  enum class Stage : std::uint8_t { select_components, read_a, logit0, select_tokens, read_b, attend, feed_forward };

  struct Task {
    std::span<const HeadJob> jobs;
    const NeuronJob* neurons = nullptr;  ///< neurons of a feed-forward command, which has no head jobs
    SimTime submitted;
    std::size_t started = 0;
    std::size_t finished = 0;
    bool sampled = false;  ///< its jobs are alike and many enough to pass over some
    HeadJobsDone done = {};

    std::size_t count() const { return neurons != nullptr ? 1 : jobs.size(); }
  };
  /// The time that a piece of a phase takes in a kernel.
  struct PieceCost {
    std::uint64_t cycles = ~std::uint64_t{0};  ///< default: no piece
    SimTime time{};
    SimTime softmax{};
  };
  struct Job {
    const HeadJob* job = nullptr;
    const NeuronJob* neurons = nullptr;  ///< in place of `job`
    TaskId task;
    Method method = Method::dense;
    Stage stage = Stage::attend;
    EngineUnit unit = EngineUnit::kernels;  ///< that the stage runs on
    SimTime since;                          ///< begin of the stage
    KvHeadView view;
    Bytes footprint;
    std::uint64_t scales = 0;  ///< groups of the head that have chosen components, each with a scale; for few bits
    Bytes unwanted{};          ///< unwanted bytes of its pages, which reach the engine where there are no filters
    std::uint64_t pages = 0;   ///< that it has asked for
    std::uint64_t macs = 0;
    bool has_pages = false;    ///< its current phase reads pages
    bool awaits_turn = false;  ///< its next piece waits for the engine's turn
    double softmax_share = 0;  ///< share of the softmax in the kernel's work in its current phase
    /// Costs of the pieces of this phase, which differ by at most one cycle, by the lowest bit of their cycles.
    std::array<PieceCost, 2> costs{};

    bool running() const { return job != nullptr || neurons != nullptr; }
  };
  /// With Intake::arrival: the pages of a job's phase.
  struct Arrivals {
    ReadPlan plan;
    std::vector<std::uint32_t> channels;  ///< channels of the pages, where page buffers are limited
    std::size_t keys = 0;                 ///< pages before those with values
    std::size_t next = 0;                 ///< index of the next page of keys to ask for
  };
  struct KernelWork {
    std::uint64_t macs = 0;
    std::uint64_t softmax_elements = 0;
    std::uint64_t taken_in = 0;  ///< elements of K and V
  };
  struct UnitWork {
    EngineUnit unit;
    std::uint64_t amount;  ///< argtopk: elements; others: cycles
    SimTime time;
    SimTime softmax;    ///< part of `time`
    bool page = false;  ///< the work is on a page read
  };
  /// Counters of a kind of units.
  struct UnitCounters {
    SimTime& busy;
    DurationSum& waited;
  };
  struct Event {
    SimTime at;
    std::uint64_t order = 0;  ///< ties are served in the order of scheduling
    JobId id;
    constexpr bool before(const Event& o) const { return at != o.at ? at < o.at : order < o.order; }
  };
  /// Identical servers, first come first served.
  class Servers {
   public:
    explicit Servers(std::uint32_t count) : free_at_(count) {}
    /// End of work that arrives at `at`, arrivals in time order. Adds the time that it waits to `waited`.
    SimTime serve(SimTime at, SimTime duration, DurationSum& waited);
    SimTime ahead(SimTime now) const {
      SimTime sum;
      for (const SimTime free : free_at_) sum += std::max(free - std::max(now, stand_until_), SimTime{});
      return sum;
    }
    /// Their work at `now` ends so much later.
    void postpone(SimTime by, SimTime now) {
      for (SimTime& free : free_at_)
        if (free > now) free += by;
      stand_until_ = now + by;
    }

   private:
    SimTime stand_until_;
    std::vector<SimTime> free_at_;
  };

  Task& task(TaskId id) { return tasks_[id.value - first_task_]; }
  void check(const HeadJob& job, const KvHeadView& view) const;
  void start_jobs(SimTime at);
  bool start_next(SimTime at);
  void enter(JobId id, Stage stage, SimTime at);
  void leave_stage(JobId id, SimTime at);
  void piece_done(JobId id, SimTime at);
  void finish(JobId id, SimTime at);
  void end_job(JobId id, SimTime at);
  void tell_buffer(SimTime at) const;
  bool expects(PageRead read) const {
    if (read.job.value >= jobs_.size() || !jobs_[read.job.value].running()) return false;
    const Stage stage = jobs_[read.job.value].stage;
    if (stage == Stage::feed_forward) return neuron_intakes_[read.job.value].awaits(read.piece);
    return (stage == Stage::read_a || stage == Stage::read_b) && intakes_[read.job.value].awaits(read.piece);
  }
  void work_in_turn(SimTime at);
  void read_in_turn(SimTime at);
  void read_phase_a(JobId id, SimTime at);
  void read_phase_b(JobId id, SimTime at);
  void take_in(Job& job, std::uint64_t wanted);
  std::uint64_t component_bytes(const Job& job, std::uint64_t tokens) const;
  void read(JobId id, SimTime at);
  void read_by_page(JobId id, SimTime at);
  void pair_keys_with_values();
  void read_by_arrival(JobId id, SimTime at);
  void send_page(JobId id, std::size_t page, SimTime at);
  void follow(PageRead read, SimTime at);
  std::uint32_t& arrived_on(PageRead read);
  void issue(PageRead read, const PageOp& op, std::uint64_t lookups, SimTime at);
  void send(PageRead read, std::span<const PageOp> ops, std::uint64_t lookups, SimTime at);
  void pages_consumed(PageRead read, SimTime at);

  // head_scheduler_sampling.cpp
  bool alike(std::span<const HeadJob> jobs) const;
  void sample(TaskId id, SimTime at);
  void postpone(SimTime by, SimTime now);

  // head_scheduler_units.cpp
  void count_macs(Job& job);
  std::optional<std::uint32_t> scoring_lanes(const Job& job) const;
  KernelWork kernel_work(const Job& job) const;
  std::uint64_t phase_cycles(Job& job) const;
  void run_kernel(JobId id, SimTime at);
  void run_argtopk(JobId id, std::uint64_t elements, SimTime at);
  void begin_unit(JobId id, const UnitWork& work, SimTime at);
  UnitCounters counters_of(EngineUnit unit);
  Servers& servers_of(EngineUnit unit);
  EngineUnit unit_of(const Job& job) const;
  PieceCost cost_of(std::uint64_t cycles, double softmax_share) const;
  static UnitTask task_of(const Job& job);
  /// Tells the observer of work what a unit has done, or will do, for a job.
  void tell(EngineUnit unit, JobId id, SimTime start, SimTime end) const;

  // head_scheduler_neurons.cpp
  void start_neurons(JobId id, SimTime at);
  void record_page_arrived(PageRead read, SimTime at);
  void take_record_pages(JobId id, SimTime at);
  void run_neurons(JobId id, SimTime at);
  void neuron_done(JobId id, SimTime at);

  std::span<const std::uint32_t> group_range(std::uint32_t first, std::uint32_t last);

  EngineConfig config_;
  KvSource& source_;
  HeadWork& work_;
  EnginePort& port_;
  std::deque<Task> tasks_;  ///< from first_task_ on; finished ones leave at the front
  std::uint64_t first_task_ = 0;
  std::uint64_t next_start_ = 0;              ///< oldest task that has jobs to start
  std::vector<Job> jobs_;                     ///< by JobId
  std::vector<PhaseIntake> intakes_;          ///< by JobId
  std::vector<Arrivals> arrivals_;            ///< by JobId
  std::vector<NeuronIntake> neuron_intakes_;  ///< by JobId
  std::vector<JobId> free_;
  bool by_arrival_;  ///< kernels take pages in the order of arrival
  FixedDivisor pages_per_channel_;
  PageIssue issue_;
  std::vector<std::uint32_t> arrived_on_;  ///< [ChannelId]
  EngineTurns turns_;
  Servers kernels_;
  Servers argtopk_;
  Servers scoring_{1};
  NearlySortedQueue<Event> events_;
  std::uint64_t next_order_ = 0;
  struct InUnit {
    JobId job;
    EngineUnit unit;
    SimTime time;
  };
  std::unordered_map<std::uint64_t, InUnit> in_units_;  ///< given to units_, by id; looked up only
  Bytes buffer_in_use_;
  ReadPlan plan_;                          ///< scratch: of the phase that is being entered
  std::vector<std::uint32_t> all_groups_;  ///< 0, 1, 2, ...
  EngineStats stats_;
  UnitObserver* observer_ = nullptr;
  WorkObserver* work_observer_ = nullptr;
  UnitPort* units_ = nullptr;
  HeadSampler* sampler_ = nullptr;  ///< null: every job is simulated
};

}  // namespace csdsim::engine
