// The interface of an offload system. Each system is one folder of systems/ or a shared library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config/problems.h"
#include "base/kinds.h"
#include "base/param.h"
#include "base/quantity.h"
#include "contracts/row_quantisation.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/plan/kv_division.h"
#include "host_runtime/core/plan/planner.h"
#include "host_runtime/core/plan/run_feature.h"

namespace csdsim::host {

/// What a decode step reads of a resident that is divided into records, of which it needs some.
struct ChosenRecords {
  double share = 1;     ///< share of the records that one mini-batch reads
  double per_step = 1;  ///< mini-batches of a step that read
  Bytes record;         ///< size of a record
};

/// Data that stays in one place for the whole run.
struct Resident {
  Place home = Place::gpu();
  std::string what;  ///< "weights"
  Bytes bytes;
  bool read_only = false;  ///< in the block namespace: every step reads it and writes nothing
  bool divided = false;    ///< in the block namespace: drives hold equal parts, not layers in turn
  double step_share = 1;   ///< the share of a read-only resident that a decode step reads, about; the prefill reads all
  std::function<ChosenRecords()> chosen = {};  ///< expected reads of a decode step; empty: step_share
};

/// The path of a system's file operations to the drive: through the file system, or by the kernel's swapping.
enum class FilePath : std::uint8_t { file_system, swap };

/// Requirements of a system for a model and a workload.
struct SystemNeeds {
  Place kv = Place::drive_kv();          ///< place of keys and values
  bool component_major = false;          ///< drives also keep K component-major, in embedding pages, which SparF reads
  std::vector<Resident> residents = {};  ///< resident data outside the KV namespace, whose size the mapping determines
  std::optional<FilePath> files = {};    ///< set if the plan has file operations
  ShardBy shard = ShardBy::head;         ///< the dimension that drives divide if K and V are in them
  std::optional<TokenShares> shares = {};  ///< set if drives hold a part of the tokens only: `shard` is token
  /// The newest tokens of a sequence stay outside the files until there are so many, and are written together.
  std::uint32_t written_tokens = 1;
  /// From step to step a layer keeps nothing but K and V in drives, so that a step may be simulated with some layers.
  bool parts_of_steps = false;
  /// Why some steps cannot stand for others, so that all are simulated; empty: they can.
  std::string why_all_steps = {};
  std::optional<Bytes> written_piece = {};  ///< smallest piece of K and V in a file; unset: of a token and head
  /// Parameters with which the residents of a place would fit into so many bytes, for an error where no smaller batch
  /// does: "weights_in_files of at least 0.4 would fit". Null or empty if the system knows none.
  std::function<std::string(Place, Bytes capacity)> what_would_fit = {};
};

/// Amount of the cache of one head that a sparse system reads per step.
struct SparseBudget {
  std::uint32_t components = 0;  ///< components of q used for scores
  std::uint32_t tokens = 0;      ///< tokens attended to
  std::uint32_t local = 0;       ///< newest tokens among them
};

/// Facts of the model and the platform for a system's checks; 0 if unknown.
struct SystemContext {
  std::uint32_t head_dim = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t drives = 0;
  std::uint32_t gpus = 0;
  bool carried = false;  ///< the run carries data
  ModelShape model = {};
  bool sparse_ffn = false;  ///< the model has neurons that do not fire: ReLU, or FATReLU
  std::uint32_t mini_batches = 0;
  std::uint32_t commands = 0;  ///< NVMe commands that a drive holds: over all I/O queues, each one below its depth
  Bytes block_size = {};       ///< block size of the drives' block namespaces
  std::uint32_t batch = 0;
  bool engine = false;                          ///< the drives compute
  Bytes engine_buffer = {};                     ///< buffer of their engines
  Bytes mdts = {};                              ///< largest transfer of a command
  std::vector<ScorePrecision> precisions = {};  ///< in which their engines score tokens
};

/// An attention method (attention_methods.h) and its budget.
struct SystemMethod {
  using Parameters = std::vector<std::pair<std::string, std::string>>;  ///< {name, value}

  std::string_view name = "dense";
  MethodSettings settings = {};
  /// Converts a budget to parameters of the system. Unset settings are omitted.
  Parameters (*parameters)(const MethodSettings&) = [](const MethodSettings&) { return Parameters{}; };
  /// The budget if the pages that a step reads depend on data, so that timing runs need a SelectionSource; or null.
  std::function<SparseBudget(const ModelShape&, std::uint32_t context)> budget = {};
  /// The budget as a text for the statistics of a result, under the method's name; or null.
  std::function<std::string(const ModelShape&, std::uint32_t context)> describe = {};

  /// A method whose only parameter is the ratio of tokens.
  static SystemMethod of_ratio(std::string_view name, Ratio ratio) {
    return {.name = name, .settings = {.ratio = ratio}, .parameters = [](const MethodSettings& settings) {
              return Parameters{{"ratio", format_quantity(settings.ratio)}};
            }};
  }
  std::optional<SparseBudget> sparse_budget(const ModelShape& model, std::uint32_t context) const {
    return budget ? std::optional(budget(model, context)) : std::nullopt;
  }
};

/// Properties of a system.
struct SystemTraits {
  /// Mini-batches if the workload does not state them: two if one part of the batch can use the GPU while another part
  /// uses a drive or the host, otherwise one.
  std::uint32_t mini_batches = 2;
  /// Sequences may generate different numbers of tokens (BatchLengths::outputs): plan() then frees those that have
  /// ended, and sets OpTag::sequences.
  bool ends_sequences = false;
  /// Requests may arrive while others run (BatchLengths::arrivals): plan() then decides each step by the time.
  bool serves_arrivals = false;
  bool verifies_drafts = false;  ///< a decode step may verify a draft (BatchLengths::speculation)
  bool chooses_tokens = false;   ///< chosen tokens move, so that timing runs need ModelledSources::tokens
  /// The host can compute K and V that a drive has lost again, and write them back. The drive must number the tokens as
  /// the sequence does, and the weights must be on the GPU.
  bool restores_lost_kv = false;
  bool recomputes_kv = false;      ///< a decode step computes some K and V again, which are not quantised
  RowQuantisation kv_format = {};  ///< format of K and V: a row of each for a token and KV head
  SystemMethod method = {};        ///< the attention method that gives the same tokens in carried runs
};

class OffloadSystem {
 public:
  virtual ~OffloadSystem() = default;
  virtual std::unique_ptr<OffloadSystem> clone() const = 0;

  /// Describes the parameters, the map `system` of a scenario.
  virtual void describe(ParamVisitor& v) = 0;
  /// Records the problems of the parameters, and of the platform for this system, each at its path.
  virtual void check(config::Problems& problems, const SystemContext& context) const = 0;
  /// Parameters that have no effect because of other parameters; the effective configuration omits them.
  virtual std::vector<std::string> unused_parameters() const { return {}; }

  /// Properties of the system that a run depends on.
  virtual SystemTraits traits() const { return {}; }
  /// The needs of a run. A check may know only the model and the workload of `run`.
  virtual SystemNeeds needs(const PlannerInputs& run) const = 0;
  /// Makes the planner of a run. Throws UserError for inconsistent sizes.
  virtual std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const = 0;

  /// The features of the plan: the work that it does beyond plain layers.
  virtual RunFeatures features(const PlannerInputs&) const { return {}; }
};

/// Implements clone() with the copy constructor.
template <class Derived>
class CopyableSystem : public OffloadSystem {
 public:
  std::unique_ptr<OffloadSystem> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

using SystemKinds = Kinds<OffloadSystem>;

}  // namespace csdsim::host
