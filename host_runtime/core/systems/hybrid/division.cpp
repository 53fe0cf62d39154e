#include "host_runtime/core/systems/hybrid/division.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/machine/rates.h"
#include "host_runtime/core/plan/kept_kv.h"

namespace csdsim::host {

namespace {

double at(const Division& division, TokenPart part) { return division[part_index(part)]; }
std::uint64_t whole(double tokens) { return static_cast<std::uint64_t>(std::llround(tokens)); }

/// K and V of a token and layer as they are kept, and its activations.
double kept_bytes(const DivisionInputs& in) { return bytes(kept_kv_bytes(in.model, in.kv)) * in.model.kv_heads; }
double activation_bytes(const DivisionInputs& in) { return double(in.model.width) * in.model.element_bytes; }

/// Seconds in which a drive attends to `tokens` tokens of a layer.
double attending(const DivisionInputs& in, double tokens, double of_sequence) {
  const DriveRates& drive = in.rates.drive;
  const ModelShape& m = in.model;
  double read = tokens * kept_bytes(in), rows = 2 * tokens;  // K and V of a KV head are a row each
  const double top_k = in.sparf ? in.sparf->top_k(static_cast<std::uint32_t>(std::ceil(of_sequence))) : of_sequence;
  if (top_k < of_sequence) {
    // Some components of all K, from pages of their own, then the pages with the chosen tokens.
    const double scored = double(in.sparf->components()) / m.head_dim, chosen = top_k / of_sequence;
    const double row = bytes(kept_kv_bytes(m, in.kv)) / 2;
    read *= scored / 2 + std::max(chosen, drive.touched_pages.of(chosen, row));
    rows = tokens * (scored + 2 * chosen);
  }
  const double elements = rows * m.kv_heads * m.head_dim;
  const double products = elements * m.heads / m.kv_heads / drive.products;
  return std::max({read / per_second(drive.reads), products, in.kv.quantised() ? elements / drive.dequantised : 0});
}

/// Bytes beyond what the memories hold, as a share of them.
double overflow(const DivisionInputs& in, const Division& division) {
  const ModelShape& m = in.model;
  const double fp16 = bytes(m.kv_bytes_per_token_and_layer()), x = activation_bytes(in), kv = kept_bytes(in);
  const double sequences = in.sequences, tokens = sequences * in.longest, layers = m.layers;
  const double gpus = std::max(1U, in.rates.gpus), of_gpu = sequences / gpus;
  const double weights = in.weights_on_host.value() * bytes(m.layer_weight_bytes());
  const double recomputed = at(division, TokenPart::recomputed), copied = at(division, TokenPart::copied);
  const double newest = sequences * in.group * kv * layers;
  const double buffers = std::min<double>(in.kv_buffers + 1.0, layers);
  double gpu = bytes(m.weight_bytes()) - weights * (layers - std::min(2.0, layers));
  gpu += at(division, TokenPart::kept) * tokens / gpus * kv * layers;
  if (in.newest_at == Place::gpu()) gpu += newest / gpus;
  // K and V of layers ahead, or the prompts of the prefill on their way out with what enters and leaves a layer.
  const double ahead = of_gpu * in.longest * buffers * (recomputed * (fp16 + x) + copied * kv);
  const double prefill = of_gpu * in.prompt * (buffers * (fp16 + (recomputed > 0 ? x : 0)) + 4 * x);
  gpu += std::max(ahead, prefill);
  if (in.kv.quantised()) gpu += of_gpu * in.longest * (at(division, TokenPart::kept) + copied) * fp16;  // dequantised
  const double activations = tokens * layers * recomputed * x;
  double host = weights * layers + tokens * layers * copied * kv;
  if (in.newest_at == Place::host()) host += newest;
  double drives = at(division, TokenPart::drives) * tokens * kv * layers;
  (in.activations == Place::host() ? host : drives) += activations;
  const auto beyond = [](double used, Bytes capacity) {
    return capacity.value == 0 ? 0 : std::max(0.0, used / bytes(capacity) - 1);
  };
  return beyond(gpu, in.rates.gpu_memory) + beyond(host, in.rates.host_memory) + beyond(drives, in.rates.files);
}

/// What the search minimises: the time, and a little of all work. Far more beyond what fits.
double cost(const DivisionInputs& in, const Division& division) {
  const LayerTimes times = layer_times(in, division);
  constexpr double kTies = 1e-5, kBeyond = 1e6;
  return times.layer + kTies * (times.attention + times.link + times.drives) + kBeyond * overflow(in, division);
}

/// Searches the open shares, which together are what the given ones leave.
class Search {
 public:
  Search(const DivisionInputs& inputs, const GivenShares& given) : inputs_(inputs) {
    double rest = 1;
    for (const TokenPart part : kEachPart)
      if (const auto& share = given[part_index(part)])
        rest -= tried_[part_index(part)] = share->value();
      else
        open_.push_back(part_index(part));
    if (rest < -1e-9) throw InternalError("given shares of tokens beyond the whole");
    rest = std::max(0.0, rest);
    best_ = tried_;
    if (open_.empty()) return;
    constexpr double kFirst = 16, kLast = 4096;
    scan(0, rest, Division{}, rest / kFirst, kFirst);
    for (double step = rest / kFirst / 2; step >= 1 / kLast; step /= 2)
      for (double before = 0; before != least_;) {
        before = least_;
        scan(0, rest, Division{best_}, step, 2);
      }
  }

  const Division& best() const { return best_; }

 private:
  /// Tries up to `reach` steps around `centre` for the open shares from `index` on; the last one takes the rest.
  void scan(std::size_t index, double rest, const Division& centre, double step, double reach) {
    double& share = tried_[open_[index]];
    if (index + 1 == open_.size()) {
      share = rest;
      if (const double found = cost(inputs_, tried_); found < least_ * (1 - 1e-9)) least_ = found, best_ = tried_;
      return;
    }
    for (double steps = -reach; steps <= reach; ++steps) {
      const double next = centre[open_[index]] + steps * step;
      if (next < -1e-12 || next > rest + 1e-12) continue;
      share = std::clamp(next, 0.0, rest);
      scan(index + 1, rest - share, centre, step, reach);
    }
  }

  const DivisionInputs& inputs_;
  std::vector<std::size_t> open_;
  Division best_{}, tried_{};
  double least_ = std::numeric_limits<double>::infinity();
};

}  // namespace

LayerTimes layer_times(const DivisionInputs& in, const Division& division) {
  const ModelShape& m = in.model;
  const PlatformRates& rates = in.rates;
  const auto gpu = [&](const ComputeWork& work) { return in.gpu.time(work).seconds(); };
  const std::uint32_t batches = std::clamp(rates.mini_batches, 1U, in.sequences), gpus = std::max(1U, rates.gpus);
  const double of_gpu = std::ceil(double(batches) / gpus);  // mini-batches of the GPU with most of them
  const auto n = static_cast<std::uint64_t>(std::lround(double(in.sequences) / batches));
  const double tokens = double(n) * in.cached, in_drives = at(division, TokenPart::drives) * tokens;
  const double recomputed = at(division, TokenPart::recomputed) * tokens;
  const double copied = at(division, TokenPart::copied) * tokens;
  const double on_gpu = tokens - in_drives + double(n) * (in.newest + 1);
  const double kv = kept_bytes(in), activations = recomputed * activation_bytes(in);

  LayerTimes of_batch;
  // With its part of what a step does before the first layer and after the last one.
  of_batch.projections =
      gpu(m.attention_inputs(n)) + gpu(m.finish_layer(n)) + (gpu(m.embed(n)) + gpu(m.sample(n))) / m.layers;
  ComputeWork attention = m.decode_attention(n, whole(on_gpu));
  if (in.kv.quantised()) {
    attention = after_dequantising(attention, m, in.kv, whole(on_gpu - recomputed));
    of_batch.projections += gpu(quantise_kv(m, in.kv, n));
  }
  of_batch.attention = gpu(attention) + (recomputed >= 0.5 ? gpu(m.recompute_kv(whole(recomputed))) : 0);
  const double newest = in.newest_at == Place::host() ? double(n) * in.newest : 0;
  double copies = kv * (copied + newest), from_peers = 0;
  (in.activations == Place::drive_blocks() && !rates.through_host ? from_peers : copies) += activations;
  if (in_drives >= 0.5) {
    const HeadRange all{KvHead{0}, m.kv_heads};
    const double queries = double(n) * bytes(m.query_bytes(all)), outputs = double(n) * bytes(m.partial_bytes(all));
    of_batch.projections += gpu(m.merge_attention(n, rates.drives + 1));
    of_batch.drives = rates.drive.command.seconds() + (queries + outputs) / per_second(rates.drive.link) +
                      attending(in, in_drives / rates.drives, in_drives / double(n) / rates.drives);
    (rates.through_host ? copies : from_peers) += rates.drives * outputs;
  }
  of_batch.link = copies / per_second(rates.host_to_gpu) + from_peers / per_second(rates.gpu_peer_link);
  if (in.activations == Place::drive_blocks())
    of_batch.reading =
        activations / rates.drives / std::min(per_second(rates.drive.reads), per_second(rates.drive.link));

  LayerTimes all{.projections = of_gpu * of_batch.projections,
                 .attention = of_gpu * of_batch.attention,
                 .link = of_gpu * of_batch.link,
                 .drives = batches * of_batch.drives,
                 .reading = batches * of_batch.reading};
  all.link += in.weights_on_host.value() * bytes(m.layer_weight_bytes()) / per_second(rates.host_to_gpu);
  all.layer = std::max({all.link, all.projections + all.attention, all.drives + all.reading,
                        of_batch.projections + std::max(of_batch.attention, of_batch.drives)});
  return all;
}

Division solve_division(const DivisionInputs& inputs, const GivenShares& given) {
  const Division best = Search(inputs, given).best();
  if (overflow(inputs, best) > 1e-6)
    throw UserError(
        "no division of the tokens fits: give the GPU, the host or the drives more memory, or take a smaller batch");
  return best;
}

}  // namespace csdsim::host
