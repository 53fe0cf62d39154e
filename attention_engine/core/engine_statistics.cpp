#include "attention_engine/core/engine_config.h"
#include "base/statistics.h"

namespace csdsim::engine {

void register_statistics(Statistics& s, const EngineStats& e) {
  s.counter("dense_jobs", e.dense_jobs, "jobs",
            "Heads attended to densely, SparF heads with at most k tokens included.");
  s.counter("sparf_jobs", e.sparf_jobs, "jobs", "Heads attended to with SparF.");
  s.counter("score_jobs", e.score_jobs, "jobs", "Heads whose tokens were scored.", skip_zero());
  s.counter("feed_forward_jobs", e.feed_forward_jobs, "jobs", "Feed-forward commands that were computed.", skip_zero());
  s.counter("neurons", e.neurons, "neurons", "Neurons of feed-forward commands.", skip_zero());
  s.counter("macs", e.macs, "operations", "Multiply-accumulates of the attention kernels and the scoring unit.");
  s.counter("neuron_macs", e.neuron_macs, "operations", "The part of the multiply-accumulates for neurons.",
            skip_zero());
  s.counter("embedding_pages", e.embedding_pages, "pages", "Embedding pages read to score tokens.");
  s.counter("token_pages_scored", e.token_pages_a, "pages", "Token pages read to score tokens short of a window.");
  s.counter("token_pages_attended", e.token_pages_b, "pages", "Token pages of K and V read to attend.");
  s.counter("record_pages", e.record_pages, "pages", "Pages read for the records of neurons.", skip_zero());
  s.counter("record_bytes", e.record_bytes.value, "B", "Bytes of these pages over the flash channels.", skip_zero());
  s.counter("filtered_bytes", e.engine_bytes.value, "B", "Bytes of K and V that kernels took in.");
  s.time("kernel_busy", e.kernel_busy, "Busy time, summed over the attention kernels.");
  s.time("softmax_busy", e.softmax_busy, "The part of the kernels' busy time for exponentials.");
  s.time("neuron_busy", e.neuron_busy, "The part of the kernels' busy time for neurons.", skip_zero());
  s.time("scoring_busy", e.scoring_busy, "Busy time of the scoring unit.", skip_zero());
  s.time("argtopk_busy", e.argtopk_busy, "Busy time of the argtopk unit.");
  s.counter("peak_buffer", e.peak_buffer.value, "B", "Most of the engine's buffer in use.");
  s.counter("peak_page_buffers", e.peak_page_buffers, "pages", "Most page buffers of one channel that it held.",
            skip_zero());
  Statistics& phases = s.child("job_time");
  for (std::size_t p = 0; p < kJobPhases; ++p)
    phases.value(
        kJobPhaseNames[p], [&e, p] { return e.phase_time[p].seconds(); }, "s",
        "Time of all jobs in this phase, queueing for its unit included.",
        static_cast<JobPhase>(p) == JobPhase::feed_forward ? skip_zero() : StatOptions{});
}

}  // namespace csdsim::engine
