// A host program for the tests of the whole drive: a platform with one small drive, buffers in host memory, and the KV
// commands as calls.
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "base/rng.h"
#include "nvme_if/spec/encode.h"
#include "nvme_if/spec/log_page.h"
#include "nvme_if/sysc/sc_sim_time.h"
#include "platform/platform.h"
#include "tests/attention_engine/reference.h"
#include "tests/support/sysc_fixture.h"

namespace csdsim::test {

inline constexpr nvme::NamespaceId kNamespace{1};

/// 4 channels x 2 dies x 2 planes of 1 KiB pages, data carried. With d = 16 a token page holds 32 tokens, and with
/// m = 8 a window is 64 tokens in 2 embedding pages.
inline csd_model::DriveConfig tiny_drive() {
  csd_model::DriveConfig drive;
  drive.geometry = {.channels = 4,
                    .dies_per_channel = 2,
                    .planes_per_die = 2,
                    .blocks_per_plane = 32,
                    .pages_per_block = 16,
                    .page_size = Bytes::kib(1)};
  drive.dram = Bytes::mib(64);
  drive.kv.layout.embedding_group = 8;
  return drive;
}

/// Keys, values and queries as a function of where they stand: the oracle needs no copy of the cache.
struct Content {
  std::uint32_t d = 16;
  std::uint64_t seed = 1;

  enum Kind : std::uint64_t { key, value, query };

  Half element(Kind kind, std::uint32_t sequence, std::uint32_t layer, std::uint32_t head, std::uint32_t token,
               std::uint32_t i) const {
    const std::uint64_t stream = ((std::uint64_t{kind} * 1009 + sequence) * 1009 + layer) * 1009 + head;
    const std::uint64_t bits = counter_random(seed * 0x10001 + stream, std::uint64_t{token} * d + i);
    const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
    return float_to_half(static_cast<float>((2 * unit - 1) * (kind == value ? 1.0 : 2.0)));
  }
  std::vector<Half> row(Kind kind, std::uint32_t sequence, std::uint32_t layer, std::uint32_t head,
                        std::uint32_t token) const {
    std::vector<Half> out(d);
    for (std::uint32_t i = 0; i < d; ++i) out[i] = element(kind, sequence, layer, head, token, i);
    return out;
  }
  /// [heads][tokens][d]
  std::vector<Half> rows(Kind kind, std::uint32_t sequence, std::uint32_t layer, std::uint32_t first_head,
                         std::uint32_t heads, std::uint32_t first_token, std::uint32_t tokens) const {
    std::vector<Half> out;
    for (std::uint32_t h = first_head; h < first_head + heads; ++h)
      for (std::uint32_t t = first_token; t < first_token + tokens; ++t) {
        const std::vector<Half> one = row(kind, sequence, layer, h, t);
        out.insert(out.end(), one.begin(), one.end());
      }
    return out;
  }
  engine::test::Matrix matrix(Kind kind, std::uint32_t sequence, std::uint32_t layer, std::uint32_t head,
                              std::uint32_t tokens) const {
    return engine::test::matrix(rows(kind, sequence, layer, head, 1, 0, tokens), d);
  }
};

/// A command on its way or done.
struct Sent {
  nvme::Segment buffer;
  bool done = false;
  nvme::Status status;
  std::uint32_t dw0 = 0;
  SimTime at;  ///< when the host saw its completion
};
using SentPtr = std::shared_ptr<Sent>;

class DriveHost {
 public:
  SyscFixture context;
  platform::Platform platform;
  Content content;

  explicit DriveHost(const csd_model::DriveConfig& drive = tiny_drive(), std::uint16_t queues = 4,
                     std::uint32_t queue_depth = 64)
      : DriveHost({.drive = drive,
                   .host_memory = Bytes::gib(1),
                   .gpu_memory = Bytes::gib(1),
                   .io_overhead = {},
                   .queues = queues,
                   .queue_depth = queue_depth}) {}
  explicit DriveHost(const platform::PlatformParams& params) : platform(params), next_(platform.free_host_memory()) {
    sc_core::sc_start();
    if (!driver().ready()) throw std::runtime_error("the drive did not come up: " + driver().failure());
  }

  csd_model::Drive& drive() { return platform.drive(0); }
  nvme::NvmeDriver& driver() { return platform.driver(0); }
  std::uint64_t integrity_errors() {
    return drive().backing_store().integrity_errors() + drive().kv_backing_store().integrity_errors();
  }

  /// A register of four bytes of the controller, as the host sees it.
  std::uint32_t read_register(std::uint64_t offset) { return access_register(tlm::TLM_READ_COMMAND, offset, 0); }
  void write_register(std::uint64_t offset, std::uint32_t value) {
    access_register(tlm::TLM_WRITE_COMMAND, offset, value);
  }

  /// Runs until nothing more happens.
  static void settle() {
    if (sc_core::sc_pending_activity()) sc_core::sc_start();
  }
  static void run_for(SimTime duration) { sc_core::sc_start(nvme::to_sc_time(duration)); }

  /// A page-aligned buffer in host memory, never given back.
  nvme::Segment buffer(Bytes size) {
    const nvme::Segment segment{next_, size};
    next_.value += (size.value + 4095) / 4096 * 4096;
    return segment;
  }
  std::byte* at(nvme::PhysicalAddress address) { return platform.host_memory().bytes().data() + address.value; }
  template <class T>
  std::vector<T> get(nvme::PhysicalAddress from, std::size_t count) {
    std::vector<T> out(count);
    std::memcpy(out.data(), at(from), count * sizeof(T));
    return out;
  }
  template <class T>
  void put(nvme::PhysicalAddress to, const std::vector<T>& data) {
    std::memcpy(at(to), data.data(), data.size() * sizeof(T));
  }

  SentPtr send(const nvme::SubmissionEntry& entry, nvme::Segment buffer = {}, std::uint16_t queue = 1) {
    const auto sent = std::make_shared<Sent>();
    sent->buffer = buffer;
    const std::span<const nvme::Segment> segments(&buffer, buffer.length.value == 0 ? 0 : 1);
    driver().submit(nvme::QueueId{queue}, entry, segments, [sent](const nvme::CompletionEntry& cqe, SimTime now) {
      if (sent->done) throw std::logic_error("completed twice");
      *sent = {sent->buffer, true, cqe.code(), cqe.dw0, now};
    });
    return sent;
  }
  /// Runs until the command is done; its status.
  nvme::Status run(const SentPtr& sent) {
    settle();
    if (!sent->done) throw std::runtime_error("a command was not completed");
    return sent->status;
  }
  nvme::Status run(const nvme::SubmissionEntry& entry, nvme::Segment buffer = {}, std::uint16_t queue = 1) {
    return run(send(entry, buffer, queue));
  }

  std::uint32_t tokens_of(std::uint32_t sequence, std::uint32_t layer = 0, std::uint32_t head = 0) {
    return drive().kv_ftl().tokens({SequenceId{sequence}, LayerId{layer}, KvHead{head}});
  }

  // Blocks.

  SentPtr send_write(std::uint64_t lba, std::uint32_t blocks, std::byte fill, std::uint16_t queue = 1) {
    const nvme::Segment b = buffer(driver().block_size() * blocks);
    std::fill_n(at(b.address), b.length.value, fill);
    return send(nvme::encode_block_io(nvme::nvm_opcode::write, kNamespace, nvme::Lba{lba}, blocks), b, queue);
  }
  SentPtr send_read(std::uint64_t lba, std::uint32_t blocks, std::uint16_t queue = 1) {
    return send(nvme::encode_block_io(nvme::nvm_opcode::read, kNamespace, nvme::Lba{lba}, blocks),
                buffer(driver().block_size() * blocks), queue);
  }

  // KV commands.

  static nvme::SubmissionEntry create_entry(std::uint32_t sequence, std::uint16_t layers, std::uint16_t heads,
                                            std::uint16_t d, std::uint16_t flags = 0) {
    return nvme::encode(kNamespace, nvme::KvCreate{SequenceId{sequence}, layers, heads, d, flags, 0});
  }
  static nvme::SubmissionEntry free_entry(std::uint32_t sequence) {
    return nvme::encode(kNamespace, nvme::KvFree{SequenceId{sequence}});
  }
  nvme::Status create(std::uint32_t sequence, std::uint16_t layers, std::uint16_t heads, std::uint16_t flags = 0) {
    return run(create_entry(sequence, layers, heads, static_cast<std::uint16_t>(content.d), flags));
  }
  nvme::Status free(std::uint32_t sequence) { return run(free_entry(sequence)); }

  static nvme::KvAppend append_command(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first_token,
                                       std::uint32_t tokens, std::uint32_t first_head, std::uint32_t heads) {
    return {SequenceId{sequence},    LayerId{layer},
            TokenIndex{first_token}, static_cast<std::uint16_t>(tokens),
            KvHead{first_head},      static_cast<std::uint16_t>(heads)};
  }
  SentPtr send_append(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first_token, std::uint32_t tokens,
                      std::uint32_t first_head, std::uint32_t heads, std::uint16_t queue = 1) {
    const nvme::KvAppend c = append_command(sequence, layer, first_token, tokens, first_head, heads);
    const auto d = static_cast<std::uint16_t>(content.d);
    const nvme::Segment b = buffer(nvme::append_size(c, d));
    const auto k = content.rows(Content::key, sequence, layer, first_head, heads, first_token, tokens);
    put(b.address, k);
    put(b.address + Bytes{k.size() * sizeof(Half)},
        content.rows(Content::value, sequence, layer, first_head, heads, first_token, tokens));
    return send(nvme::encode(kNamespace, c, d), b, queue);
  }
  nvme::Status append(std::uint32_t sequence, std::uint32_t layer, std::uint32_t first_token, std::uint32_t tokens,
                      std::uint32_t first_head, std::uint32_t heads) {
    return run(send_append(sequence, layer, first_token, tokens, first_head, heads));
  }

  /// Attend with the content's q, k and v for the descriptors' tokens.
  struct Attend {
    nvme::KvAttend command;
    std::vector<nvme::AttendDescriptor> descriptors;
    nvme::AttendLayout layout;
    SentPtr sent;
  };
  Attend prepare_attend(std::uint32_t layer, const std::vector<nvme::AttendDescriptor>& descriptors,
                        nvme::AttendMethod method = nvme::AttendMethod::dense, std::uint8_t group = 1) {
    Attend a;
    a.command = {LayerId{layer}, static_cast<std::uint16_t>(descriptors.size()), method,
                 group,          static_cast<std::uint16_t>(content.d),          0};
    for (const auto& d : descriptors) a.command.total_heads += d.head_count;
    a.descriptors = descriptors;
    a.layout = nvme::attend_layout(a.command);
    a.sent = std::make_shared<Sent>();
    a.sent->buffer = buffer(a.layout.size);
    const nvme::PhysicalAddress base = a.sent->buffer.address;
    put(base, descriptors);
    nvme::PhysicalAddress q = base + a.layout.q, k = base + a.layout.k, v = base + a.layout.v;
    for (const auto& d : descriptors) {
      const Bytes one{std::uint64_t{d.head_count} * content.d * sizeof(Half)};
      put(q, content.rows(Content::query, d.sequence, layer, std::uint32_t{d.first_head} * group,
                          std::uint32_t{d.head_count} * group, d.token, 1));
      put(k, content.rows(Content::key, d.sequence, layer, d.first_head, d.head_count, d.token, 1));
      put(v, content.rows(Content::value, d.sequence, layer, d.first_head, d.head_count, d.token, 1));
      q = q + one * group;
      k = k + one;
      v = v + one;
    }
    return a;
  }
  void send_attend(Attend& a, std::uint16_t queue = 1) {
    a.sent = send(nvme::encode(kNamespace, a.command), a.sent->buffer, queue);
  }
  Attend attend(std::uint32_t layer, const std::vector<nvme::AttendDescriptor>& descriptors,
                nvme::AttendMethod method = nvme::AttendMethod::dense, std::uint8_t group = 1) {
    Attend a = prepare_attend(layer, descriptors, method, group);
    send_attend(a);
    run(a.sent);
    return a;
  }
  std::vector<Half> output(const Attend& a) {
    return get<Half>(a.sent->buffer.address + a.layout.out,
                     std::size_t{a.command.total_heads} * a.command.group * content.d);
  }

  /// Largest difference between an attend's output and attention in double precision. For SparF the reference selects
  /// tokens itself, so r, k and l must leave a clear margin.
  double error(const Attend& a) {
    const std::vector<Half> out = output(a);
    std::size_t at = 0;
    double worst = 0;
    for (const auto& d : a.descriptors)
      for (std::uint32_t h = d.first_head; h < std::uint32_t{d.first_head} + d.head_count; ++h) {
        const std::uint32_t layer = a.command.layer.value;
        const auto k = content.matrix(Content::key, d.sequence, layer, h, d.token + 1);
        const auto v = content.matrix(Content::value, d.sequence, layer, h, d.token + 1);
        engine::test::Matrix q;
        for (std::uint32_t g = 0; g < a.command.group; ++g)
          q.push_back(engine::test::matrix(
              content.row(Content::query, d.sequence, layer, h * a.command.group + g, d.token), content.d)[0]);
        engine::test::Matrix expected;
        if (a.command.method == nvme::AttendMethod::sparf && d.token + 1 > d.k)
          expected = engine::test::sparq(q, k, v, {.r = d.r, .k = d.k, .l = d.l}).out;
        else
          for (const auto& row : q) expected.push_back(engine::test::attend(row, k, v, engine::test::all(k.size())));
        for (const auto& row : expected)
          for (const double x : row) worst = std::max(worst, std::abs(x - half_to_float(out.at(at++))));
      }
    return worst;
  }

 private:
  std::uint32_t access_register(tlm::tlm_command command, std::uint64_t offset, std::uint32_t value) {
    tlm::tlm_generic_payload p;
    p.set_command(command);
    p.set_address(offset);
    p.set_data_ptr(reinterpret_cast<unsigned char*>(&value));
    p.set_data_length(sizeof value);
    p.set_streaming_width(sizeof value);
    sc_core::sc_time delay;
    driver().bar->b_transport(p, delay);
    return value;
  }

  nvme::PhysicalAddress next_;
};

/// A descriptor for heads [first_head, first_head + heads) whose newest token is `token`.
inline nvme::AttendDescriptor heads_of(std::uint32_t sequence, std::uint32_t token, std::uint16_t first_head,
                                       std::uint16_t heads, bool append = false) {
  return {.sequence = sequence,
          .token = token,
          .first_head = first_head,
          .head_count = heads,
          .flags = append ? nvme::attend_flag::append : std::uint16_t{0}};
}
inline nvme::AttendDescriptor sparse_heads_of(std::uint32_t sequence, std::uint32_t token, std::uint16_t first_head,
                                              std::uint16_t heads, std::uint16_t r, std::uint32_t k, std::uint32_t l,
                                              bool append = false) {
  nvme::AttendDescriptor d = heads_of(sequence, token, first_head, heads, append);
  d.r = r;
  d.k = k;
  d.l = l;
  return d;
}

/// Half a unit in the last place of outputs below 1, with room for fp32 sums.
inline constexpr double kOutputTolerance = 1e-3;

/// SMART / Health Information (NVMe Base Specification 2.0, 5.16.1.3).
inline nvme::SmartLog smart_log(DriveHost& host) {
  const nvme::Segment page = host.buffer(Bytes{sizeof(nvme::SmartLog)});
  nvme::SubmissionEntry get_log;
  get_log.opcode = nvme::admin_opcode::get_log_page;
  get_log.cdw10 = nvme::log_page::smart | (sizeof(nvme::SmartLog) / 4 - 1) << 16;
  if (!host.run(get_log, page, 0).ok()) throw std::runtime_error("Get Log Page failed");
  nvme::SmartLog log;
  std::memcpy(&log, host.at(page.address), sizeof log);
  return log;
}

}  // namespace csdsim::test
