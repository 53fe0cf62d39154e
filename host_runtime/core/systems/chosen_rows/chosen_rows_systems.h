// H2O, InfiniGen and LeoAM as systems: K and V in GPU memory, host memory and files; the GPU attends to chosen tokens.
#pragma once

#include "host_runtime/core/features/chosen_rows/chosen_rows_planner.h"
#include "host_runtime/core/systems/weight_parameters.h"

namespace csdsim::host {

/// The base of h2o, infinigen and leoam.
class ChosenRowsSystem : public OffloadSystem {
 public:
  /// `method` is their attention method.
  explicit ChosenRowsSystem(std::string_view method) : method_(method) {}

  Ratio ratio{1, 5};
  ChosenRowsPlan rows;  ///< its tokens are `ratio` of the context
  WeightPlacement weights;

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  std::vector<std::string> unused_parameters() const override;
  /// One: what a mini-batch fetches ahead overlaps with its computation anyway.
  SystemTraits traits() const override {
    return {.mini_batches = 1, .chooses_tokens = true, .method = SystemMethod::of_ratio(method_, ratio)};
  }
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
  RunFeatures features(const PlannerInputs& inputs) const override;
  /// What a run plans. A part of a model's layers stands for all of them: where some layers attend to everything, its
  /// layers attend to as many tokens as all layers do on average.
  ChosenRowsPlan chosen_rows(const PlannerInputs& inputs) const;

 protected:
  virtual ChoosingCosts costs(const ModelShape& model) const = 0;

 private:
  std::string_view method_;
};

/// H2O (arXiv 2306.14048): heavy and recent tokens stay, the others are evicted for good.
class H2o final : public ChosenRowsSystem {
 public:
  static constexpr std::string_view kKind = "h2o";
  static constexpr std::string_view kDoc =
      "H2O: heavy and recent tokens are kept in GPU memory, host memory and files; the others are evicted.";

  H2o();
  void describe(ParamVisitor& v) override;
  std::unique_ptr<OffloadSystem> clone() const override { return std::make_unique<H2o>(*this); }

 private:
  ChoosingCosts costs(const ModelShape&) const override { return {}; }
};

/// InfiniGen (arXiv 2406.19707): tokens are chosen and fetched a layer ahead, by speculated queries and partial keys.
class Infinigen final : public ChosenRowsSystem {
 public:
  static constexpr std::string_view kKind = "infinigen";
  static constexpr std::string_view kDoc =
      "InfiniGen: K and V in GPU memory, host memory and files; chosen tokens are fetched a layer ahead.";

  Infinigen();
  void describe(ParamVisitor& v) override;
  std::unique_ptr<OffloadSystem> clone() const override { return std::make_unique<Infinigen>(*this); }

 private:
  ChoosingCosts costs(const ModelShape& model) const override;
};

/// LeoAM (arXiv 2506.20187): chunks of tokens are chosen by bounds of their keys, which are in host memory.
class Leoam final : public ChosenRowsSystem {
 public:
  static constexpr std::string_view kKind = "leoam";
  static constexpr std::string_view kDoc =
      "Chunk bounds in the manner of LeoAM: K and V in GPU memory, host memory and files; chunks that may matter are "
      "fetched.";

  Leoam();
  void describe(ParamVisitor& v) override;
  std::unique_ptr<OffloadSystem> clone() const override { return std::make_unique<Leoam>(*this); }

 private:
  ChoosingCosts costs(const ModelShape& model) const override;
};

}  // namespace csdsim::host
