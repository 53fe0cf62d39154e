#include "experiment/serving/prometheus.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <vector>

#include "experiment/measure/request_times.h"

namespace csdsim::experiment {

namespace {

// The buckets of vLLM (vllm/v1/metrics/loggers.py), in seconds.
const std::vector<double> kFirstToken{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                      1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
const std::vector<double> kPerToken{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                    0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
const std::vector<double> kRequest{0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                   30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};

class Text {
 public:
  void counter(std::string_view name, std::string_view help, std::string_view labels, double value) {
    head(name, help, "counter");
    text_ += fmt::format("{}{} {}\n", name, labels, value);
  }
  /// A further value of the counter before.
  void more(std::string_view name, std::string_view labels, double value) {
    text_ += fmt::format("{}{} {}\n", name, labels, value);
  }
  void histogram(std::string_view name, std::string_view help, const std::vector<double>& buckets,
                 const std::vector<double>& values) {
    head(name, help, "histogram");
    double sum = 0;
    for (const double value : values) sum += value;
    for (const double bucket : buckets) {
      std::size_t below = 0;
      for (const double value : values) below += value <= bucket ? 1 : 0;
      text_ += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bucket, below);
    }
    text_ += fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, values.size(), sum);
  }
  std::string take() { return std::move(text_); }

 private:
  void head(std::string_view name, std::string_view help, std::string_view type) {
    text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  std::string text_;
};

}  // namespace

std::string prometheus_text(const ServingOutcome& out) {
  std::vector<double> first, further, whole;
  double prompt = 0, generated = 0, hit_gpu = 0;
  for (const host::ServedRequest& r : out.meter.requests()) {
    first.push_back(*ttft(r.life));
    whole.push_back(*latency(r.life));
    if (const RequestTime time = tpot(r.life)) further.push_back(*time);
    prompt += r.life.prompt;
    generated += r.life.generated;
    hit_gpu += double(r.hit_gpu);
  }
  Text text;
  text.histogram("vllm:time_to_first_token_seconds", "Time to the first token.", kFirstToken, first);
  text.histogram("vllm:time_per_output_token_seconds", "Mean time of a request's further tokens.", kPerToken, further);
  text.histogram("vllm:e2e_request_latency_seconds", "Time from the arrival to the last token.", kRequest, whole);
  text.counter("vllm:request_success_total", "Requests that have ended.", "", double(out.meter.requests().size()));
  text.counter("vllm:prompt_tokens_total", "Tokens of prompts.", "", prompt);
  text.counter("vllm:generation_tokens_total", "Generated tokens.", "", generated);
  text.counter("vllm:num_preemptions_total", "Preempted requests.", "", double(out.meter.counts.preemptions));
  text.counter("vllm:prefix_cache_queries", "Tokens of prompts that the GPU was asked for.", "", prompt);
  text.counter("vllm:prefix_cache_hits", "Tokens of prompts that the GPU had.", "", hit_gpu);
  const host::TiersUse& use = out.tiers;
  text.counter("vllm:external_prefix_cache_queries", "KV blocks that the tiers were asked for.", "", double(use.asked));
  text.counter("vllm:external_prefix_cache_hits", "KV blocks that they had.", "",
               double(use.host.found + use.drives.found));
  constexpr std::string_view kHost = "{tier=\"0:cpu\"}", kDrives = "{tier=\"1:fs\"}";
  const auto tiers = [&](std::string_view name, std::string_view help, auto of) {
    text.counter(name, help, kHost, of(use.host));
    text.more(name, kDrives, of(use.drives));
  };
  tiers("vllm:kv_offload_tiering_read_bytes", "Bytes read from a tier.",
        [](const host::TierUse& tier) { return double(tier.bytes_read.value); });
  tiers("vllm:kv_offload_tiering_write_bytes", "Bytes written to a tier.",
        [](const host::TierUse& tier) { return double(tier.bytes_written.value); });
  tiers("vllm:kv_offload_tiering_read_time", "Seconds from the orders to load blocks of a tier to their ends.",
        [](const host::TierUse& tier) { return tier.load_time.seconds(); });
  tiers("vllm:kv_offload_tiering_write_time", "Seconds from the orders to store blocks in a tier to their ends.",
        [](const host::TierUse& tier) { return tier.store_time.seconds(); });
  tiers("vllm:kv_offload_tiering_chunk_hits", "KV blocks that requests found in a tier.",
        [](const host::TierUse& tier) { return double(tier.found); });
  text.counter("vllm:kv_offload_tiering_promotion_allocation_failures",
               "Promotions for which nothing in host memory could leave.", "", double(use.promotion_failures));
  text.counter("vllm:kv_offload_tiering_backpressure_stores_dropped", "KV blocks that were not stored.", "",
               double(use.dropped_back_pressure));
  return text.take();
}

}  // namespace csdsim::experiment
