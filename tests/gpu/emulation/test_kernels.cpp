// The kernels' logic, without a GPU: grids, tiles, masks, splits and merges, run thread by thread on the CPU.
#include "tests/gpu/emulation/emulation.h"
#include "tests/gpu/emulation/hopper_emulation.h"
// after the emulation
#include "host_runtime/cuda/kernels/elementwise.cuh"
#include "host_runtime/cuda/kernels/gemv.cuh"
#include "host_runtime/cuda/kernels/prefill_attention.cuh"
#include "host_runtime/cuda/kernels/prefill_hopper.cuh"
#include "tests/gpu/harness.h"
#include "tests/gpu/reference.h"

namespace {

using namespace csdsim::host::cuda;
using namespace gpu_test;

template <class T>
constexpr Format kFormat = std::is_same_v<T, __half> ? Format::f16 : Format::bf16;
/// Of a value that was rounded once, with room for the order of sums.
template <class T>
constexpr double kBound = std::is_same_v<T, __half> ? 2e-3 : 1.2e-2;

template <class T>
class alignas(16) Array {
 public:
  explicit Array(const Floats& values) : words_(values.size() / 8 + 2) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint16_t word = narrow(values[i], kFormat<T>);
      std::memcpy(data() + i, &word, sizeof word);
    }
  }
  explicit Array(std::size_t count) : Array(Floats(count, NAN)) {}
  T* data() { return words_.data()->values; }
  Floats floats(std::size_t count) {
    Floats result(count);
    for (std::size_t i = 0; i < count; ++i) result[i] = to_float(data()[i]);
    return result;
  }

 private:
  std::vector<Octet<T>> words_;
};

template <class T, class Out>
void test_gemv(std::uint32_t batch, std::uint32_t n, std::uint32_t k, bool tile) {
  Random random(batch * 1000 + n);
  const Floats x = rounded(random.values(batch * k), kFormat<T>), w = rounded(random.values(n * k), kFormat<T>);
  const Floats bias = random.values(n), residual = rounded(random.values(batch * n), kFormat<T>);
  Floats expected = product(x, w, k);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = std::max(expected[i] + bias[i % n], 0.0f) + residual[i];
  }
  Array<T> xs(x), ws(w);
  Floats found(batch * n);
  const auto run = [&](Out* out, const Out* added) {
    const GemvArguments<T, Out> a{xs.data(), ws.data(), bias.data(), added, out, batch, n, k, true};
    if (tile) {
      emulation::launch(dim3((n + 15) / 16), dim3(32 * kGemvWarps), kGemvSharedBytes, [&] { gemv_tile_kernel(a); });
    } else {
      emulation::launch(dim3((n + 3) / 4), dim3(128), 0, [&] { gemv_row_kernel(a); });
    }
  };
  if constexpr (std::is_same_v<Out, float>) {
    run(found.data(), residual.data());
  } else {
    Array<T> out(batch * n), added(residual);
    run(out.data(), added.data());
    found = out.floats(batch * n);
  }
  EXPECT_WITHIN(found, expected, (std::is_same_v<Out, float> ? 1e-5 : kBound<T>));
}

GPU_TEST("gemv on tensor cores: any batch to 8, ragged n, runs of k that do not fill the warps") {
  test_gemv<__half, __half>(1, 16, 32, true);
  test_gemv<__half, float>(8, 37, 1120, true);
  test_gemv<__half, __half>(5, 64, 2048, true);
  test_gemv<__nv_bfloat16, __nv_bfloat16>(3, 20, 160, true);
  test_gemv<__nv_bfloat16, float>(7, 9, 4128, true);
}

GPU_TEST("gemv without tensor cores: any k") {
  test_gemv<__half, __half>(1, 5, 32, false);
  test_gemv<__half, float>(8, 6, 271, false);
  test_gemv<__nv_bfloat16, __nv_bfloat16>(4, 7, 520, false);
}

struct Heads {
  std::uint32_t kv_heads, group, d;
};

template <class T>
void test_decode(Heads h, const std::vector<std::uint32_t>& lengths, std::uint32_t splits, bool tile, bool choose) {
  Random random(h.d + splits);
  const auto sequences = static_cast<std::uint32_t>(lengths.size());
  const std::uint32_t heads = h.kv_heads * h.group, capacity = 301;
  const Floats q = rounded(random.values(sequences * heads * h.d), kFormat<T>);
  const std::size_t cache = std::size_t{sequences} * h.kv_heads * capacity * h.d;
  const Floats k = rounded(random.values(cache), kFormat<T>), v = rounded(random.values(cache), kFormat<T>);
  std::vector<std::uint32_t> chosen, counts;
  Floats expected;
  for (std::uint32_t s = 0; s < sequences; ++s) {
    for (std::uint32_t head = 0; head < h.kv_heads; ++head) {
      std::vector<std::uint32_t> rows = first_rows(lengths[s]);
      if (choose) {
        std::erase_if(rows, [&](std::uint32_t) { return random.uniform() < 0.6; });
        counts.push_back(static_cast<std::uint32_t>(rows.size()));
        chosen.insert(chosen.end(), rows.begin(), rows.end());
        chosen.resize(counts.size() * capacity, 0xFFFFFFFFu);
      }
      const std::size_t base = (s * h.kv_heads + head) * std::size_t{capacity} * h.d;
      for (std::uint32_t g = 0; g < h.group; ++g) {
        const Floats row =
            attend(q.data() + (s * heads + head * h.group + g) * h.d, k.data() + base, v.data() + base, h.d, h.d, rows);
        expected.insert(expected.end(), row.begin(), row.end());
      }
    }
  }
  Array<T> qs(q), ks(k), vs(v), out(q.size());
  std::vector<float> partial(q.size() * splits, NAN);
  std::vector<float2> scale(std::size_t{sequences} * heads * splits);
  DecodeArguments<T> a{};
  a.q = qs.data();
  a.keys = ks.data();
  a.values = vs.data();
  a.out = out.data();
  a.partial_out = partial.data();
  a.partial_scale = scale.data();
  a.lengths = lengths.data();
  if (choose) {
    a.chosen = chosen.data();
    a.chosen_counts = counts.data();
  }
  a.q_stride = a.out_stride = std::size_t{heads} * h.d;
  a.slot_stride = std::size_t{h.kv_heads} * capacity * h.d;
  a.head_stride = std::size_t{capacity} * h.d;
  a.chosen_stride = capacity;
  a.kv_heads = h.kv_heads;
  a.group = h.group;
  a.d = h.d;
  a.splits = splits;
  a.scale = 1.0f / std::sqrt(static_cast<float>(h.d));
  const dim3 block(32 * kDecodeWarps);
  if (!tile) {
    emulation::launch(dim3(splits, heads, sequences), block, kDecodeWarps * (h.d + 2) * 4,
                      [&] { decode_generic_kernel(a); });
  } else if (h.d == 64) {
    emulation::launch(dim3(splits, h.kv_heads, sequences), block, decode_shared_bytes(64),
                      [&] { decode_tile_kernel<T, 64>(a); });
  } else {
    emulation::launch(dim3(splits, h.kv_heads, sequences), block, decode_shared_bytes(128),
                      [&] { decode_tile_kernel<T, 128>(a); });
  }
  if (splits > 1) {
    emulation::launch(dim3(heads, sequences), dim3(128), 0, [&] { merge_splits_kernel(a); });
  }
  EXPECT_WITHIN(out.floats(q.size()), expected, kBound<T>);
}

GPU_TEST("decode attention on tensor cores: groups, ragged lengths, splits that stay empty, chosen tokens") {
  test_decode<__half>({2, 1, 64}, {1, 301, 64}, 1, true, false);
  test_decode<__half>({1, 4, 128}, {65, 130}, 2, true, false);
  test_decode<__half>({2, 16, 64}, {17, 200}, 5, true, false);
  test_decode<__nv_bfloat16>({1, 7, 128}, {300}, 3, true, false);
  test_decode<__half>({2, 3, 64}, {90, 260}, 2, true, true);
}

GPU_TEST("decode attention without tensor cores: any head size") {
  test_decode<__half>({2, 2, 80}, {1, 77}, 1, false, false);
  test_decode<__half>({1, 1, 256}, {99}, 2, false, false);
  test_decode<__nv_bfloat16>({1, 2, 12}, {130, 5}, 3, false, true);
}

enum class PrefillKernel : std::uint8_t { generic, tile, hopper };

template <class T, std::uint32_t D>
void test_prefill(Heads h, const std::vector<std::uint32_t>& lengths, PrefillKernel kernel) {
  Random random(h.d);
  std::vector<std::uint32_t> starts{0};
  for (const std::uint32_t length : lengths) starts.push_back(starts.back() + length);
  const std::uint32_t rows = starts.back(), heads = h.kv_heads * h.group, q_cols = heads * h.d,
                      kv_cols = h.kv_heads * h.d;
  const Floats q = rounded(random.values(rows * q_cols), kFormat<T>);
  const Floats k = rounded(random.values(rows * kv_cols), kFormat<T>);
  const Floats v = rounded(random.values(rows * kv_cols), kFormat<T>);
  Floats expected;
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    for (std::uint32_t i = 0; i < lengths[s]; ++i) {
      for (std::uint32_t head = 0; head < heads; ++head) {
        const std::size_t kv = starts[s] * kv_cols + head / h.group * h.d;
        const Floats row = attend(q.data() + (starts[s] + i) * q_cols + head * h.d, k.data() + kv, v.data() + kv,
                                  kv_cols, h.d, first_rows(i + 1));
        expected.insert(expected.end(), row.begin(), row.end());
      }
    }
  }
  Array<T> qs(q), ks(k), vs(v), out(q.size());
  const PrefillArguments<T> a{qs.data(),
                              ks.data(),
                              vs.data(),
                              out.data(),
                              starts.data(),
                              q_cols,
                              kv_cols,
                              q_cols,
                              h.group,
                              h.d,
                              1.0f / std::sqrt(static_cast<float>(h.d))};
  const std::uint32_t longest = *std::max_element(lengths.begin(), lengths.end());
  const auto count = static_cast<unsigned>(lengths.size());
  if (kernel == PrefillKernel::tile) {
    emulation::launch(dim3((longest + 63) / 64, heads, count), dim3(32 * kPrefillWarps), prefill_shared_bytes<D>(),
                      [&] { prefill_tile_kernel<T, D>(a); });
  } else if (kernel == PrefillKernel::hopper) {
    const auto map = [&](Array<T>& values, std::uint32_t count_of_heads) {
      return TensorMap{reinterpret_cast<const std::uint16_t*>(values.data()),
                       std::size_t{count_of_heads} * h.d,
                       h.d,
                       count_of_heads,
                       rows,
                       kHopperTile};
    };
    const HopperArguments<T> hopper{out.data(), starts.data(), q_cols, h.group,
                                    1.4426950408889634f / std::sqrt(static_cast<float>(h.d))};
    emulation::launch(dim3((longest + 127) / 128, heads, count), dim3(kHopperThreads), kHopperSharedBytes,
                      [&] { prefill_hopper_kernel(map(qs, heads), map(ks, h.kv_heads), map(vs, h.kv_heads), hopper); });
  } else {
    emulation::launch(dim3(longest, heads, count), dim3(32 * kDecodeWarps), kDecodeWarps * (h.d + 2) * 4,
                      [&] { prefill_generic_kernel(a); });
  }
  EXPECT_WITHIN(out.floats(q.size()), expected, kBound<T>);
}

GPU_TEST("prefill attention on tensor cores: ragged sequences, grouped heads, heads that do not fill the tile") {
  test_prefill<__half, 64>({1, 1, 64}, {130}, PrefillKernel::tile);
  test_prefill<__half, 128>({1, 2, 128}, {1, 70}, PrefillKernel::tile);
  test_prefill<__half, 128>({1, 1, 80}, {65, 64}, PrefillKernel::tile);
  test_prefill<__nv_bfloat16, 64>({2, 2, 40}, {30, 100}, PrefillKernel::tile);
}

GPU_TEST("prefill attention without tensor cores") {
  test_prefill<__half, 64>({2, 2, 20}, {3, 40, 1}, PrefillKernel::generic);
  test_prefill<__nv_bfloat16, 128>({1, 1, 200}, {33}, PrefillKernel::generic);
}

GPU_TEST("prefill attention on sm_90: tiles of several stages, ragged sequences, grouped heads") {
  test_prefill<__half, 128>({1, 1, 128}, {1}, PrefillKernel::hopper);
  test_prefill<__half, 128>({1, 1, 128}, {600}, PrefillKernel::hopper);
  test_prefill<__nv_bfloat16, 128>({1, 2, 128}, {130, 128, 50}, PrefillKernel::hopper);
}

GPU_TEST("norms: residual added first, LayerNorm and RMSNorm") {
  Random random(9);
  const std::uint32_t rows = 3, cols = 300;
  const Floats x = rounded(random.values(rows * cols), Format::f16);
  const Floats delta = rounded(random.values(rows * cols), Format::f16);
  const Floats gamma = random.values(cols), beta = random.values(cols);
  for (const bool centre : {true, false}) {
    Floats sum(x.size()), expected(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) sum[i] = x[i] + delta[i];
    sum = rounded(sum, Format::f16);
    for (std::uint32_t r = 0; r < rows; ++r) {
      double mean = 0, square = 0;
      for (std::uint32_t i = 0; i < cols && centre; ++i) mean += double{sum[r * cols + i]} / cols;
      for (std::uint32_t i = 0; i < cols; ++i) square += std::pow(double{sum[r * cols + i]} - mean, 2) / cols;
      for (std::uint32_t i = 0; i < cols; ++i) {
        const double value = (double{sum[r * cols + i]} - mean) / std::sqrt(square + 1e-5) * double{gamma[i]};
        expected[r * cols + i] = static_cast<float>(value + (centre ? double{beta[i]} : 0.0));
      }
    }
    Array<__half> xs(x), deltas(delta), out(x.size());
    emulation::launch(dim3(rows), dim3(128), (8 + cols) * 4, [&] {
      const auto kernel = centre ? norm_kernel<__half, true> : norm_kernel<__half, false>;
      kernel(xs.data(), deltas.data(), gamma.data(), beta.data(), 1e-5f, cols, out.data());
    });
    EXPECT_WITHIN(out.floats(x.size()), expected, 2e-3);
    EXPECT(xs.floats(x.size()) == sum);
  }
}

GPU_TEST("append rotates q and k and writes the caches at each sequence's position") {
  Random random(10);
  const std::uint32_t heads = 3, kv_heads = 1, d = 8, capacity = 5, slots = 2, row = (heads + 2 * kv_heads) * d;
  const Floats qkv = rounded(random.values(slots * row), Format::f16), frequency{1, 0.5f, 0.25f, 0.1f};
  const std::vector<std::uint32_t> positions{4, 2};
  Array<__half> x(qkv), keys(slots * capacity * d), values(slots * capacity * d);
  emulation::launch(dim3(slots), dim3(64), 0, [&] {
    append_kernel(x.data(), positions.data(), frequency.data(), heads, kv_heads, d, capacity, keys.data(),
                  values.data());
  });
  const Floats q = x.floats(slots * row), k = keys.floats(slots * capacity * d), v = values.floats(k.size());
  for (std::uint32_t s = 0; s < slots; ++s) {
    for (std::uint32_t head = 0; head < heads + kv_heads; ++head) {
      for (std::uint32_t i = 0; i < d / 2; ++i) {
        const double angle = double{static_cast<float>(positions[s])} * double{frequency[i]};
        const double a = qkv[s * row + head * d + i], b = qkv[s * row + head * d + i + d / 2];
        const std::size_t at = (s * capacity + positions[s]) * d + i;
        const double first = head < heads ? q[s * row + head * d + i] : k[at];
        const double second = head < heads ? q[s * row + head * d + i + d / 2] : k[at + d / 2];
        EXPECT(std::abs(first - (a * std::cos(angle) - b * std::sin(angle))) < 2e-3);
        EXPECT(std::abs(second - (b * std::cos(angle) + a * std::sin(angle))) < 2e-3);
      }
    }
    for (std::uint32_t i = 0; i < d; ++i) {
      EXPECT(v[(s * capacity + positions[s]) * d + i] == qkv[s * row + (heads + kv_heads) * d + i]);
    }
    EXPECT(std::isnan(v[s * capacity * d]));
  }
}

}  // namespace

int main(int argc, char** argv) { return gpu_test::run(argc, argv, false); }
