// K and V in tiers, and weights in host memory: bytes of each tier against closed forms, copies that take turns,
// buffers.
#include <catch2/catch.hpp>

#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "host_runtime/core/plan/router.h"
#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "tests/support/planner_support.h"

namespace test_tiered_kv {

using namespace csdsim;
using namespace csdsim::host;
using namespace csdsim::host::test;

namespace {

constexpr std::uint32_t kLayers = 5;
const std::vector<std::uint32_t> kPrompts = {30, 17, 44, 8};

PlannerInputs inputs(std::uint32_t mini_batches, std::uint32_t output_tokens = 5) {
  return small_inputs(kLayers, kPrompts, output_tokens, mini_batches);
}

TieredKv tiers(Ratio on_gpu, Ratio on_host) { return {.shards = tier_heads(small_model().kv_heads, on_gpu, on_host)}; }

Bytes sizes(const FileWork& work) {
  Bytes sum;
  for (const FileRange& range : work.ranges) sum += range.size;
  return sum;
}

/// Bytes of K and V that the decode steps move, in all layers.
struct Moved {
  Bytes file_read, file_written, to_gpu, from_gpu, weights, weights_read;
};

std::map<std::uint32_t, Moved> moved_by_step(Planner& planner) {
  std::map<std::uint32_t, Moved> steps;
  for (const Operation& op : all_operations(planner)) {
    if (op.tag.phase != Phase::decode) continue;
    Moved& of = steps[op.tag.step];
    if (const auto* file = std::get_if<FileWork>(&op.work)) {
      Bytes& read = file->payload == LinkPayload::weights ? of.weights_read : of.file_read;
      (op.kind == OpKind::read_file ? read : of.file_written) += sizes(*file);
    }
    if (const auto* link = std::get_if<LinkWork>(&op.work)) {
      if (link->payload == LinkPayload::weights)
        of.weights += link->bytes;
      else
        (op.resource.kind == ResourceKind::host_to_gpu ? of.to_gpu : of.from_gpu) += link->bytes;
    }
  }
  return steps;
}

/// Runs a plan with a ledger; the given durations. Peaks of GPU memory by class.
std::array<Bytes, kTensorClasses> peaks_at(Place place, Planner& planner,
                                           const std::function<SimTime(const Operation&)>& time) {
  FunctionBackend backend(time);
  Router router;
  for (std::size_t kind = 0; kind < kResourceKinds; ++kind) router.add(static_cast<ResourceKind>(kind), backend);
  std::array<Bytes, kTensorClasses> peaks{};
  Executor executor(planner, router, {});
  executor.start({});
  const auto look = [&] {
    const Footprint now = router.tensors().footprint(place);
    for (std::size_t c = 0; c < kTensorClasses; ++c) peaks[c] = std::max(peaks[c], now.of_class[c]);
  };
  look();
  while (!executor.finished()) {
    executor.advance(executor.next_event());
    look();
  }
  return peaks;
}

std::array<Bytes, kTensorClasses> gpu_peaks(Planner& planner, const std::function<SimTime(const Operation&)>& time) {
  return peaks_at(Place::gpu(), planner, time);
}

Bytes peak_of(const std::array<Bytes, kTensorClasses>& peaks, TensorClass what) {
  return peaks[static_cast<std::size_t>(what)];
}

std::uint64_t context(std::uint32_t step) {
  std::uint64_t tokens = 0;
  for (const std::uint32_t prompt : kPrompts) tokens += prompt + step;
  return tokens;
}

}  // namespace

TEST_CASE("tier_heads covers all heads once, in order, rounded to whole heads") {
  for (const std::uint32_t heads : {1U, 4U, 7U, 40U})
    for (std::uint64_t gpu = 0; gpu <= 100; gpu += 10)
      for (std::uint64_t host = 0; gpu + host <= 100; host += 5) {
        std::uint32_t next = 0;
        std::map<Place, double> share;
        for (const KvShard& shard : tier_heads(heads, Ratio::of(gpu, 100), Ratio::of(host, 100))) {
          CHECK(shard.heads.first.value == next);
          CHECK(shard.heads.count > 0);
          next += shard.heads.count;
          share[shard.tier] += shard.heads.count;
        }
        CAPTURE(heads, gpu, host);
        CHECK(next == heads);
        CHECK(std::abs(share[Place::gpu()] - heads * double(gpu) / 100) <= 0.5 + 1e-9);
        CHECK(std::abs(share[Place::host()] - heads * double(host) / 100) <= 1 + 1e-9);
      }
  CHECK(tier_heads(8, {1, 1}, {0, 1}).size() == 1);
  CHECK(tier_heads(10, Ratio::of(3, 10), Ratio::of(3, 10)).size() == 3);
}

TEST_CASE("a decode step reads every byte of K and V of a tier once, and writes those of the new tokens") {
  const std::uint32_t mini_batches = GENERATE(1U, 3U);
  const ModelShape model = small_model(kLayers);
  const Bytes head = model.kv_bytes_per_token_and_head() * kLayers;
  // 4 heads: one on the GPU, one on the host, two in files.
  TieredKvPlanner planner(inputs(mini_batches), tiers(Ratio::of(1, 4), Ratio::of(1, 4)));
  const auto steps = moved_by_step(planner);
  REQUIRE(steps.size() == 4);
  for (const auto& [step, of] : steps) {
    CAPTURE(step, mini_batches);
    CHECK(of.file_read == head * 2 * context(step));
    CHECK(of.to_gpu == head * 3 * context(step));
    CHECK(of.from_gpu == head * 3 * kPrompts.size());
    CHECK(of.file_written == head * 2 * kPrompts.size());
  }
}

TEST_CASE("rewritten caches: each step reads one copy and writes all of the other") {
  const ModelShape model = small_model(kLayers);
  TieredKv kv = tiers({0, 1}, {0, 1});
  kv.rewritten = true;
  TieredKvPlanner planner(inputs(2, 6), kv);
  const Bytes row = model.kv_bytes_per_token_and_layer();
  std::map<std::string, std::set<std::uint64_t>> last_written;  // offsets
  std::map<std::string, Bytes> size;
  for (const PlannedFile& file : planner.files()) {
    size[file.name] = file.size;
    CHECK(file.written.empty());
  }
  std::map<std::uint32_t, Bytes> written, read;
  std::map<std::string, std::uint64_t> first;  // copy: lowest offset of the latest write
  for (const Operation& op : all_operations(planner)) {
    const auto* work = std::get_if<FileWork>(&op.work);
    if (work == nullptr) continue;
    std::set<std::uint64_t> offsets;
    for (const FileRange& range : work->ranges) {
      offsets.insert(range.offset.value);
      CHECK(range.offset + range.size <= size.at(work->file));
    }
    if (op.kind == OpKind::read_file) {
      CHECK(offsets == last_written.at(work->file));  // what was written last is read
      read[op.tag.step] += sizes(*work);
    } else {
      const bool decode = op.tag.phase == Phase::decode;
      if (decode) {
        CHECK(offsets != last_written.at(work->file));  // to the other copy
        written[op.tag.step] += sizes(*work);
      }
      // Two copies, each of one half of the file.
      const std::uint64_t half = size.at(work->file).value / 2;
      const std::uint64_t copy = decode ? (op.tag.step + 1) % 2 : 0;
      CHECK(*offsets.begin() == copy * half);
      last_written[work->file] = offsets;
    }
  }
  REQUIRE(written.size() == 5);
  for (std::uint32_t step = 0; step < 5; ++step) {
    CHECK(read[step] == row * kLayers * context(step));
    CHECK(written[step] == row * kLayers * context(step + 1));
  }
}

TEST_CASE("what a span finds in files is what the steps before it have left") {
  for (const bool rewritten : {false, true}) {
    TieredKv kv = tiers({0, 1}, Ratio::of(1, 4));
    kv.rewritten = rewritten;
    PlannerInputs whole = inputs(2, 9);
    const std::uint32_t skipped = GENERATE(1U, 4U, 5U);
    whole.span.decode_steps = skipped;
    std::map<std::string, std::set<FileRange>> left;  // the last ranges of each file, by sequence
    TieredKvPlanner before(whole, kv);
    for (const Operation& op : all_operations(before))
      if (const auto* work = std::get_if<FileWork>(&op.work); work != nullptr && op.kind == OpKind::write_file)
        for (const FileRange& range : work->ranges) left[work->file].insert(range);
    PlannerInputs rest = inputs(2, 9);
    rest.span = {.prefill = false, .first_step = skipped, .decode_steps = 1};
    TieredKvPlanner after(rest, kv);
    for (const PlannedFile& file : after.files()) {
      // Every byte that is said to be there was written.
      for (const FileRange& range : file.written) {
        Bytes covered = range.offset;
        for (const FileRange& each : left.at(file.name))
          if (each.offset <= covered) covered = std::max(covered, each.offset + each.size);
        CHECK(covered >= range.offset + range.size);
      }
    }
    // And the step reads nothing else.
    for (const Operation& op : all_operations(after))
      if (const auto* work = std::get_if<FileWork>(&op.work); work != nullptr && op.kind == OpKind::read_file)
        for (const FileRange& range : work->ranges) {
          bool there = false;
          for (const PlannedFile& file : after.files())
            for (const FileRange& each : file.written)
              there |= file.name == work->file && each.offset <= range.offset &&
                       range.offset + range.size <= each.offset + each.size;
          CHECK(there);
        }
  }
}

TEST_CASE("the GPU holds copies of K and V of at most kv_buffers layers per mini-batch") {
  const std::uint32_t mini_batches = GENERATE(1U, 2U), buffers = GENERATE(1U, 2U, 3U);
  for (const bool in_files : {false, true}) {
    TieredKv kv = tiers({0, 1}, in_files ? Ratio{0, 1} : Ratio{1, 1});
    kv.kv_buffers = buffers;
    TieredKvPlanner planner(inputs(mini_batches), kv);
    // Copies are fast and computation is slow: copies run ahead as far as they may.
    const auto peaks = gpu_peaks(
        planner, [](const Operation& op) { return SimTime{op.resource.kind == ResourceKind::gpu ? 1000 : 1}; });
    // Copies for the last step; the one that is attended to has the new tokens, too.
    const Bytes token = small_model(kLayers).kv_bytes_per_token_and_layer();
    const Bytes most = token * (context(3) * buffers + kPrompts.size());
    CAPTURE(mini_batches, buffers, in_files);
    CHECK(peak_of(peaks, TensorClass::kv_cache).value <= most.value);
    if (mini_batches == 1) CHECK(peak_of(peaks, TensorClass::kv_cache).value == most.value);
  }
}

TEST_CASE("the prefill keeps K and V of at most kv_buffers layers on the GPU") {
  const std::uint32_t buffers = GENERATE(1U, 2U, 4U);
  TieredKv kv = tiers({0, 1}, {1, 1});
  kv.kv_buffers = buffers;
  TieredKvPlanner planner(inputs(1, 1), kv);
  const auto peaks = gpu_peaks(
      planner, [](const Operation& op) { return SimTime{op.resource.kind == ResourceKind::gpu_to_host ? 1000 : 1}; });
  CHECK(peak_of(peaks, TensorClass::new_kv) ==
        small_model(kLayers).kv_bytes_per_token_and_layer() * context(0) * buffers);
}

TEST_CASE("weights in host memory: one copy of the share per layer and step for all mini-batches") {
  const std::uint32_t mini_batches = GENERATE(1U, 3U);
  const ModelShape model = small_model(kLayers);
  for (const Ratio on_host : {Ratio{0, 1}, Ratio::of(1, 3), Ratio{1, 1}}) {
    const Bytes share{on_host.floor_of(model.layer_weight_bytes().value)};
    TieredKvPlanner planner(inputs(mini_batches), tiers({1, 1}, {0, 1}), {.on_host = on_host});
    for (const auto& [step, of] : moved_by_step(planner)) CHECK(of.weights == share * kLayers);
    Bytes on_gpu, in_host;
    for (const PlacedTensor& tensor : planner.resident())
      (tensor.place == Place::gpu() ? on_gpu : in_host) += tensor.bytes;
    CHECK(on_gpu + in_host == model.weight_bytes());
    CHECK(in_host == share * kLayers);
  }
}

TEST_CASE("weights in host memory: the GPU holds at most weight_buffers layers of them") {
  const std::uint32_t mini_batches = GENERATE(1U, 3U), buffers = GENERATE(2U, 3U, 5U);
  const ModelShape model = small_model(kLayers);
  TieredKvPlanner planner(inputs(mini_batches), tiers({1, 1}, {0, 1}), {.on_host = {1, 1}, .buffers = buffers});
  const auto peaks =
      gpu_peaks(planner, [](const Operation& op) { return SimTime{op.resource.kind == ResourceKind::gpu ? 1000 : 1}; });
  const Bytes layer = model.layer_weight_bytes();
  CHECK(peak_of(peaks, TensorClass::weights) == model.weight_bytes() - layer * kLayers + layer * buffers);
}

TEST_CASE("weights in files: one read and one copy of the share per layer and step for all mini-batches") {
  const std::uint32_t mini_batches = GENERATE(1U, 3U), drives = GENERATE(1U, 2U);
  const ModelShape model = small_model(kLayers);
  const Bytes head = model.kv_bytes_per_token_and_head() * kLayers;
  for (const Ratio in_files : {Ratio{0, 1}, Ratio::of(1, 3), Ratio::of(3, 4)}) {
    const WeightPlacement weights{.on_host = Ratio::of(1, 4), .in_files = in_files};
    const Bytes on_host{weights.on_host.floor_of(model.layer_weight_bytes().value)},
        read{in_files.floor_of(model.layer_weight_bytes().value)};
    PlannerInputs of = inputs(mini_batches);
    of.drives = drives;
    TieredKvPlanner planner(of, tiers({0, 1}, Ratio::of(1, 4)), weights);
    Bytes resident, in_drives, in_size;
    for (const PlacedTensor& tensor : planner.resident()) {
      resident += tensor.bytes;
      if (tensor.place.kind == PlaceKind::file) in_drives += tensor.bytes;
    }
    CHECK(resident == model.weight_bytes());
    CHECK(in_drives == read * kLayers);
    std::map<std::string, std::uint32_t> drive_of;
    for (const PlannedFile& file : planner.files()) {
      drive_of[file.name] = file.drive.value;
      CHECK(file.written.empty());
      if (file.name.starts_with("weights")) in_size += file.size;
    }
    CHECK(in_size == read * kLayers);
    CHECK(drive_of.size() == kLayers * (mini_batches + (read.value > 0 ? 1 : 0)));
    for (const auto& [step, moved] : moved_by_step(planner)) {
      CHECK(moved.weights == (on_host + read) * kLayers);
      CHECK(moved.weights_read == read * kLayers);
      CHECK(moved.file_read == head * 3 * context(step));  // K and V beside them, as without
    }
    TieredKvPlanner again(of, tiers({0, 1}, Ratio::of(1, 4)), weights);
    for (const Operation& op : all_operations(again))
      if (const auto* file = std::get_if<FileWork>(&op.work)) {
        CHECK(op.resource.index == drive_of.at(file->file));
        CHECK(op.resource.index == op.tag.layer->value % drives);
      }
  }
}

TEST_CASE("weights in files: their file comes before those of K and V of its layer, and a later span finds all of it") {
  PlannerInputs of = inputs(2);
  of.span = {.prefill = false, .first_step = 2, .decode_steps = 1};
  TieredKvPlanner planner(of, tiers({0, 1}, {0, 1}), {.in_files = Ratio::of(1, 2)});
  const std::vector<PlannedFile> files = planner.files();
  REQUIRE(files.size() == kLayers * 3);
  for (std::uint32_t layer = 0; layer < kLayers; ++layer) {
    const PlannedFile& weights = files[3 * layer];
    CHECK(weights.name == "weights of layer " + std::to_string(layer));
    REQUIRE(weights.written.size() == 1);
    CHECK(weights.written[0] == FileRange{{}, weights.size});
    for (const std::size_t mb : {1U, 2U})
      CHECK(files[3 * layer + mb].name.starts_with("K and V of layer " + std::to_string(layer)));
  }
  CHECK(planner.reuse_distance() == 1);
}

TEST_CASE("weights in files: GPU and host each hold at most weight_buffers layers of them") {
  const std::uint32_t mini_batches = GENERATE(1U, 3U), buffers = GENERATE(2U, 3U, 5U);
  const ModelShape model = small_model(kLayers);
  const WeightPlacement weights{.on_host = Ratio::of(1, 4), .in_files = Ratio::of(1, 2), .buffers = buffers};
  const Bytes on_host{weights.on_host.floor_of(model.layer_weight_bytes().value)},
      read{weights.in_files.floor_of(model.layer_weight_bytes().value)};
  const auto plan = [&] { return TieredKvPlanner(inputs(mini_batches), tiers({1, 1}, {0, 1}), weights); };
  // Computation is slow: copies run ahead as far as they may.
  TieredKvPlanner computing = plan();
  const auto at_gpu = gpu_peaks(
      computing, [](const Operation& op) { return SimTime{op.resource.kind == ResourceKind::gpu ? 1000 : 1}; });
  CHECK(peak_of(at_gpu, TensorClass::weights) ==
        model.weight_bytes() - (on_host + read) * kLayers + (on_host + read) * buffers);
  // The link is slow: what has been read waits in host memory.
  TieredKvPlanner copying = plan();
  const auto at_host = peaks_at(Place::host(), copying, [](const Operation& op) {
    return SimTime{op.resource.kind == ResourceKind::host_to_gpu ? 1000 : 1};
  });
  CHECK(peak_of(at_host, TensorClass::weights) == on_host * kLayers + read * buffers);
}

TEST_CASE("a prefill that stores attention weights needs memory for two of them per pair of tokens and head") {
  const ModelShape model = small_model(kLayers);
  TieredKv kv = tiers({1, 1}, {0, 1});
  const auto time = [](const Operation&) { return SimTime{1}; };
  TieredKvPlanner fused(inputs(1), kv);
  CHECK(peak_of(gpu_peaks(fused, time), TensorClass::workspace) == Bytes{});
  kv.stores_attention_weights = true;
  TieredKvPlanner stored(inputs(1), kv);
  std::uint64_t pairs = 0;
  for (const std::uint64_t prompt : kPrompts) pairs += prompt * prompt;
  CHECK(peak_of(gpu_peaks(stored, time), TensorClass::workspace) ==
        Bytes{2 * pairs * model.heads * model.element_bytes});
}

TEST_CASE("no buffers are refused") {
  TieredKv kv = tiers({0, 1}, {1, 1});
  kv.kv_buffers = 0;
  CHECK_THROWS_AS(TieredKvPlanner(inputs(1), kv), UserError);
  CHECK_THROWS_AS(TieredKvPlanner(inputs(1), tiers({0, 1}, {1, 1}), {.on_host = {1, 1}, .buffers = 0}), UserError);
}

TEST_CASE("weights beyond the whole are refused, and so are weights in files beside a cache that is rewritten") {
  const WeightPlacement both{.on_host = Ratio::of(2, 3), .in_files = Ratio::of(1, 2)};
  CHECK_THROWS_AS(TieredKvPlanner(inputs(1), tiers({0, 1}, {1, 1}), both), UserError);
  TieredKv kv = tiers({0, 1}, {0, 1});
  kv.rewritten = true;
  CHECK_THROWS_AS(TieredKvPlanner(inputs(1), kv, {.in_files = Ratio::of(1, 2)}), InternalError);
}

TEST_CASE("a layer's copies may start so many layers ahead as there are buffers; without copies, none", "[tiered]") {
  const auto ahead = [](const Ratio& kv_on_gpu, const Ratio& on_host, const Ratio& in_files) {
    const WeightPlacement weights{.on_host = on_host, .in_files = in_files, .buffers = 5};
    TieredKv kv = tiers(kv_on_gpu, {1 - kv_on_gpu.numerator, 1});
    kv.kv_buffers = 3;
    return TieredKvPlanner(inputs(1), kv, weights).layers_ahead();
  };
  CHECK(ahead({1, 1}, {0, 1}, {0, 1}) == 0);
  CHECK(ahead({0, 1}, {0, 1}, {0, 1}) == 3);
  CHECK(ahead({1, 1}, {1, 2}, {0, 1}) == 5);
  CHECK(ahead({1, 1}, {0, 1}, {1, 2}) == 5);
  CHECK(ahead({0, 1}, {1, 2}, {0, 1}) == 5);
}

}  // namespace test_tiered_kv
