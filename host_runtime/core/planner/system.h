// An offload system, and what it is asked. One folder of systems/ (or a shared library) answers; no other code knows
// its name.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/config/problems.h"
#include "base/kinds.h"
#include "base/param.h"
#include "host_runtime/core/attention_methods.h"
#include "host_runtime/core/planner/planner.h"

namespace csdsim::host {

/// Where data lives during a run.
enum class Home : std::uint8_t { gpu, host, drive_kv, drive_blocks };
inline constexpr std::size_t kHomes = 4;
constexpr std::array<std::string_view, kHomes> kHomeNames{"GPU memory", "host memory", "the KV namespace of the drives",
                                                          "the block namespace of the drives"};

/// Bytes that stay in a place for the whole run.
struct Resident {
  Home home = Home::gpu;
  std::string what;  ///< "weights"
  Bytes bytes;
};

/// What a system needs of the machine for a model and a workload.
struct SystemNeeds {
  Home kv = Home::drive_kv;              ///< where keys and values live
  bool component_major = false;          ///< drives keep K component-major, too: embedding pages, which SparF reads
  std::vector<Resident> residents = {};  ///< all but what the KV namespace holds, which its mapping decides
};

/// What a sparse system reads of the cache of one head in a step.
struct SparseBudget {
  std::uint32_t components = 0;  ///< of q, that score
  std::uint32_t tokens = 0;      ///< attended
  std::uint32_t local = 0;       ///< newest tokens among them
};

/// The facts of a model and its platform that a system's checks may look at; 0 where they are not known.
struct SystemContext {
  std::uint32_t head_dim = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t drives = 0;
};

class OffloadSystem {
 public:
  virtual ~OffloadSystem() = default;
  virtual std::unique_ptr<OffloadSystem> clone() const = 0;

  /// Its parameters: the map `system` of a scenario.
  virtual void describe(ParamVisitor& v) = 0;
  /// Records what is wrong with the parameters and with the platform for this system, each problem at its path.
  virtual void check(config::Problems& problems, const SystemContext& context) const = 0;
  /// Parameters that have no effect beside the others: they are left out of the effective configuration.
  virtual std::vector<std::string> unused_parameters() const { return {}; }

  virtual SystemNeeds needs(const ModelShape& model, const BatchLengths& workload) const = 0;
  /// Streams the operations of a run. UserError for sizes that do not fit together.
  virtual std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const = 0;

  /// The attention method whose tokens the system's own equal in carried runs (attention_methods.h), and its budget.
  virtual std::string_view method() const = 0;
  virtual MethodSettings method_settings() const = 0;
  /// Parameters of the system that state such a budget: {name, value}; what the settings leave open is not among them.
  virtual std::vector<std::pair<std::string, std::string>> parameters_of(const MethodSettings& settings) const = 0;

  /// Set where the pages that a step reads depend on data, so that timing runs need a SelectionSource.
  virtual std::optional<SparseBudget> sparse_budget(const ModelShape&, std::uint32_t /*context*/) const { return {}; }
  /// What its parameters came to, for the statistics of a result: {key, text}. `longest` is the longest context.
  virtual std::vector<std::pair<std::string, std::string>> remarks(const ModelShape&, std::uint32_t /*longest*/) const {
    return {};
  }
};

/// Implements clone() for a system that copies.
template <class Derived>
class CopyableSystem : public OffloadSystem {
 public:
  std::unique_ptr<OffloadSystem> clone() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

using SystemKinds = Kinds<OffloadSystem>;

}  // namespace csdsim::host
