#include "attention_engine/core/engine_config.h"
#include "base/statistics.h"

namespace csdsim::engine {

void register_statistics(Statistics& s, const EngineStats& e) {
  s.counter("dense_jobs", e.dense_jobs, "jobs",
            "Heads attended to densely, SparF heads with at most k tokens included.");
  s.counter("sparf_jobs", e.sparf_jobs, "jobs", "Heads attended to with SparF.");
  s.counter("score_jobs", e.score_jobs, "jobs", "Heads whose tokens were scored.", skip_zero());
  s.counter("macs", e.macs, "operations", "Multiply-accumulates of the attention kernels.");
  s.counter("embedding_pages", e.embedding_pages, "pages", "Embedding pages read to score tokens.");
  s.counter("token_pages_scored", e.token_pages_a, "pages", "Token pages read to score tokens short of a window.");
  s.counter("token_pages_attended", e.token_pages_b, "pages", "Token pages of K and V read to attend.");
  s.counter("filtered_bytes", e.engine_bytes.value, "B", "Bytes of K and V that the filters passed to the engine.");
  s.time("kernel_busy", e.kernel_busy, "Busy time, summed over the attention kernels.");
  s.time("argtopk_busy", e.argtopk_busy, "Busy time of the argtopk unit.");
  s.counter("peak_buffer", e.peak_buffer.value, "B", "Most of the engine's buffer in use.");
  s.counter("peak_page_buffers", e.peak_page_buffers, "pages", "Most page buffers of one channel that it held.",
            skip_zero());
  Statistics& phases = s.child("job_time");
  for (std::size_t p = 0; p < kJobPhases; ++p)
    phases.value(
        kJobPhaseNames[p], [&e, p] { return e.phase_time[p].seconds(); }, "s",
        "Time of all jobs in this phase, queueing for its unit included.");
}

}  // namespace csdsim::engine
