// The figures of docs/gpu.md, as rows of its table. Usage: csdsim_bench_gpu [operators] [methods] [models]
#include "bench/gpu/bench_gpu.h"

#include <ctime>
#include <exception>

#include "host_runtime/cuda/attention/cuda_attention.h"
#include "host_runtime/cuda/measuring.h"

namespace gpu_bench {

using namespace csdsim::host::cuda;

Peaks peaks(const DeviceInfo& device) {
  const auto has = [&](const char* name) { return device.name.find(name) != std::string::npos; };
  if (has("H200")) return {4.8e12, 989e12};
  if (has("H100")) return {3.35e12, 989e12};
  if (has("A100")) return {1.555e12, 312e12};
  if (has("4090")) return {1.008e12, 165e12};
  if (has("A6000")) return {0.768e12, 155e12};
  if (has("RTX 5000")) return {0.448e12, 89e12};
  return {device.memory_bytes_per_second, 0};
}

void row(const std::string& what, double value, const std::string& unit, double share, double goal) {
  std::printf("| %s | %.4g %s | %.1f %% | %s | %s |\n", what.c_str(), value, unit.c_str(), 100 * share,
              goal > 0 ? (std::to_string(static_cast<int>(100 * goal + 0.5)) + " %").c_str() : "-",
              goal == 0       ? "-"
              : share >= goal ? "yes"
                              : "no");
  std::fflush(stdout);
}

namespace {

double milliseconds(Context& context, const std::function<void()>& work, int warm_ups, int runs, bool cold) {
  return 1e3 * seconds_of(context, work, warm_ups, runs, cold).median;
}

void bench_copy(Context& context) {
  const std::size_t bytes = std::size_t{2} << 30;
  const DeviceBuffer<> from(context.pool, bytes), to(context.pool, bytes);
  const double ms = milliseconds(
      context,
      [&] {
        CSDSIM_CUDA(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, context.stream.get()));
      },
      2, 9, false);
  const double rate = 2.0 * static_cast<double>(bytes) / ms * 1e3;
  row("copy within the device, read and written", rate * 1e-9, "GB/s", rate / peaks(context.device).bytes_per_second,
      0);
}

// OPT-13B: width 5,120, feed-forward 20,480.
void bench_gemv(Context& context) {
  struct Shape {
    const char* name;
    std::uint32_t n, k;
  };
  for (const Shape shape : {Shape{"q|k|v 15360 x 5120", 15360, 5120}, Shape{"out 5120 x 5120", 5120, 5120},
                            Shape{"fc1 20480 x 5120", 20480, 5120}, Shape{"fc2 5120 x 20480", 5120, 20480}}) {
    const auto w = made_up_values(context, std::size_t{shape.n} * shape.k);
    for (const std::uint32_t batch : {1u, 4u, 8u}) {
      const auto x = made_up_values(context, std::size_t{batch} * shape.k);
      const DeviceBuffer<__half> out(context.pool, std::size_t{batch} * shape.n);
      const double bytes = 2.0 * (double{1} * shape.n * shape.k + batch * (double{1} * shape.k + shape.n));
      const auto report = [&](const char* how, double ms, double goal) {
        const double rate = bytes / ms * 1e3;
        row(std::string("OPT-13B ") + shape.name + ", batch " + std::to_string(batch) + ", " + how, rate * 1e-9, "GB/s",
            rate / peaks(context.device).bytes_per_second, goal);
      };
      report("own",
             milliseconds(
                 context,
                 [&] {
                   gemv<__half, __half>(context.stream, context.device, x.data(), w.data(), batch, shape.n, shape.k, {},
                                        out.data());
                 },
                 3, 21, true),
             0.8);
      report("cuBLASLt",
             milliseconds(
                 context,
                 [&] {
                   context.gemm.multiply<__half, __half>(context.stream, x.data(), w.data(), batch, shape.n, shape.k,
                                                         {}, out.data());
                 },
                 3, 21, true),
             0);
    }
  }
}

void bench_gemm(Context& context) {
  const std::size_t size = 8192;
  const auto x = made_up_values(context, size * size), w = made_up_values(context, size * size);
  const DeviceBuffer<__half> out(context.pool, size * size);
  const double ms = milliseconds(
      context,
      [&] {
        context.gemm.multiply<__half, __half>(context.stream, x.data(), w.data(), size, size, size, {}, out.data());
      },
      3, 11, false);
  const double rate = 2.0 * static_cast<double>(size * size * size) / ms * 1e3, peak = peaks(context.device).flops;
  row("cuBLASLt 8192^3, fp16", rate * 1e-12, "TFLOP/s", peak > 0 ? rate / peak : 0, 0);
}

void bench_decode_attention(Context& context) {
  const std::uint32_t batch = 32, tokens = 4096, kv_heads = 8, d = 128;
  for (const std::uint32_t heads : {8u, 32u, 64u}) {
    const DecodeWork attention(context, batch, {heads, kv_heads, d, tokens});
    for (const std::uint32_t splits : {0u, 1u, 2u, 3u, 4u}) {
      const double ms = milliseconds(
          context, [&] { attention.run(splits); }, 3, 21, true);
      const double rate = 2.0 * 2.0 * batch * kv_heads * tokens * d / ms * 1e3;
      row("decode attention, batch 32, 4,096 tokens, 8 KV heads, " + std::to_string(heads) + " heads, d 128, " +
              (splits == 0 ? std::string("splits chosen") : std::to_string(splits) + " splits"),
          rate * 1e-9, "GB/s", rate / peaks(context.device).bytes_per_second, splits == 0 ? 0.8 : 0);
    }
  }
}

void bench_prefill_attention(Context& context) {
  const std::uint32_t heads = 16, d = 128;
  for (const std::uint32_t tokens : {2048u, 16384u}) {
    const PrefillWork attention(context, tokens, heads, d);
    const auto report = [&](const char* name, double ms, double goal) {
      // Half of the square is masked and neither computed nor counted: 4 n^2 d heads / 2.
      const double rate = 2.0 * double{1} * tokens * tokens * d * heads / ms * 1e3, peak = peaks(context.device).flops;
      row(std::string("prefill attention, causal, ") + std::to_string(tokens) + " tokens, 16 heads, d 128, " + name,
          rate * 1e-12, "TFLOP/s", peak > 0 ? rate / peak : 0, goal > 0 && peak > 0 ? goal / peak : 0);
    };
    for (const auto& [kernel, name] : {std::pair{PrefillKernel::tile, "mma.sync"}, {PrefillKernel::hopper, "sm_90"}}) {
      if (!supports_prefill(kernel, context.device, d)) continue;
      report(name,
             milliseconds(
                 context, [&] { attention.run(kernel); }, 2, 9, false),
             tokens == 16384 && kernel == PrefillKernel::hopper ? 450e12 : 0);
    }
    if (attention.run_by_cudnn()) {
      report("cuDNN",
             milliseconds(
                 context, [&] { attention.run_by_cudnn(); }, 2, 9, false),
             0);
    }
  }
}

// An eighth of the tokens of 64 lists.
void bench_choice(Context& context) {
  const std::uint32_t sequences = 8, lists = 8;
  for (const std::uint32_t tokens : {4096u, 16384u, 131072u}) {
    const std::size_t count = std::size_t{sequences} * lists * tokens;
    const auto halves = made_up_values(context, count);
    const DeviceBuffer<float> scores(context.pool, count);
    convert(context.stream, static_cast<const __half*>(halves.data()), scores.data(), count);
    const auto on_device = [&](std::uint32_t value, std::size_t times) {
      DeviceBuffer<std::uint32_t> buffer(context.pool, times);
      const std::vector<std::uint32_t> values(times, value);
      copy_to_device(context.stream, std::span<const std::uint32_t>(values), buffer.data());
      return buffer;
    };
    const auto lengths = on_device(tokens, sequences), newest = on_device(1, sequences),
               firsts = on_device(0, sequences), counts = on_device(tokens / 8, std::size_t{sequences} * lists);
    const DeviceBuffer<std::uint32_t> chosen(context.pool, count);
    const SequenceView batch{nullptr, nullptr, firsts.data(), lengths.data(), sequences, tokens, 1};
    const double ms = milliseconds(
        context,
        [&] {
          choose_best(context.stream, batch, lists, tokens, scores.data(), newest.data(), counts.data(), chosen.data());
        },
        3, 21, false);
    row("the best eighth of " + std::to_string(tokens) + " tokens, 64 lists", 1e3 * ms, "us", 0, 0);
  }
}

// Decoding attention by the methods, as a layer of Llama-3-8B sees it: choice of tokens and attention, by step and
// layer. Shares are of the dense step's time.
void bench_methods(Context& context) {
  bench_choice(context);

  csdsim::host::ModelConfig config;
  config.layers = 1;
  config.heads = 32;
  config.kv_heads = 8;
  config.head_dim = 128;
  const std::uint32_t batch = 8, tokens = 16384, steps = 24;
  double dense = 0;
  for (const auto& info : csdsim::host::attention_methods()) {
    // Methods that learn from the prompt get a short one, so that the bench does not take too long.
    const std::uint32_t prompt = info.name == "h2o" || info.name == "infinigen" ? 2048 : tokens;
    const auto configured = csdsim::host::configure_method(info.name, {}, config.head_dim);
    DeviceAttention attention(context, config, configured.options);
    std::vector<csdsim::SequenceId> sequences;
    std::vector<csdsim::Half> rows(std::size_t{prompt} * config.kv_width());
    std::uint32_t state = 1;
    const auto next = [&] {
      state = state * 1664525u + 1013904223u;
      return static_cast<float>(state >> 8) * 0x1p-23f - 1;
    };
    for (csdsim::Half& h : rows) h = csdsim::float_to_half(next());
    std::vector<float> queries(std::size_t{prompt} * config.q_width());
    for (float& value : queries) value = next();
    for (std::uint32_t i = 0; i < batch; ++i) {
      sequences.emplace_back(i);
      const csdsim::host::SequenceSlice slice{sequences.back(), prompt};
      attention.create_sequence(sequences.back());
      attention.store(csdsim::LayerId{0}, {&slice, 1}, rows, rows);
      if (attention.learns_from_prompt()) attention.learn(csdsim::LayerId{0}, {&slice, 1}, queries);
    }
    const auto q = made_up_values(context, batch * std::size_t{config.q_width()}),
               k = made_up_values(context, batch * std::size_t{config.kv_width()});
    const DeviceBuffer<float> out(context.pool, batch * std::size_t{config.q_width()});
    const double ms = milliseconds(
        context,
        [&] { attention.attend_on_device(csdsim::LayerId{0}, sequences, q.data(), k.data(), k.data(), out.data()); }, 3,
        static_cast<int>(steps), true);
    if (info.name == "dense") dense = ms;
    row("attention by " + std::string(info.name) + ", " + configured.setting + ", batch 8, " + std::to_string(prompt) +
            " tokens, 8 KV heads, 32 heads, d 128",
        1e3 * ms, "us", ms / dense, 0);
  }
}

void bench_operators(Context& context) {
  bench_copy(context);
  bench_gemm(context);
  bench_gemv(context);
  bench_decode_attention(context);
  bench_prefill_attention(context);
}

}  // namespace
}  // namespace gpu_bench

int main(int argc, char** argv) {
  using namespace gpu_bench;
  if (!csdsim::host::cuda::present_device()) {
    std::printf("skipped: no GPU\n");
    return 77;
  }
  try {
    // Kept to the end of the process, like the memory that measuring keeps.
    Context& context = *new Context;
    const std::time_t now = std::time(nullptr);
    char date[32];
    std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
    std::printf("%s, compute capability %d, CUDA driver %d, %s\n\n", context.device.name.c_str(),
                context.device.compute_capability, context.device.driver_version, date);
    std::printf("| what | measured | share of peak | goal | met |\n|---|---|---|---|---|\n");
    const auto wanted = [&](const std::string& part) {
      return argc < 2 || std::any_of(argv + 1, argv + argc, [&](const char* a) { return part == a; });
    };
    if (wanted("operators")) bench_operators(context);
    if (wanted("methods")) bench_methods(context);
    if (wanted("models")) bench_models(context);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
  return 0;
}
