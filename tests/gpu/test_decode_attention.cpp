// Attention of one token per sequence, against double precision (see test_operators.cpp).
#include <algorithm>
#include <cmath>

#include "host_runtime/cuda/decode_splits.h"
#include "host_runtime/cuda/operators.h"
#include "tests/gpu/device_values.h"
#include "tests/gpu/harness.h"
#include "tests/gpu/reference.h"

namespace {

using namespace csdsim::host::cuda;
using namespace gpu_test;

template <class T>
void test_decode(Heads h, const std::vector<std::uint32_t>& lengths, std::uint32_t splits, bool choose) {
  if (!has(kFormat<T>)) return;
  Random random(h.d * 100 + h.group);
  const auto sequences = static_cast<std::uint32_t>(lengths.size());
  const std::uint32_t heads = h.kv_heads * h.group, capacity = *std::max_element(lengths.begin(), lengths.end()) + 3;
  const Floats q = rounded(random.values(std::size_t{sequences} * heads * h.d), kFormat<T>);
  const std::size_t cache = std::size_t{sequences} * h.kv_heads * capacity * h.d;
  const Floats k = rounded(random.values(cache), kFormat<T>), v = rounded(random.values(cache), kFormat<T>);
  std::vector<std::uint32_t> chosen, counts;
  Floats expected;
  for (std::uint32_t s = 0; s < sequences; ++s) {
    for (std::uint32_t head = 0; head < h.kv_heads; ++head) {
      std::vector<std::uint32_t> rows = first_rows(lengths[s]);
      if (choose) {
        std::erase_if(rows, [&](std::uint32_t) { return random.uniform() < 0.7; });
        counts.push_back(static_cast<std::uint32_t>(rows.size()));
        chosen.insert(chosen.end(), rows.begin(), rows.end());
        chosen.resize(counts.size() * capacity);
      }
      const std::size_t base = (s * h.kv_heads + head) * std::size_t{capacity} * h.d;
      for (std::uint32_t g = 0; g < h.group; ++g) {
        const Floats row = attend(q.data() + (s * heads + head * h.group + g) * std::size_t{h.d}, k.data() + base,
                                  v.data() + base, h.d, h.d, rows);
        expected.insert(expected.end(), row.begin(), row.end());
      }
    }
  }
  const auto qs = narrowed<T>(q), ks = narrowed<T>(k), vs = narrowed<T>(v);
  const auto device_lengths = on_device(lengths), device_chosen = on_device(chosen), device_counts = on_device(counts);
  DeviceBuffer<T> out(context().pool, q.size());
  DecodeQuery<T> query;
  query.q = qs.data();
  query.q_stride = query.out_stride = std::size_t{heads} * h.d;
  query.out = out.data();
  query.sequences = sequences;
  query.keys = ks.data();
  query.values = vs.data();
  query.lengths = device_lengths.data();
  if (choose) {
    query.chosen = device_chosen.data();
    query.chosen_counts = device_counts.data();
    query.chosen_stride = capacity;
  }
  decode_attention(context().stream, context().pool, context().device, query, {heads, h.kv_heads, h.d, capacity},
                   capacity, splits);
  EXPECT_WITHIN(on_host(out), expected, kBound<T>);
}

GPU_TEST("decode attention is split only where blocks would not fill the GPU, into waves that do") {
  const auto splits = [](std::size_t pairs, std::size_t units) { return decode_splits({pairs, units, 132, 3}); };
  EXPECT(splits(256, 64) == 1);  // two blocks per multiprocessor, nearly
  EXPECT(splits(212, 64) == 1);  // 80 % of that: the bound
  EXPECT(splits(211, 64) > 1);
  EXPECT(splits(1, 1) == 1);      // nothing to split
  EXPECT(splits(1, 16) == 14);    // 85 % of the 16 blocks that are possible
  EXPECT(splits(8, 1000) == 42);  // 336 of 396 blocks, where 49 splits make 392
  EXPECT(splits(132, 64) == 3);   // one full wave
  EXPECT(splits(200, 64) == 7);   // 1,400 blocks in four waves: 88 %; 5 splits: 84 %
}

GPU_TEST("decode attention: no block gets more than an even share of the tokens of a ragged batch") {
  const auto mixed = [](std::size_t copies) {
    std::vector<std::uint32_t> tokens;
    for (std::size_t i = 0; i < copies; ++i) tokens.insert(tokens.end(), {1, 17, 4000});
    return tokens;
  };
  std::vector<std::uint32_t> one_long(64, 100);
  one_long.back() = 32000;
  for (const std::vector<std::uint32_t>& tokens :
       {mixed(1), mixed(4), mixed(24), one_long, std::vector<std::uint32_t>(64, 4096)}) {
    constexpr std::uint32_t kUnit = 64, kHeads = 8;
    const auto units_of = [](std::uint32_t count) { return (count + kUnit - 1) / kUnit; };
    const std::uint32_t longest = units_of(*std::max_element(tokens.begin(), tokens.end()));
    const auto sequences = static_cast<std::uint32_t>(tokens.size());
    const std::uint32_t splits = decode_splits({std::size_t{sequences} * kHeads, longest, 132, 3}),
                        blocks = sequences * kHeads * splits;
    std::uint32_t units = 0, parts = 0, largest = 0;
    for (const std::uint32_t count : tokens) units += units_of(count);
    const std::uint32_t share = units_per_block(units * kHeads, blocks);
    for (const std::uint32_t count : tokens) {
      const std::uint32_t here = parts_of(units_of(count), share);
      parts += here;
      largest = std::max(largest, (units_of(count) + here - 1) / here);
    }
    const double even = static_cast<double>(units) * kHeads / blocks;
    note(std::to_string(sequences) + " sequences, the longest " + std::to_string(longest) + " units: at most " +
         std::to_string(largest) + " per block, an even share is " + std::to_string(even) +
         "; with the same number of splits for all it is " + std::to_string((longest + splits - 1) / splits));
    EXPECT(largest <= std::ceil(even));
    EXPECT(parts <= sequences * splits + sequences);
  }
}

GPU_TEST("decode attention: ragged batches of 1, 17 and 4,000 tokens, dense and chosen") {
  for (const std::uint32_t splits : {0u, 5u}) {
    test_decode<__half>({2, 2, 64}, {1, 17, 4000}, splits, false);
    test_decode<__half>({1, 4, 64}, {4000, 1, 17}, splits, true);
    test_decode<__nv_bfloat16>({1, 2, 12}, {17, 4000, 1}, splits, false);
    // More lists than lanes.
    std::vector<std::uint32_t> many(35, 1);
    many[17] = 700;
    many[33] = 0;
    test_decode<__half>({2, 1, 64}, many, splits, true);
    many[33] = 65;
    test_decode<__half>({2, 1, 64}, many, splits, false);
  }
}

GPU_TEST("decode attention: groups, ragged lengths, any split, chosen tokens") {
  for (const std::uint32_t splits : {0u, 1u, 2u, 7u}) {
    if (kEmulated && splits != 0 && splits != 2) continue;
    test_decode<__half>({2, 1, 64}, {1, 301, 64}, splits, false);
    test_decode<__half>({2, 4, 128}, {65, 1300}, splits, false);
    test_decode<__half>({1, 16, 128}, {17, 200}, splits, false);
    test_decode<__half>({2, 3, 80}, {5, 200}, splits, false);
    test_decode<__half>({1, 1, 256}, {99}, splits, false);
    test_decode<__half>({1, 5, 200}, {33, 70}, splits, true);
    test_decode<__nv_bfloat16>({1, 4, 96}, {40}, splits, false);
    test_decode<__half>({1, 2, 36}, {40}, splits, false);
    test_decode<__nv_bfloat16>({2, 7, 128}, {600}, splits, false);
    test_decode<__nv_bfloat16>({1, 2, 12}, {130, 5}, splits, true);
    test_decode<__half>({2, 8, 128}, {90, 460}, splits, true);
  }
}

}  // namespace
