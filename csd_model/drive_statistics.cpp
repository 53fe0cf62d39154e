// What a drive counts, as a tree of named figures.
#include <fmt/format.h>

#include <array>

#include "csd_model/drive.h"
#include "csd_model/firmware/dram_port.h"
#include "csd_model/firmware/firmware_cores.h"

namespace csdsim::csd_model {

namespace {

constexpr std::array<std::string_view, nfc::kPageOpKinds> kKinds{"read", "program", "erase"};

void register_flash(Statistics& s, const nfc::FlashStatistics& flash) {
  for (std::size_t c = 0; c < kOpClasses; ++c)
    for (std::size_t k = 0; k < nfc::kPageOpKinds; ++k) {
      if (flash.ops[c][k] == 0) continue;  // what did not happen is absent
      const std::string name = fmt::format("{}_{}", kOpClassNames[c], kKinds[k]);
      s.counter(name + "_ops", flash.ops[c][k], "operations",
                fmt::format("Page {} operations of class {}.", kKinds[k], kOpClassNames[c]));
      if (flash.bytes[c][k] > 0) s.counter(name + "_bytes", flash.bytes[c][k], "B", "Their bytes over the channels.");
    }
  for (std::size_t c = 0; c < flash.channels.size(); ++c) {
    Statistics& channel = s.child(fmt::format("channel_{}", c));
    channel.time("command", flash.channels[c].command, "Bus time of commands.");
    channel.time("data_out", flash.channels[c].data_out, "Bus time of pages read.");
    channel.time("data_in", flash.channels[c].data_in, "Bus time of pages programmed.");
    if (flash.channels[c].status.ps > 0) channel.time("status", flash.channels[c].status, "Bus time of status polls.");
    if (flash.channels[c].select.ps > 0)
      channel.time("package_select", flash.channels[c].select, "Bus time of turns to another package.");
    if (flash.decoder_busy[c].ps > 0)
      channel.time("decoder", flash.decoder_busy[c], "Time that error correction was occupied.");
  }
  if (flash.retries > 0) s.counter("retries", flash.retries, "reads", "Attempts to read a page after the first.");
  if (flash.buffer_overflows > 0)
    s.counter("buffer_overflows", flash.buffer_overflows, "pages", "Pages that found no buffer and went ahead.");
  if (flash.suspends > 0) s.counter("suspends", flash.suspends, "suspends", "Suspensions of programs and erases.");
  if (flash.joined_ops > 0)
    s.counter("joined_ops", flash.joined_ops, "operations",
              "Page operations that joined the command of another plane.");
}

void register_engine(Statistics& s, const engine::EngineStats& e) {
  s.counter("dense_jobs", e.dense_jobs, "jobs",
            "Heads attended to densely, SparF heads with at most k tokens included.");
  s.counter("sparf_jobs", e.sparf_jobs, "jobs", "Heads attended to with SparF.");
  s.counter("macs", e.macs, "operations", "Multiply-accumulates of the attention kernels.");
  s.counter("embedding_pages", e.embedding_pages, "pages", "Embedding pages read to score tokens.");
  s.counter("token_pages_scored", e.token_pages_a, "pages", "Token pages read to score tokens short of a window.");
  s.counter("token_pages_attended", e.token_pages_b, "pages", "Token pages of K and V read to attend.");
  s.counter("filtered_bytes", e.engine_bytes.value, "B", "Bytes of K and V that the filters passed to the engine.");
  s.time("kernel_busy", e.kernel_busy, "Busy time, summed over the attention kernels.");
  s.time("argtopk_busy", e.argtopk_busy, "Busy time of the argtopk unit.");
  s.counter("peak_buffer", e.peak_buffer.value, "B", "Most of the engine's buffer in use.");
  if (e.peak_page_buffers > 0)
    s.counter("peak_page_buffers", e.peak_page_buffers, "pages", "Most page buffers of one channel that it held.");
  Statistics& phases = s.child("job_time");
  for (std::size_t p = 0; p < engine::kJobPhases; ++p)
    phases.value(
        engine::kJobPhaseNames[p], [&e, p] { return e.phase_time[p].seconds(); }, "s",
        "Time of all jobs in this phase, queueing for its unit included.");
}

void register_kv(Statistics& s, const ftl::KvFtlStats& kv) {
  s.counter("lookups", kv.lookups, "entries", "Map entries looked up.");
  s.counter("token_pages_programmed", kv.token_pages_programmed, "pages", "Pages of full token groups.");
  s.counter("embedding_pages_programmed", kv.embedding_pages_programmed, "pages", "Pages of full embedding windows.");
  s.counter("read_back_pages", kv.read_back_pages, "pages", "Token pages of K read back to be transposed.");
  s.counter("misplaced_pages", kv.misplaced_pages, "pages", "Pages that did not go where the placement wanted them.");
}

/// What did not happen is absent.
void register_block(Statistics& s, const ftl::BlockFtlStats& block, const ftl::BlockManager& blocks) {
  const auto count = [&s](std::string_view name, const std::uint64_t& value, std::string_view unit,
                          std::string_view doc) {
    if (value > 0) s.counter(name, value, unit, doc);
  };
  count("gc_pages_moved", block.gc_pages_moved, "pages", "Valid pages that garbage collection moved.");
  count("gc_erases", block.gc_erases, "blocks", "Blocks that garbage collection erased.");
  count("background_steps", block.background_steps, "steps", "Pieces of background collection.");
  count("wear_pages_moved", block.wear_pages_moved, "pages", "Valid pages that static wear levelling moved.");
  count("wear_erases", block.wear_erases, "blocks", "Blocks that static wear levelling erased.");
  count("retired_pages_moved", block.retired_pages_moved, "pages", "Valid pages moved out of blocks that failed.");
  count("program_failures", block.program_failures, "programs", "Programs that failed; their blocks were retired.");
  count("erase_failures", block.erase_failures, "erases", "Erases that failed; their blocks were retired.");
  count("read_retries", block.read_retries, "reads", "Senses of pages after their first.");
  count("uncorrectable_reads", block.uncorrectable_reads, "reads", "Pages that could not be corrected.");
  count("trimmed_pages", block.trimmed_pages, "pages", "Pages that were deallocated.");
  if (const std::uint64_t lookups = block.map_hits + block.map_misses; lookups > 0) {
    s.counter("map_hits", block.map_hits, "entries", "Map entries of host pages that were cached.");
    s.counter("map_misses", block.map_misses, "entries", "Map entries of host pages that were not.");
    const double rate = static_cast<double>(block.map_hits) / static_cast<double>(lookups);
    s.value(
        "map_hit_rate", [rate] { return rate; }, "ratio", "Share of map entries that were cached.");
  }
  count("map_pages_read", block.map_pages_read, "pages", "Translation pages read.");
  count("map_pages_written", block.map_pages_written, "pages",
        "Translation pages written, those that were moved aside.");
  const ftl::WearStatistics wear = blocks.wear();
  if (wear.max == 0) return;
  s.value(
      "erases_min", [wear] { return static_cast<double>(wear.min); }, "erases", "Fewest erases of a block in service.");
  s.value(
      "erases_mean", [wear] { return wear.mean; }, "erases", "Their mean.");
  s.value(
      "erases_max", [wear] { return static_cast<double>(wear.max); }, "erases", "Most erases of a block in service.");
}

void register_dram(Statistics& s, const ftl::DramBudget& dram) {
  s.value(
      "capacity", [&dram] { return static_cast<double>(dram.capacity().value); }, "B", "Controller DRAM.");
  s.value(
      "peak", [&dram] { return static_cast<double>(dram.peak().value); }, "B", "Most of it in use.");
  for (std::size_t use = 0; use < ftl::kDramUses; ++use) {
    const bool engine = static_cast<ftl::DramUse>(use) == ftl::DramUse::engine_buffer;
    if (engine && dram.peak(ftl::DramUse::engine_buffer).value == 0) continue;  // it has memory of its own
    s.value(
        fmt::format("peak_{}", ftl::kDramUseNames[use]),
        [&dram, use] { return static_cast<double>(dram.peak(static_cast<ftl::DramUse>(use)).value); }, "B",
        "Most of it in use for this purpose.");
  }
}

}  // namespace

void Drive::register_statistics(Statistics& statistics) const {
  register_flash(statistics.child("flash"), flash_statistics());
  if (const engine::EngineStats* e = engine_stats()) register_engine(statistics.child("engine"), *e);
  register_kv(statistics.child("kv_ftl"), kv_ftl().stats());
  register_block(statistics.child("block_ftl"), block_ftl().stats(), block_manager());
  register_dram(statistics.child("dram"), dram());
  if (dram_port().limited()) {
    Statistics& port = statistics.child("dram_port");
    port.time("busy", dram_port().busy(), "Time that controller DRAM moved bytes.");
    for (std::size_t t = 0; t < kDramTraffics; ++t)
      port.value(
          fmt::format("{}_bytes", kDramTrafficNames[t]),
          [this, t] { return static_cast<double>(dram_port().bytes(static_cast<DramTraffic>(t)).value); }, "B",
          "Bytes of this kind through it.");
  }
  if (lookup_cores().busy().ps > 0)
    statistics.child("firmware").time("lookup_busy", lookup_cores().busy(), "Time of map lookups, over all cores.");
  Statistics& pcie = statistics.child("link");
  const nvme::LinkStats& out = link().stats(nvme::LinkDirection::to_host);
  const nvme::LinkStats& in = link().stats(nvme::LinkDirection::to_drive);
  pcie.counter("to_host_bytes", out.payload_bytes, "B", "Payload from the drive.");
  pcie.time("to_host_busy", out.busy, "Time that this direction was occupied.");
  pcie.counter("to_drive_bytes", in.payload_bytes, "B", "Payload to the drive.");
  pcie.time("to_drive_busy", in.busy, "Time that this direction was occupied.");
}

}  // namespace csdsim::csd_model
