// Attention methods on the GPU against those of the host's processor, which see the same fp16 queries, keys and values:
// the same tokens, up to near ties that rounding may turn, and where the tokens are the same outputs within 2e-3 of the
// largest.
#include <algorithm>
#include <map>
#include <set>
#include <type_traits>

#include "base/error.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/attention/attention_provider.h"
#include "host_runtime/cuda/attention/cuda_attention.h"
#include "tests/gpu/harness.h"
#include "tests/gpu/reference.h"

namespace {

using namespace csdsim;
using namespace csdsim::host;
using namespace gpu_test;

cuda::Context& context() {
  static cuda::Context instance;
  return instance;
}

struct Shape {
  std::uint32_t kv_heads, group, head_dim, layers;

  ModelConfig config() const {
    ModelConfig c;
    c.layers = layers;
    c.heads = kv_heads * group;
    c.kv_heads = kv_heads;
    c.head_dim = head_dim;
    c.width = c.q_width();
    return c;
  }
};

struct Rows {
  Floats q;
  std::vector<Half> k, v;
};

std::vector<Half> halves(const Floats& values) {
  std::vector<Half> result;
  for (const float value : values) result.push_back(float_to_half(value));
  return result;
}

// Queries drift slowly and keys have large components, so that some tokens matter more than others, as in real models.
class RandomRows {
 public:
  RandomRows(const ModelConfig& config, std::uint64_t seed, float sharpness)
      : config_(config), random_(seed), sharpness_(sharpness) {
    drift_ = random_.values(config.q_width());
  }
  Rows rows(std::size_t count) {
    Rows made;
    Floats k = random_.values(count * config_.kv_width());
    for (std::size_t i = 0; i < k.size(); i += 5) k[i] *= 3;
    for (std::size_t row = 0; row < count; ++row) {
      for (float& value : drift_) value = 0.9f * value + 0.4f * random_.value();
      for (const float value : drift_) made.q.push_back(sharpness_ * value);
    }
    made.k = halves(k);
    made.v = halves(random_.values(count * config_.kv_width()));
    return made;
  }

 private:
  ModelConfig config_;
  Random random_;
  float sharpness_;
  Floats drift_;
};

/// What a provider answered: by step the rounded outputs, and what was observed.
struct Answers {
  struct Seen {
    HeadSelection selection;
    std::vector<float> mass;
    std::uint32_t tokens;
  };
  std::vector<std::vector<Half>> outputs;
  std::vector<Seen> seen;
};

struct Run {
  std::vector<std::uint32_t> prompts;
  std::uint32_t steps;
  std::uint64_t seed;
  bool learn = true;    ///< whether the method sees the prompts' queries
  float sharpness = 1;  ///< queries are multiplied by it
};

/// Prompts of ragged sequences, then steps; on the way a sequence leaves and another takes its place.
Answers run(MethodAttention& attention, const Shape& shape, const Run& r) {
  const ModelConfig config = shape.config();
  RandomRows random(config, r.seed, r.sharpness);
  Answers answers;
  attention.set_observer([&](const HeadObservation& o) {
    answers.seen.push_back({o.selection, {o.mass.begin(), o.mass.end()}, o.tokens});
  });
  std::vector<SequenceId> active;
  const auto begin = [&](SequenceId sequence, std::uint32_t tokens) {
    attention.create_sequence(sequence);
    active.push_back(sequence);
    const SequenceSlice slice{sequence, tokens};
    for (LayerId layer{0}; layer.value < shape.layers; ++layer.value) {
      const Rows prompt = random.rows(tokens);
      attention.store(layer, {&slice, 1}, prompt.k, prompt.v);
      if (attention.learns_from_prompt() && r.learn) attention.learn(layer, {&slice, 1}, prompt.q);
    }
  };
  for (std::uint32_t i = 0; i < r.prompts.size(); ++i) begin(SequenceId{i}, r.prompts[i]);
  for (std::uint32_t step = 0; step < r.steps; ++step) {
    if (step == r.steps / 2) {
      attention.free_sequence(active.front());
      active.erase(active.begin());
      begin(SequenceId{100}, r.prompts.front() / 2 + 1);
    }
    for (LayerId layer{0}; layer.value < shape.layers; ++layer.value) {
      const Rows rows = random.rows(active.size());
      std::vector<Half> out(rows.q.size());
      if (attention.speculates() && layer.value > 0) attention.speculate(layer, active, random.rows(active.size()).q);
      attention.attend(layer, active, rows.q, rows.k, rows.v, out);
      answers.outputs.push_back(std::move(out));
    }
  }
  return answers;
}

struct Comparison {
  std::size_t heads = 0, other_tokens = 0;
  double output = 0, mass = 0, alpha = 0;  ///< largest differences; output relative to the largest
};

Comparison compare(const Answers& found, const Answers& expected, const Shape& shape) {
  Comparison result;
  EXPECT(found.seen.size() == expected.seen.size() && found.outputs.size() == expected.outputs.size());
  const std::size_t head_size = std::size_t{shape.group} * shape.head_dim;
  float largest = 0;
  for (const auto& step : expected.outputs) {
    for (const Half h : step) largest = std::max(largest, std::abs(half_to_float(h)));
  }
  std::size_t at = 0;
  for (std::size_t step = 0; step < expected.outputs.size(); ++step) {
    EXPECT(found.outputs[step].size() == expected.outputs[step].size());
    for (std::size_t first = 0; first < expected.outputs[step].size(); first += head_size, ++at) {
      const auto &a = found.seen.at(at), &b = expected.seen.at(at);
      ++result.heads;
      EXPECT(a.tokens == b.tokens);
      EXPECT(a.mass.size() == shape.group && a.selection.alpha.size() == b.selection.alpha.size());
      if (a.selection.tokens != b.selection.tokens || a.selection.components != b.selection.components) {
        ++result.other_tokens;
        continue;
      }
      EXPECT(a.selection.elements == b.selection.elements);
      for (std::size_t g = 0; g < b.mass.size(); ++g) {
        result.mass = std::max(result.mass, std::abs(double{a.mass[g]} - double{b.mass[g]}));
      }
      for (std::size_t g = 0; g < b.selection.alpha.size(); ++g) {
        result.alpha = std::max(result.alpha, std::abs(double{a.selection.alpha[g]} - double{b.selection.alpha[g]}));
      }
      for (std::size_t i = first; i < first + head_size; ++i) {
        const double x = half_to_float(found.outputs[step][i]), y = half_to_float(expected.outputs[step][i]);
        const double off = std::abs(x - y) / double{largest};
        result.output = std::isnan(off) ? INFINITY : std::max(result.output, off);
      }
    }
  }
  return result;
}

void test_method(const ConfiguredMethod& configured, const Shape& shape, const Run& r) {
  const ModelConfig config = shape.config();
  EXPECT(cuda::supports_on_device(configured.options, config));
  cuda::DeviceAttention device(context(), config, configured.options);
  const Answers found = run(device, shape, r);
  HostAttention host(config, make_method(configured.name, configured.options));
  const Answers expected = run(host, shape, r);
  const Comparison c = compare(found, expected, shape);
  note(std::string(configured.name) + ", " + configured.setting + ", d " + std::to_string(shape.head_dim) + ": " +
       std::to_string(c.other_tokens) + " of " + std::to_string(c.heads) + " heads chose others, output " +
       std::to_string(c.output) + ", mass " + std::to_string(c.mass) + ", alpha " + std::to_string(c.alpha));
  EXPECT(c.other_tokens * 50 <= c.heads);
  EXPECT(c.output <= 2e-3 && c.mass <= 1e-4 && c.alpha <= 1e-4);
}

const std::vector<std::uint32_t> kPrompts =
    kEmulated ? std::vector<std::uint32_t>{70, 9} : std::vector<std::uint32_t>{700, 1, 90, 333};
constexpr std::uint32_t kSteps = kEmulated ? 4 : 20;

void test_shapes(std::string_view name, const MethodSettings& settings) {
  std::vector<Shape> shapes{{2, 2, 64, 3}};
  if (!kEmulated) shapes.insert(shapes.end(), {{1, 9, 128, 2}, {3, 1, 80, 3}, {2, 4, 20, 3}});
  for (const Shape& shape : shapes) {
    test_method(configure_method(name, settings, shape.head_dim), shape, {kPrompts, kSteps, shape.head_dim});
  }
}

GPU_TEST("every method at shares of the context") {
  for (const MethodInfo& info : attention_methods()) {
    test_shapes(info.name, {.ratio = {1, 4}});
    if (info.name != "dense" && !kEmulated) test_shapes(info.name, {.ratio = {1, 16}});
  }
}

GPU_TEST("exact budgets: as many as there are tokens and more, one token, sinks beyond the budget") {
  test_shapes("sparq", {.r = 3, .k = 12, .local = 12});
  test_shapes("sparq-rest", {.r = 7, .k = 1000, .local = 0});
  test_shapes("h2o", {.heavy = 0, .recent = 5});
  test_shapes("h2o", {.heavy = 11, .recent = 0});
  test_shapes("local", {.window = 1});
  test_shapes("streamingllm", {.window = 6, .sinks = 3});
  test_shapes("infinigen", {.k = 2});
  test_shapes("leoam", {.k = 1});
  test_shapes("leoam", {.k = 20});
  test_shapes("int8", {.k = 1});
  test_shapes("int4-per-head", {.k = 500});
}

GPU_TEST("what the command line does not offer: other sums over a group, all of alpha kept, chunks of one size") {
  const Shape shape{2, 3, 64, 2};
  const auto test = [&](const MethodOptions& options, const char* name) {
    test_method({name, options, "", nullptr}, shape, {kPrompts, kSteps, 77});
  };
  test(SparqOptions{.components = 9, .tokens = 14, .local = {}, .group_top_k = GroupTopK::sum_probabilities}, "sparq");
  test(SparqOptions{.components = 64, .tokens = 14, .reallocate = false}, "sparq");
  test(ImportanceOptions{.tokens = 14, .aggregate = ScoreAggregate::max_raw}, "int8");
  test(ChunkOptions{.tokens = 14, .chunk = 16, .leaf = 16}, "leoam");
  test(ChunkOptions{.tokens = 30, .chunk = 256, .leaf = 1}, "leoam");
  test(LocalOptions{.tokens = 3, .sinks = 8}, "streamingllm");
}

GPU_TEST("the best of lists: ties, zeros of both signs, infinities, NaN") {
  Random random(3);
  const std::vector<std::uint32_t> lengths{1, 40, 300, 133};
  const std::uint32_t lists = 3, stride = 300, sequences = 4;
  for (const std::uint32_t share : {1u, 2u, 7u, 1000u}) {
    Floats scores(std::size_t{sequences} * lists * stride);
    for (float& s : scores) s = std::round(2 * random.value());
    for (std::size_t i = 0; i < scores.size(); i += 3) scores[i] = scores[i] == 0 ? -0.0f : scores[i];
    scores[stride * 5] = INFINITY;
    scores[stride * 5 + 1] = -INFINITY;
    scores[stride * 7 + 3] = NAN;
    std::vector<std::uint32_t> newest, counts, starts(sequences, 0);
    for (const std::uint32_t length : lengths) {
      const std::uint32_t count = std::max(1u, length / share);
      newest.push_back(share == 2 ? 0 : std::min(count, 5u));
      counts.insert(counts.end(), lists, count);
    }
    const auto on_device = [&](const auto& values) {
      using V = std::decay_t<decltype(values[0])>;
      cuda::DeviceBuffer<V> buffer(context().pool, values.size());
      cuda::copy_to_device(context().stream, std::span<const V>(values), buffer.data());
      return buffer;
    };
    const auto device_lengths = on_device(lengths), device_newest = on_device(newest),
               device_counts = on_device(counts), firsts = on_device(starts);
    const auto device_scores = on_device(scores);
    const cuda::DeviceBuffer<std::uint32_t> chosen(context().pool, scores.size());
    cuda::choose_best(context().stream, {nullptr, nullptr, firsts.data(), device_lengths.data(), sequences, stride, 1},
                      lists, stride, device_scores.data(), device_newest.data(), device_counts.data(), chosen.data());
    std::vector<std::uint32_t> found(scores.size());
    cuda::copy_to_host(context().stream, static_cast<const std::uint32_t*>(chosen.data()), std::span(found));
    for (std::uint32_t list = 0; list < sequences * lists; ++list) {
      const std::uint32_t length = lengths[list / lists], late = newest[list / lists];
      const auto first = found.begin() + static_cast<std::ptrdiff_t>(list * stride);
      std::vector<std::uint32_t> here(first, first + counts[list]);
      std::sort(here.begin(), here.end());
      auto expected = top_indices(std::span(scores).subspan(list * stride, length - late), counts[list] - late);
      for (std::uint32_t i = length - late; i < length; ++i) expected.push_back(i);
      EXPECT(here == expected);
    }
  }
}

GPU_TEST("prompts that were not seen, and weights of which many are equal") {
  const Shape shape{2, 2, 64, 3};
  for (const char* name : {"h2o", "infinigen"}) {
    test_method(configure_method(name, {.ratio = {1, 4}}, 64), shape, {kPrompts, kSteps, 5, false});
  }
  // So sharp that most tokens weigh exactly 0.
  test_method(configure_method("h2o", {.ratio = {1, 4}}, 64), shape, {kPrompts, kSteps, 6, true, 60});
}

GPU_TEST("what a GPU cannot do is refused") {
  ModelConfig config = Shape{1, 1, 18, 1}.config();
  cuda::CudaBackend<__half> backend(context());
  EXPECT(backend.supports(SparqOptions{}, config) && !backend.supports(ImportanceOptions{}, config));
  try {
    backend.make_attention(config, configure_method("int8", {}, 18), QueryPrecision::f16);
    EXPECT(false);
  } catch (const UserError& error) {
    EXPECT(std::string(error.what()).find("attention by 'int8' for heads of 18 elements") != std::string::npos);
  }
  config.head_dim = 260;
  EXPECT(!backend.supports(DenseOptions{}, config));
}

}  // namespace

int main(int argc, char** argv) { return gpu_test::run(argc, argv, true); }
