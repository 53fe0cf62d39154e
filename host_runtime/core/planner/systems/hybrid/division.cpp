#include "host_runtime/core/planner/systems/hybrid/division.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/golden_section.h"
#include "host_runtime/core/planner/kept_kv.h"

namespace csdsim::host {

namespace {

using GivenParts = std::array<std::optional<double>, kTokenParts>;

double at(const Division& division, TokenPart part) { return division[static_cast<std::size_t>(part)]; }

double per_second(Bandwidth rate) { return static_cast<double>(rate.bytes_per_second); }
double bytes(Bytes of) { return static_cast<double>(of.value); }
std::uint64_t whole(double tokens) { return static_cast<std::uint64_t>(std::llround(tokens)); }

/// K and V of a token and layer as they are kept.
double kept_bytes(const DivisionInputs& in) { return bytes(kept_kv_bytes(in.model, in.kv)) * in.model.kv_heads; }

std::uint32_t mini_batches(const DivisionInputs& in) {
  return std::max(1U, std::min(in.rates.mini_batches, in.sequences));
}

/// Groups in the drive with most of them, of as many as the drives together have got in turn, on average.
double most_groups(double groups, double drives) {
  if (groups <= 0) return 0;
  return std::max(std::min(1.0, groups), groups / drives + (drives - 1) / (2 * drives));
}

/// Bytes of activations that a step reads from the drive with most of them: whole blocks of the prompts, and of each
/// group, as ActivationBlocks has them.
Bytes read_from_drive(const DivisionInputs& in, const Division& division, std::uint64_t sequences) {
  const double share = at(division, TokenPart::recomputed), drives = in.rates.drives;
  const double row = double(in.model.width) * in.model.element_bytes;
  const auto blocks = [&](double tokens) {
    const double block = std::max(1.0, bytes(in.rates.block_size));
    return std::ceil(double(sequences) * tokens * row / block) * block;
  };
  const double groups = most_groups(share * std::max(0.0, in.cached - in.prompt) / in.group, drives);
  return Bytes{whole(blocks(std::ceil(std::round(share * in.prompt) / drives)) + groups * blocks(in.group))};
}

/// Bytes beyond what the memories hold, as a share of them.
double overflow(const DivisionInputs& in, const Division& division) {
  const ModelShape& m = in.model;
  const double fp16 = bytes(m.kv_bytes_per_token_and_layer()), x = double(m.width) * m.element_bytes;
  const double kv = kept_bytes(in);
  const double sequences = in.sequences, tokens = sequences * in.held, layers = m.layers;
  const double gpus = std::max(1U, in.rates.gpus), of_gpu = sequences / gpus;
  const double weights = in.weights_on_host.value() * bytes(m.layer_weight_bytes());
  const double recomputed = at(division, TokenPart::recomputed), copied = at(division, TokenPart::copied);
  const double newest = sequences * in.group * kv * layers;
  const double buffers = std::min<double>(in.kv_buffers + 1.0, layers);
  double gpu = bytes(m.weight_bytes()) - weights * (layers - std::min(2.0, layers));
  gpu += at(division, TokenPart::kept) * tokens / gpus * kv * layers;
  if (in.newest_at == NewestAt::gpu) gpu += newest / gpus;
  // K and V of layers ahead, or the prompts of the prefill on their way out with what enters and leaves a layer.
  const double ahead = of_gpu * in.longest * buffers * (recomputed * (fp16 + x) + copied * kv);
  const double prefill = of_gpu * in.prompt * (buffers * (fp16 + (recomputed > 0 ? x : 0)) + 4 * x);
  gpu += std::max(ahead, prefill);
  if (in.kv.quantised()) gpu += of_gpu * in.longest * (at(division, TokenPart::kept) + copied) * fp16;  // dequantised
  const double activations = tokens * layers * recomputed * x;
  double host = weights * layers + tokens * layers * copied * kv;
  if (in.newest_at == NewestAt::host) host += newest;
  double drives = at(division, TokenPart::drives) * tokens * kv * layers;
  (in.activations == StoredAt::host ? host : drives) += activations;
  const auto beyond = [](double used, Bytes capacity) {
    return capacity.value == 0 ? 0 : std::max(0.0, used / bytes(capacity) - 1);
  };
  return beyond(gpu, in.rates.gpu_memory) + beyond(host, in.rates.host_memory) + beyond(drives, in.rates.files);
}

/// What a search minimises: the time, and a little of all work. Far more beyond what fits.
double cost(const DivisionInputs& in, const Division& division) {
  const LayerTimes times = layer_times(in, division);
  constexpr double kTies = 1e-5, kBeyond = 1e6;
  return times.layer + kTies * (times.attention + times.link + times.drives) + kBeyond * overflow(in, division);
}

/// Searches shares that are the whole together, one after another.
class Search {
 public:
  using Cost = std::function<double(const Division&)>;

  Search(Cost cost, const GivenParts& given) : cost_(std::move(cost)) {
    double sum = 0;
    for (std::size_t part = 0; part < kTokenParts; ++part) {
      if (given[part])
        sum += best_[part] = *given[part];
      else
        open_.push_back(part);
    }
    if (sum > 1 + 1e-9) throw InternalError("given shares of tokens beyond the whole");
    if (open_.empty()) return;
    const double rest = std::max(0.0, 1 - sum);
    search(0, rest);
    round();
    exchange();
    // Pages are whole, so the time may have several local minima: search the others, too.
    const Division found = best_;
    least_ = std::numeric_limits<double>::infinity();
    scan(0, rest, rest / kScanned);
    best_ = scanned_;
    round();
    exchange();
    if (cost_(found) <= cost_(best_)) best_ = found;
  }

  const Division& best() const { return best_; }

 private:
  /// Least cost if the open shares from `index` on are `rest` together. Leaves these shares in best_.
  double search(std::size_t index, double rest) {
    const std::size_t part = open_[index];
    if (index + 1 == open_.size()) {
      best_[part] = rest;
      return cost_(best_);
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

  /// All divisions of `rest` among the open shares from `index` on, in pieces of `step`. Leaves the best in scanned_.
  void scan(std::size_t index, double rest, double step) {
    const std::size_t part = open_[index];
    if (index + 1 == open_.size()) {
      best_[part] = rest;
      if (const double found = cost_(best_); found < least_) least_ = found, scanned_ = best_;
      return;
    }
    for (int pieces = 0; pieces * step <= rest + step / 2; ++pieces) {
      best_[part] = std::min(rest, pieces * step);
      scan(index + 1, std::max(0.0, rest - best_[part]), step);
      if (step == 0) return;
    }
  }

  /// Makes the open shares but the last one multiples of the least share: a token more may be a page more.
  void round() {
    double rest = 0;
    for (const std::size_t part : open_) rest += best_[part];
    for (const std::size_t part : open_) {
      best_[part] = part == open_.back() ? rest : std::min(rest, std::round(best_[part] / kLeastShare) * kLeastShare);
      rest -= best_[part];
    }
  }

  /// Moves shares from one part to another while this is better.
  void exchange() {
    double least = cost_(best_);
    for (double share = 1.0 / 16; share >= kLeastShare; share /= 2)
      for (bool better = true; better;) {
        better = false;
        for (const std::size_t from : open_)
          for (const std::size_t to : open_) {
            if (from == to || best_[from] <= 0) continue;
            const Division other = moved(best_, from, to, share);
            if (const double found = cost_(other); found < least * (1 - 1e-6))
              least = found, best_ = other, better = true;
          }
      }
  }

  static constexpr int kSteps = 24, kScanned = 32;
  Cost cost_;
  std::vector<std::size_t> open_;
  Division best_{}, scanned_{};
  double least_ = 0;
};

/// Seconds on links for a layer of a mini-batch.
struct OnLinks {
  double copies = 0, reads = 0;     ///< over the GPU's link: copies, and activations that drives send to it
  double queries = 0, outputs = 0;  ///< until the last drive has its queries, and the GPU the last output
  double behind_copies = 0;         ///< more for outputs, if copies are always under way
  double crossing = 0;              ///< the link of a drive, outputs and reads of activations
};

/// Queries and outputs of a drive, so many bytes. All drives get their queries, and return their outputs, at about the
/// same time.
void send(OnLinks& links, const PlatformRates& rates, double queries, double outputs) {
  const double of_drive = 1 / per_second(rates.drive_link), of_copies = 1 / per_second(rates.host_to_gpu);
  links.queries = queries * of_drive;
  links.outputs = outputs * of_drive;
  if (rates.through_host) {
    links.queries += queries * of_copies + rates.link_latency.seconds();
    links.outputs += rates.drives * (outputs * of_copies + rates.link_latency.seconds());
    return;
  }
  // The GPU's link forwards the first ones as they come, and the others one after another.
  links.outputs += std::max(queries, outputs) * (rates.drives - 1) / per_second(rates.gpu_peer_link);
  constexpr double kPiece = 4096;  // of transfers that share a link (nvme::kSharedPiece)
  links.behind_copies = std::ceil(outputs / kPiece) * kPiece * of_copies;
}

/// Of a drive, for a layer of a mini-batch, in most steps and in those in which it gets a group. Of one mini-batch the
/// drive's attention and the GPU's projections alternate.
struct DriveTimes {
  double attending = 0, writing = 0;              ///< attention by itself
  double waited_for = 0, waited_for_writing = 0;  ///< from the projections on, behind reads of activations
  double busy = 0, busy_writing = 0;              ///< with reads of activations, without waiting
};

DriveTimes drive_times(const DivisionInputs& in, const DriveAttention& asked, const OnLinks& links, double projections,
                       bool alternates) {
  const PlatformRates& rates = in.rates;
  const bool reads = asked.read.value > 0, writes = in.cached > in.prompt;
  const auto reading = [&](Bytes read) { return rates.drive_attention(in.model, {.read = read}); };
  // All drives and the copies divide the GPU's link evenly.
  const double shared = std::min(links.reads * (1 + 1.0 / rates.drives), links.reads + links.copies);
  const double way = reads ? std::max(1 / per_second(rates.drive_link), shared / bytes(asked.read)) : 0;
  /// From the beginning of the reads, or without any from the arrival of the queries, before which the drive is idle.
  const auto attending = [&](Bytes read, double queries_after, double appended) {
    DriveAttention of = asked;
    of.read = read, of.queries_after = queries_after, of.appended = appended, of.way = read.value > 0 ? way : 0;
    return rates.drive_attention(in.model, of);
  };
  DriveTimes times;
  // Flash never reads faster than if reads of the next layer follow at once.
  if (reads) times.busy = std::max(reading(asked.read * 2) - reading(asked.read), links.crossing);
  times.busy_writing = times.busy;
  if (asked.tokens <= 0) return times;
  const double sent = links.queries + links.outputs;
  const double idle = alternates && !reads ? projections + sent : 0;
  times.attending = attending({}, idle, 0) + sent;
  times.writing = writes ? attending({}, idle, in.group) + sent : times.attending;
  times.waited_for = times.attending, times.waited_for_writing = times.writing;
  if (!reads) {
    times.busy = times.attending, times.busy_writing = times.writing;
    return times;
  }
  // A drive reads when it has attended, while the GPU projects.
  const auto behind_reads = [&](double appended) {
    return attending(asked.read, projections + links.queries, appended) + links.outputs - projections;
  };
  times.waited_for = behind_reads(0);
  times.waited_for_writing = writes ? behind_reads(in.group) : times.waited_for;
  // Its link is idle until flash has the first request. The outputs of the next layer follow the reads.
  const Bytes first{std::min(asked.read.value, activation_request(rates.block_size).value)};
  const double crossing =
      links.crossing + reading(first) + std::max(0.0, shared - bytes(asked.read) / per_second(rates.drive_link));
  times.busy = times.busy_writing = std::max(times.busy, crossing);
  if (alternates) return times;
  times.busy = std::max(times.busy, attending(asked.read, 0, 0) + sent);
  times.busy_writing = writes ? std::max(times.busy, attending(asked.read, 0, in.group) + sent) : times.busy;
  return times;
}

}  // namespace

LayerTimes layer_times(const DivisionInputs& in, const Division& division) {
  const ModelShape& m = in.model;
  const PlatformRates& rates = in.rates;
  const std::uint32_t batches = mini_batches(in), gpus = std::max(1U, rates.gpus);
  const double of_gpu = std::ceil(double(batches) / gpus);  // mini-batches of the GPU with most of them
  const auto n = static_cast<std::uint64_t>(std::lround(double(in.sequences) / batches));
  const double tokens = double(n) * in.cached;
  const double recomputed = at(division, TokenPart::recomputed) * tokens;
  const double copied = at(division, TokenPart::copied) * tokens, drives = at(division, TokenPart::drives);
  const double on_gpu = (1 - drives) * tokens + double(n) * (in.newest + 1);
  const double kv = kept_bytes(in), x = double(m.width) * m.element_bytes;
  const bool recomputes = recomputed >= 0.5, copies = copied >= 0.5;
  const bool attends = drives * tokens >= 0.5, copies_newest = in.newest_at == NewestAt::host && in.newest > 0;

  LayerTimes of_batch;
  // With its part of what a step does before the first layer and after the last one.
  of_batch.projections = rates.gpu_time(m.attention_inputs(n)) + rates.gpu_time(m.finish_layer(n)) +
                         (rates.gpu_time(m.embed(n)) + rates.gpu_time(m.sample(n))) / m.layers;
  if (attends) of_batch.projections += rates.gpu_time(m.merge_attention(n, rates.drives + 1));
  ComputeWork attention = m.decode_attention(n, whole(on_gpu));
  if (in.kv.quantised()) {
    attention = after_dequantising(attention, m, in.kv, whole(on_gpu - recomputed));
    of_batch.projections += rates.gpu_time(quantise_kv(m, in.kv, n));
  }
  of_batch.attention = rates.gpu_time(attention);
  if (recomputes) of_batch.attention += rates.gpu_time(m.recompute_kv(whole(recomputed)));
  // Peer to peer, activations of the drives cross the GPU's link without a copy.
  const bool peers = in.activations == StoredAt::drives && !rates.through_host;
  const double moved = (peers ? 0 : x * recomputed) + kv * (copied + (copies_newest ? double(n) * in.newest : 0));
  const int transfers = (recomputes && !peers ? 1 : 0) + (copies ? 1 : 0) + (copies_newest ? 1 : 0);
  of_batch.link = moved / per_second(rates.host_to_gpu) + transfers * rates.link_latency.seconds();
  const double copying = of_batch.link, peer_reads = peers ? x * recomputed / per_second(rates.gpu_peer_link) : 0;
  of_batch.link += peer_reads;
  const bool reads = recomputes && in.activations == StoredAt::drives;
  DriveAttention asked{.sequences = static_cast<std::uint32_t>(n), .kv = in.kv};
  if (reads) asked.read = read_from_drive(in, division, n);
  OnLinks on_links{
      .copies = copying, .reads = peer_reads, .crossing = bytes(asked.read) / per_second(rates.drive_link)};
  if (attends) {
    asked.grown = in.group * most_groups(drives * (in.cached - in.prompt) / in.group, rates.drives);
    asked.tokens = std::ceil((in.prompt - std::round((1 - drives) * in.prompt)) / rates.drives) + asked.grown;
    if (in.fullest_drive) asked.tokens = *in.fullest_drive, asked.grown = 0;
    if (in.sparf) {
      const auto held = static_cast<std::uint32_t>(std::ceil(asked.tokens));
      asked.sparse = SparseBudget{
          .components = in.sparf->components(), .tokens = in.sparf->top_k(held), .local = in.sparf->local(held)};
    }
    const HeadRange all{KvHead{0}, m.kv_heads};
    const double queries = double(n) * bytes(m.query_bytes(all)), outputs = double(n) * bytes(m.partial_bytes(all));
    on_links.crossing += outputs / per_second(rates.drive_link);
    send(on_links, rates, queries, outputs);
    // The outputs of all drives come over the link of the GPU, besides the copies.
    of_batch.link += rates.drives * outputs / per_second(rates.through_host ? rates.host_to_gpu : rates.gpu_peer_link);
  }
  const DriveTimes of_drive = drive_times(in, asked, on_links, of_batch.projections, batches == 1);
  of_batch.drives = of_drive.attending, of_batch.writing = of_drive.writing;

  LayerTimes all{.projections = of_gpu * of_batch.projections,
                 .attention = of_gpu * of_batch.attention,
                 .link = of_gpu * of_batch.link,
                 .drives = batches * of_batch.drives,
                 .writing = batches * of_batch.writing,
                 .reading = batches * of_drive.busy};
  all.link += in.weights_on_host.value() * bytes(m.layer_weight_bytes()) / per_second(rates.host_to_gpu);
  const auto layer = [&](double busy, double waited_for) {
    const auto alone = [&](double behind) {
      return of_batch.projections + std::max(of_batch.attention, waited_for + behind);
    };
    const double slowest = std::max({all.link, all.projections + all.attention, batches * busy, alone(0)});
    return std::max(slowest, alone(on_links.behind_copies * all.link / slowest));
  };
  const double writes = in.drive_writes.value_or(drives / in.group);
  all.layer = (1 - writes) * layer(of_drive.busy, of_drive.waited_for) +
              writes * layer(of_drive.busy_writing, of_drive.waited_for_writing);
  return all;
}

Division moved(const Division& division, std::size_t from, std::size_t to, double share) {
  Division result = division;
  result[to] += std::min(share, division[from]);
  result[from] = std::max(0.0, division[from] - share);
  return result;
}

bool fits(const DivisionInputs& inputs, const Division& division) { return overflow(inputs, division) <= 1e-6; }

Division solve_division(const DivisionInputs& inputs, const std::array<std::optional<double>, kTokenParts>& given) {
  const Division best = Search([&](const Division& d) { return cost(inputs, d); }, given).best();
  if (!fits(inputs, best))
    throw UserError(
        "no division of the tokens fits: give the GPU, the host or the drives more memory, or take a smaller batch");
  return best;
}

Division solve_earlier_division(const DivisionInputs& inputs, const GivenParts& given, const Division& later,
                                double later_cached) {
  // The search is for the shares of the tokens that come in between. Where they are more than a part has later, it
  // would have to give tokens away.
  const double between = later_cached - inputs.cached;
  if (between <= 0) return later;
  double missing = 0;
  const auto before = [&](const Division& added) {
    Division division{};
    missing = 0;
    for (std::size_t part = 0; part < kTokenParts; ++part) {
      const double left = later[part] * later_cached - added[part] * between;
      missing += std::max(0.0, -left);
      division[part] = std::max(0.0, left) / inputs.cached;
    }
    return division;
  };
  constexpr double kMissing = 1e6;
  const Search search(
      [&](const Division& added) {
        const double of_time = cost(inputs, before(added));
        return of_time + kMissing * missing / inputs.cached;
      },
      given);
  return before(search.best());
}

}  // namespace csdsim::host
