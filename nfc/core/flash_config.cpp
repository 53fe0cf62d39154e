#include "nfc/core/flash_config.h"

namespace csdsim::nfc {
namespace {
constexpr SimTime ns(std::int64_t v) { return SimTime::nanoseconds(v); }
}  // namespace

void describe(ParamVisitor& v, PageTypesConfig& c) {
  v.param("cell", c.cell, "Bits of a cell: the type of a page is its number in its block modulo that many.",
          assumed("the usual cell of SSDs"));
  v.list("read_latency", c.read_latency, {0, 4}, "tR of each page type; empty: the flash's read_latency for all.",
         assumed("empty: datasheets give one tR"));
  v.list("program_latency", c.program_latency, {0, 4},
         "tProg of each page type; empty: the flash's program_latency for all.",
         assumed("empty: datasheets give one tProg"));
}

void describe(ParamVisitor& v, CacheConfig& c) {
  v.param("read", c.read, "A plane senses its next page while the last one waits for the channel.",
          assumed("both, or the section is none"));
  v.param("program", c.program, "A plane takes the data of its next program while the last one runs.",
          assumed("both, or the section is none"));
  v.param("busy_time", c.busy_time, {SimTime{}, SimTime::milliseconds(1)},
          "tRCBSY and tCBSY: between cache register and page register.", datasheet("Micron MT29F4G08: 3 us"));
}

void describe(ParamVisitor& v, SuspendConfig& c) {
  v.param("kinds", c.kinds, "What is suspended.", assumed("both, or the section is none"));
  v.param("latency", c.latency, {SimTime{}, SimTime::milliseconds(10)},
          "From the suspend command until the array takes a read.", assumed("the default of MQSim for programs"));
  v.param("resume_latency", c.resume_latency, {SimTime{}, SimTime::milliseconds(10)},
          "From the resume command until the array works on.", assumed("0: part of the suspension"));
  v.param("max", c.max, {1, 1'000'000}, "How often one operation is suspended.", assumed("once; datasheets limit it"));
}

void describe(ParamVisitor& v, CodewordsConfig& c) {
  v.param("size", c.size, {Bytes{512}, Bytes::kib(64)}, "Data bytes of a codeword; divides a page.",
          assumed("the sector that most hosts read"));
  v.param("parity", c.parity, {Bytes{0}, Bytes::kib(16)},
          "Parity bytes of a codeword, which cross the channel with it.",
          assumed("a code rate of 8/9: four codewords fill a page of 18,432 B"));
  v.param("spare", c.spare, {Bytes{0}, Bytes::mib(1)}, "Bytes of a page beyond page_size, which hold the parity.",
          assumed("pages of 16 KiB have 18,432 B in common data sheets"));
}

void describe(ParamVisitor& v, PackagesConfig& c) {
  v.param("dies", c.dies, {1, 64}, "Dies of a channel in one package.", assumed("a package of two dies a channel"));
  v.param("select_time", c.select_time, {SimTime{1}, SimTime::milliseconds(1)},
          "Bus time when a channel turns to another package.",
          assumed("tCEH and tCS of ONFI 4.2 together are tens of ns"));
}

namespace {

void describe_life(ParamVisitor& v, FlashConfig& c) {
  v.param("rated_cycles", c.rated_cycles, {1, 10'000'000},
          "Program/erase cycles that a block is rated for: what the life of the drive (TBW, drive writes per day) is "
          "counted in.",
          assumed("common for 3D TLC"));
  v.optional_section("reliability", c.reliability, "none",
                     "Bit errors by wear, age and reads, read retries, lost pages, failing programs and erases.",
                     assumed("none: every read is correct at once, nothing fails"));
}

void describe_cells(ParamVisitor& v, FlashConfig& c) {
  v.optional("slc_cache", c.slc_cache, "none", {Bytes::kib(4), Bytes::gib(1'048'576)},
             "Write cache of cells with one bit, whose program_latency is given: every write is simulated as one into "
             "it, and the result says when more was written than it holds.",
             assumed("none: all cells are alike"));
}

void describe_filter(ParamVisitor& v, FlashConfig& c) {
  v.param("filter_location", c.filter_location, "Where rows of a page that are not needed are dropped.",
          paper("InstInfer IV-B: in each NFC"));
  v.optional("filter_bandwidth", c.filter_bandwidth, "unlimited", {Bandwidth{1'000'000}, Bandwidth{1'000'000'000'000}},
             "Throughput of the filter of a channel: pages of attention pass it one after another, when they are "
             "corrected.",
             assumed("unlimited: keeps up with the channel; InstInfer states none"));
}

}  // namespace

void describe(ParamVisitor& v, FlashConfig& c) {
  FlashGeometry& g = c.geometry;
  v.param("channels", g.channels, {1, 128}, "Flash channels of the drive.", paper("InstInfer V-B"));
  v.param("dies_per_channel", g.dies_per_channel, {1, 64}, "Dies that share a channel.",
          assumed("InstInfer states none; 8 dies keep a 1.4 GB/s channel busy at a tR of 50 us"));
  v.param("planes_per_die", g.planes_per_die, {1, 16}, "Planes of a die.",
          assumed("InstInfer II-C calls 2 to 4 typical"));
  v.param("blocks_per_plane", g.blocks_per_plane, {1, 1'048'576}, "Erase blocks of a plane.",
          assumed("chosen for 1 TiB"));
  v.param("pages_per_block", g.pages_per_block, {1, 65'536}, "Pages of an erase block.",
          assumed("InstInfer II-C says several hundred"));
  v.param("page_size", g.page_size, {Bytes{512}, Bytes::mib(1)}, "Data bytes of a page; a multiple of 512 B.",
          paper("InstInfer IV-C"));
  v.shorthand("interface", "interface", c.interface,
              "Speed of an ONFI or Toggle interface: channel_bandwidth, command_time and data_out_setup.");
  v.param("read_latency", c.read_latency, {ns(1), SimTime::milliseconds(100)}, "tR: from the array to the page buffer.",
          assumed("typical for TLC; InstInfer states none"));
  v.param("program_latency", c.program_latency, {ns(1), SimTime::milliseconds(100)},
          "tProg: from the page buffer to the array.", assumed("typical for TLC; InstInfer states none"));
  v.param("erase_latency", c.erase_latency, {ns(1), SimTime::milliseconds(1'000)}, "tBERS: erase of a block.",
          assumed("typical for TLC; InstInfer states none"));
  v.param("channel_bandwidth", c.channel_bandwidth, {Bandwidth{1'000'000}, Bandwidth{100'000'000'000}},
          "Data rate of one channel.", paper("InstInfer V-B"));
  v.param("command_time", c.command_time, {SimTime{}, SimTime::milliseconds(1)},
          "Bus time of a command with its address cycles.",
          assumed("ONFI-like bus: 7 cycles and the turn-around times"));
  v.param("data_out_setup", c.data_out_setup, {SimTime{}, SimTime::milliseconds(1)},
          "Bus time before the first byte of a page moves.",
          assumed("ONFI-like bus: column change and strobe preamble"));
  v.param("bus_arbitration", c.arbitration, "Which request a free channel takes next.",
          assumed("keeps planes busy; no paper states it"));
  v.param("ecc_latency", c.ecc_latency, {SimTime{}, SimTime::milliseconds(1)},
          "Pipelined time of error correction after a page has arrived.", assumed("0: hidden behind the transfer"));
  v.param("read_jitter", c.read_jitter, {SimTime{}, SimTime::milliseconds(100)},
          "Each read takes up to this much longer, uniformly.", assumed("0: a constant tR"));
  v.optional_section("page_types", c.page_types, "none",
                     "Latencies by page type, in place of read_latency and program_latency.",
                     assumed("none: all pages alike"));
  v.param("plane_mode", c.plane_mode,
          "Whether the planes of a die work on their own: always, for reads only, or never.",
          assumed("planes with circuits of their own"));
  v.optional_section("cache", c.cache, "none", "Double buffering in the registers of a plane (ONFI cache operations).",
                     assumed("none: ONFI 4.2 makes them optional"));
  v.optional_section("suspend", c.suspend, "none",
                     "Programs and erases that a waiting read suspends: one of a more urgent class, if there are "
                     "priorities.",
                     assumed("none: an optional command"));
  v.list("class_priority", c.class_priority, {0, kOpClasses},
         "Classes from most to least urgent; those not named come last, and without any all are equal.",
         assumed("none: first come, first served"));
  v.param("plane_order", c.plane_order, "Which waiting operation of a class a plane takes next.",
          assumed("no paper states it; MQSim takes reads first"));
  v.param("status_time", c.status_time, {SimTime{}, SimTime::milliseconds(1)},
          "Bus time of the status poll that ends a program or erase; 0: there is none.",
          assumed("0: the ready line is free"));
  v.optional_section("codewords", c.codewords, "none",
                     "Units of error correction: a read moves those that it wants, in place of the whole page.",
                     assumed("none: a read moves the whole page, and parity takes no time"));
  v.param("reuse_register", c.reuse_register,
          "A read of the page that its plane sensed last takes no tR: the page is still in the plane's register.",
          assumed("false: each read senses its page, as in MQSim"));
  v.param("word_line_pages", c.word_line_pages, {1, 16},
          "Pages that are programmed together in one program_latency: those of a word line. A read takes one of them.",
          assumed("1: pages are programmed one by one"));
  v.optional_section("packages", c.packages, "none", "Dies that share a chip enable, and what turning to others takes.",
                     assumed("none: turning takes no time"));
  v.optional("ecc_bandwidth", c.ecc_bandwidth, "unlimited", {Bandwidth{1'000'000}, Bandwidth{1'000'000'000'000}},
             "Throughput of error correction of one channel, page after page.", assumed("keeps up with the channel"));
  v.optional("page_buffers", c.page_buffers, "unlimited", {1, 65'536},
             "Buffers of a channel controller for pages read. A page takes one when its transfer starts, until it is "
             "corrected. A page for attention keeps it until a kernel has processed it, and with `intake: page` "
             "takes it when its read is issued.",
             assumed("never the bottleneck; no paper states them"));
  describe_cells(v, c);
  describe_life(v, c);
  describe_filter(v, c);
}

FlashTiming flash_timing(const FlashConfig& config, std::uint64_t seed) {
  FlashTiming timing = config;
  timing.seed = seed;
  if (config.reliability) timing.retry_latency = config.reliability->retry_latency;
  return timing;
}

}  // namespace csdsim::nfc
