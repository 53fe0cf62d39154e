#include "host_runtime/core/planner/systems/hybrid/division.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/golden_section.h"

namespace csdsim::host {

namespace {

double at(const Division& division, TokenPart part) { return division[static_cast<std::size_t>(part)]; }

double per_second(Bandwidth rate) { return static_cast<double>(rate.bytes_per_second); }
double bytes(Bytes of) { return static_cast<double>(of.value); }
std::uint64_t whole(double tokens) { return static_cast<std::uint64_t>(std::llround(tokens)); }

std::uint32_t mini_batches(const DivisionInputs& in) {
  return std::max(1U, std::min(in.rates.mini_batches, in.sequences));
}

/// Bytes beyond what the memories hold, as a share of them.
double overflow(const DivisionInputs& in, const Division& division) {
  const ModelShape& m = in.model;
  const double kv = bytes(m.kv_bytes_per_token_and_layer()), x = double(m.width) * m.element_bytes;
  const double sequences = in.sequences, tokens = sequences * in.longest, layers = m.layers;
  const double gpus = std::max(1U, in.rates.gpus), of_gpu = sequences / gpus;
  const double weights = in.weights_on_host.value() * bytes(m.layer_weight_bytes());
  const double recomputed = at(division, TokenPart::recomputed), copied = at(division, TokenPart::copied);
  const double newest = sequences * in.group * kv * layers;
  const double buffers = std::min<double>(in.kv_buffers + 1.0, layers);
  double gpu = bytes(m.weight_bytes()) - weights * (layers - std::min(2.0, layers));
  gpu += at(division, TokenPart::kept) * tokens / gpus * kv * layers;
  if (in.newest == NewestAt::gpu) gpu += newest / gpus;
  // K and V of layers ahead, or the prompts of the prefill on their way out with what enters and leaves a layer.
  const double ahead = of_gpu * in.longest * buffers * (recomputed * (kv + x) + copied * kv);
  const double prefill = of_gpu * in.prompt * (buffers * (kv + (recomputed > 0 ? x : 0)) + 4 * x);
  gpu += std::max(ahead, prefill);
  double host = weights * layers + tokens * layers * (recomputed * x + copied * kv);
  if (in.newest == NewestAt::host) host += newest;
  const double drives = at(division, TokenPart::drives) * tokens * kv * layers;
  const auto beyond = [](double used, Bytes capacity) {
    return capacity.value == 0 ? 0 : std::max(0.0, used / bytes(capacity) - 1);
  };
  return beyond(gpu, in.rates.gpu_memory) + beyond(host, in.rates.host_memory) + beyond(drives, in.rates.files);
}

/// Searches one share after another.
class Search {
 public:
  Search(const DivisionInputs& in, const std::array<std::optional<double>, kTokenParts>& given) : in_(in) {
    double sum = 0;
    for (std::size_t part = 0; part < kTokenParts; ++part) {
      if (given[part])
        sum += best_[part] = *given[part];
      else
        open_.push_back(part);
    }
    if (sum > 1 + 1e-9) throw InternalError("given shares of tokens beyond the whole");
    if (!open_.empty()) search(0, std::max(0.0, 1 - sum));
  }

  const Division& best() const { return best_; }

 private:
  /// Least cost if the open shares from `index` on are `rest` together. Leaves these shares in best_.
  double search(std::size_t index, double rest) {
    const std::size_t part = open_[index];
    if (index + 1 == open_.size()) {
      best_[part] = rest;
      return cost(best_);
    }
    Division least{};
    double least_cost = std::numeric_limits<double>::infinity();
    const auto probe = [&](double share) {
      best_[part] = share;
      const double found = search(index + 1, rest - share);
      if (found < least_cost) least_cost = found, least = best_;
      return found;
    };
    // The ends by themselves: without tokens, a part also has no kernels and commands.
    probe(0);
    if (rest > 0) {
      probe(rest);
      least_at(0, rest, kSteps, probe);
    }
    best_ = least;
    return least_cost;
  }

  double cost(const Division& division) const {
    const LayerTimes times = layer_times(in_, division);
    constexpr double kTies = 1e-5, kBeyond = 1e6;
    return times.layer + kTies * (times.attention + times.link + times.drives) + kBeyond * overflow(in_, division);
  }

  static constexpr int kSteps = 24;
  const DivisionInputs& in_;
  std::vector<std::size_t> open_;
  Division best_{};
};

}  // namespace

LayerTimes layer_times(const DivisionInputs& in, const Division& division) {
  const ModelShape& m = in.model;
  const PlatformRates& rates = in.rates;
  const std::uint32_t batches = mini_batches(in), gpus = std::max(1U, rates.gpus);
  const double of_gpu = std::ceil(double(batches) / gpus);  // mini-batches of the GPU with most of them
  const auto n = static_cast<std::uint64_t>(std::lround(double(in.sequences) / batches));
  const double tokens = double(n) * in.cached, newest = (in.group - 1) / 2.0;
  const double recomputed = at(division, TokenPart::recomputed) * tokens;
  const double copied = at(division, TokenPart::copied) * tokens, drives = at(division, TokenPart::drives);
  const double on_gpu = (1 - drives) * tokens + double(n) * (newest + 1);
  const double kv = bytes(m.kv_bytes_per_token_and_layer()), x = double(m.width) * m.element_bytes;
  const bool recomputes = recomputed >= 0.5, copies = copied >= 0.5;
  const bool attends = drives * tokens >= 0.5, copies_newest = in.newest == NewestAt::host && newest > 0;

  LayerTimes of_batch;
  of_batch.projections = rates.gpu_time(m.attention_inputs(n)) + rates.gpu_time(m.finish_layer(n));
  if (attends) of_batch.projections += rates.gpu_time(m.merge_attention(n, rates.drives + 1));
  of_batch.attention = rates.gpu_time(m.decode_attention(n, whole(on_gpu)));
  if (recomputes) of_batch.attention += rates.gpu_time(m.recompute_kv(whole(recomputed)));
  const double moved = x * recomputed + kv * (copied + (copies_newest ? double(n) * newest : 0));
  const int transfers = (recomputes ? 1 : 0) + (copies ? 1 : 0) + (copies_newest ? 1 : 0);
  of_batch.link = moved / per_second(rates.host_to_gpu) + transfers * rates.link_latency.seconds();
  if (attends) {
    const double in_drive = drives * in.cached / rates.drives;
    const HeadRange all{KvHead{0}, m.kv_heads};
    const double payload = double(n) * (bytes(m.query_bytes(all)) + bytes(m.partial_bytes(all)));
    of_batch.drives =
        rates.drive_attention(m, {static_cast<std::uint32_t>(n), in_drive}) + payload / per_second(rates.drive_link);
    if (rates.through_host) {
      of_batch.link += rates.drives * double(n) * bytes(m.partial_bytes(all)) / per_second(rates.host_to_gpu);
      of_batch.drives += payload / per_second(rates.host_to_gpu) + 2 * rates.link_latency.seconds();
    }
  }

  LayerTimes all{.projections = of_gpu * of_batch.projections,
                 .attention = of_gpu * of_batch.attention,
                 .link = of_gpu * of_batch.link,
                 .drives = batches * of_batch.drives};
  all.link += in.weights_on_host.value() * bytes(m.layer_weight_bytes()) / per_second(rates.host_to_gpu);
  const double alone = of_batch.projections + std::max(of_batch.attention, of_batch.drives);
  all.layer = std::max({all.link, all.projections + all.attention, all.drives, alone});
  return all;
}

Division solve_division(const DivisionInputs& inputs, const std::array<std::optional<double>, kTokenParts>& given) {
  const Division best = Search(inputs, given).best();
  if (overflow(inputs, best) > 1e-6)
    throw UserError(
        "no division of the tokens fits: give the GPU, the host or the drives more memory, or take a smaller batch");
  return best;
}

}  // namespace csdsim::host
