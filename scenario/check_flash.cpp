// Checks that the parameters of a drive's flash fit together.
#include <fmt/format.h>

#include <algorithm>

#include "scenario/check.h"

namespace csdsim::scenario {
namespace {

void check_geometry(Checker& c, const FlashGeometry& g) {
  constexpr std::string_view page = "platform.device.flash.page_size";
  c.require(g.page_size.value % 512 == 0, {page},
            fmt::format("{}: {} is not a multiple of 512 B", page, format_quantity(g.page_size)));
  constexpr std::uint64_t kMaxBlocks = std::uint64_t{1} << 28;
  constexpr auto kMaxBytes = static_cast<unsigned __int128>(1) << 50;
  const std::initializer_list<std::string_view> shape{
      "platform.device.flash.blocks_per_plane", "platform.device.flash.channels",
      "platform.device.flash.dies_per_channel", "platform.device.flash.planes_per_die",
      "platform.device.flash.pages_per_block"};
  c.require(
      g.blocks() <= kMaxBlocks, shape,
      fmt::format("the flash has {} erase blocks, more than the {} that can be modelled", g.blocks(), kMaxBlocks));
  c.require(static_cast<unsigned __int128>(g.pages()) * g.page_size.value <= kMaxBytes, shape,
            fmt::format("the flash has {} pages of {}, more than the 1024 TiB that can be modelled", g.pages(),
                        format_quantity(g.page_size)));
}

/// A list of latencies by page type replaces the single latency, which becomes the mean of the list.
void check_page_types(Checker& c, nfc::FlashConfig& flash) {
  if (!flash.page_types) return;
  const nfc::PageTypesConfig& pages = *flash.page_types;
  const std::string section = "platform.device.flash.page_types";
  const auto types = static_cast<std::size_t>(pages.cell);
  const auto check = [&](const std::string& name, const std::vector<SimTime>& list, SimTime& of_all) {
    if (list.empty()) return;
    const std::string path = section + "." + name;
    c.require(types == list.size(), {path, section + ".cell"},
              fmt::format("{}: {} latencies for the {} page types of a {} cell", path, list.size(), types,
                          name_of(pages.cell)));
    c.require(std::all_of(list.begin(), list.end(),
                          [](SimTime t) { return t >= SimTime::nanoseconds(1) && t <= SimTime::milliseconds(100); }),
              {path}, fmt::format("{}: a latency is out of range (1 ns to 100 ms)", path));
    std::int64_t sum = 0;
    for (const SimTime t : list) sum += t.ps;
    const SimTime mean{sum / static_cast<std::int64_t>(list.size())};
    if (of_all != mean) {
      c.refuse_unused("platform.device.flash." + name, path,
                      "every page type has its own latency, and their mean differs");
    }
    of_all = mean;
  };
  check("read_latency", pages.read_latency, flash.read_latency);
  check("program_latency", pages.program_latency, flash.program_latency);
  c.require(!pages.read_latency.empty() || !pages.program_latency.empty(), {section},
            section + ": gives no latency by page type: give read_latency, program_latency or both");
}

void check_codewords(Checker& c, const nfc::FlashConfig& flash) {
  if (!flash.codewords) return;
  const nfc::CodewordsConfig& words = *flash.codewords;
  const Bytes page = flash.geometry.page_size;
  const std::string section = "platform.device.flash.codewords.";
  const bool divides = page.value % words.size.value == 0;
  c.require(divides, {section + "size", "platform.device.flash.page_size"},
            fmt::format("{}size: {} does not divide a page of {}", section, format_quantity(words.size),
                        format_quantity(page)));
  c.require(!divides || words.parity_of(page) <= words.spare,
            {section + "parity", section + "spare", section + "size", "platform.device.flash.page_size"},
            fmt::format("{}parity: {} for each of {} codewords do not fit into {} of spare bytes", section,
                        format_quantity(words.parity), page.value / words.size.value, format_quantity(words.spare)));
  c.require(flash.filter_location != nfc::FilterLocation::die,
            {"platform.device.flash.filter_location", section + "size"},
            "platform.device.flash.filter_location: a die that passes single rows cannot pass codewords: give nfc, or "
            "leave codewords out");
}

/// Groups of tokens are whole codewords of one page.
void check_token_groups(Checker& c, const csd_model::DeviceConfig& device) {
  const ftl::KvMapping* const mapping = ftl::kv_mapping(device.ftl.mapping);
  if (mapping == nullptr || mapping->group_codewords == 1) return;
  constexpr std::string_view path = "platform.device.ftl.mapping.group_codewords";
  const auto& words = device.flash.codewords;
  if (!words) return c.refuse_unused(path, "platform.device.flash.codewords", "pages are read whole without codewords");
  const std::uint64_t in_page = device.flash.geometry.page_size.value / words->size.value;
  c.require(in_page % mapping->group_codewords == 0, {path, "platform.device.flash.codewords.size"},
            fmt::format("{}: {} do not divide the {} codewords of a page", path, mapping->group_codewords, in_page));
}

/// What programs of whole word lines need of the flash and of the drive.
void check_word_lines(Checker& c, const csd_model::DeviceConfig& device) {
  const nfc::FlashConfig& flash = device.flash;
  const std::uint32_t pages = flash.word_line_pages;
  if (pages == 1) return;
  constexpr std::string_view path = "platform.device.flash.word_line_pages";
  c.require(flash.geometry.pages_per_block % pages == 0, {path, "platform.device.flash.pages_per_block"},
            fmt::format("{}: {} do not divide the {} pages of a block; pages_per_block: {} or {} would do", path, pages,
                        flash.geometry.pages_per_block, flash.geometry.pages_per_block / pages * pages,
                        (flash.geometry.pages_per_block / pages + 1) * pages));
  c.require(!flash.page_types || flash.page_types->program_latency.empty(),
            {path, "platform.device.flash.page_types.program_latency"},
            fmt::format("{}: pages that are programmed together have one program_latency: leave the list out", path));
  c.require(!device.has_engine(), {path, "platform.device.ftl.mapping.kind"},
            fmt::format("{}: the KV cache is programmed page by page: give mapping: {{kind: page}}", path));
  c.require(!flash.reliability, {path, "platform.device.flash.reliability"},
            fmt::format("{}: programs that fail are modelled only page by page: leave one of the two out", path));
}

void check_reliability(Checker& c, nfc::FlashConfig& flash) {
  if (!flash.reliability) return;
  nfc::ReliabilityConfig& model = *flash.reliability;
  const std::string section = "platform.device.flash.reliability.";
  if (model.rated_cycles)
    c.refuse_unused("platform.device.flash.rated_cycles", section + "rated_cycles", section + "rated_cycles is given");
  if (flash.codewords) {
    c.refuse_unused(section + "codeword", "platform.device.flash.codewords.size",
                    "platform.device.flash.codewords gives the size");
    model.codeword = flash.codewords->size;
    const std::uint64_t parity = model.parity_bits();
    c.require(parity <= 8 * flash.codewords->parity.value,
              {section + "correctable_bits", "platform.device.flash.codewords.parity"},
              fmt::format("{}correctable_bits: {} take {} bits of parity, codewords have {}", section,
                          model.correctable_bits, parity, format_quantity(flash.codewords->parity)));
  }
  c.require(flash.geometry.page_size.value % model.codeword.value == 0,
            {section + "codeword", "platform.device.flash.page_size"},
            fmt::format("{}codeword: {} does not divide a page of {}", section, format_quantity(model.codeword),
                        format_quantity(flash.geometry.page_size)));
  c.require(!flash.page_types || flash.page_types->cell == model.cell,
            {section + "cell", "platform.device.flash.page_types.cell"},
            fmt::format("{}cell: {} disagrees with page_types", section, name_of(model.cell)));
  if (model.max_retries == 0) {
    for (const char* const of_retries : {"retry_factor", "retry_latency"})
      c.refuse_unused(section + of_retries, section + "max_retries", "there are no retries");
  }
}

/// What a filter with a bandwidth needs: pages that pass it.
void check_filter(Checker& c, const nfc::FlashConfig& flash, bool attends) {
  if (!flash.filter_bandwidth) return;
  constexpr std::string_view path = "platform.device.flash.filter_bandwidth";
  constexpr std::string_view location = "platform.device.flash.filter_location";
  if (!attends)
    return c.refuse_unused(path, "platform.device.ftl.mapping.kind", "a drive without a KV cache filters nothing");
  if (flash.filter_location != nfc::FilterLocation::nfc)
    return c.refuse_unused(path, location, "only filters in the flash controllers have a bandwidth of their own");
  if (c.scenario().platform.device.engine.behind_switch())
    return c.refuse_unused(path, "platform.device.engine.placement", "an engine behind the switch reads whole pages");
}

void check_flash_features(Checker& c, const nfc::FlashConfig& flash, bool attends) {
  const FlashGeometry& g = flash.geometry;
  c.require(g.planes_per_die > 1 || flash.plane_mode == nfc::PlaneMode::independent,
            {"platform.device.flash.plane_mode"},
            "platform.device.flash.plane_mode: a die with a single plane has no multi-plane operations");
  c.require(!flash.cache || flash.cache->read || flash.cache->program, {"platform.device.flash.cache"},
            "platform.device.flash.cache: neither read nor program is on; write none instead");
  c.require(!flash.packages || flash.packages->dies < g.dies_per_channel,
            {"platform.device.flash.packages.dies", "platform.device.flash.dies_per_channel"},
            "platform.device.flash.packages.dies: all dies of a channel are in one package, so packages never switch");
  constexpr std::string_view kBuffers = "platform.device.flash.page_buffers";
  c.require(!flash.page_buffers || flash.ecc_bandwidth || flash.ecc_latency.ps > 0 || attends || !c.given(kBuffers),
            {kBuffers},
            "platform.device.flash.page_buffers: pages never wait in them: give ecc_bandwidth or ecc_latency");
  c.require(!flash.page_buffers || !attends || c.scenario().platform.device.engine.intake != engine::Intake::phase,
            {"platform.device.engine.intake", "platform.device.flash.page_buffers"},
            "platform.device.engine.intake: with phase, kernels wait for more pages than page_buffers may hold: give "
            "arrival");
  c.require(!flash.page_buffers || !attends || c.scenario().platform.overlap.engine_flash ||
                c.scenario().platform.device.engine.intake != engine::Intake::arrival,
            {"platform.device.engine.intake", "platform.overlap.engine_flash"},
            "platform.device.engine.intake: with arrival, flash's turn would not end while all page_buffers are full: "
            "give page, or let flash and engine overlap");
  auto classes = flash.class_priority;
  std::sort(classes.begin(), classes.end());
  c.require(std::adjacent_find(classes.begin(), classes.end()) == classes.end(),
            {"platform.device.flash.class_priority"}, "platform.device.flash.class_priority: names a class twice");
}

}  // namespace

void check_flash(Checker& c) {
  csd_model::DeviceConfig& device = c.scenario().platform.device;
  check_geometry(c, device.flash.geometry);
  check_page_types(c, device.flash);
  check_flash_features(c, device.flash, device.has_engine() && c.scenario().workload->attends());
  check_filter(c, device.flash, device.has_engine());
  check_codewords(c, device.flash);
  check_token_groups(c, device);
  check_word_lines(c, device);
  check_reliability(c, device.flash);
  constexpr std::string_view kReclaim = "platform.device.ftl.read_reclaim";
  c.require(device.ftl.read_reclaim == 0 || device.flash.reliability, {kReclaim},
            fmt::format("{}: reads do no harm without platform.device.flash.reliability", kReclaim));
  c.require(device.ftl.read_reclaim == 0 || ftl::kv_mapping(device.ftl.mapping) != nullptr,
            {kReclaim, "platform.device.ftl.mapping.kind"},
            fmt::format("{}: mapping kind page keeps no KV cache, whose blocks are reclaimed", kReclaim));
}

}  // namespace csdsim::scenario
