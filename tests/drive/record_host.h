// A drive host that keeps an image of the block namespace, and the result that a feed_forward command must have.
#pragma once

#include <algorithm>
#include <vector>

#include "attention_engine/core/feed_forward.h"
#include "base/rng.h"
#include "tests/drive/drive_host.h"

namespace csdsim::test {

/// Without data, with pages that hold several records.
inline csd_model::DriveConfig timing_record_drive() {
  auto config = tiny_drive();
  config.geometry = {.channels = 4,
                     .dies_per_channel = 4,
                     .planes_per_die = 2,
                     .blocks_per_plane = 64,
                     .pages_per_block = 64,
                     .page_size = Bytes::kib(16)};
  config.data = ftl::DataMode::timing;
  config.kv_share = 0.2;
  return config;
}

/// A feed_forward command with its inputs.
struct FeedForwardCall {
  nvme::FeedForward op;
  std::vector<nvme::NeuronRun> runs;
  std::vector<Half> x, bias;
  SentPtr sent;
};

class RecordHost : public DriveHost {
 public:
  explicit RecordHost(const csd_model::DriveConfig& drive, std::uint64_t seed = 1)
      : DriveHost(drive), image(this->drive().block_ftl().capacity().value & ~std::uint64_t{4095}), rng_(seed) {}

  std::vector<std::byte> image;  ///< what the namespace holds

  /// Fills bytes [first, first + size), in whole blocks, with halves in [-0.25, 0.25].
  std::vector<SentPtr> send_records(std::uint64_t first, std::uint64_t size, std::uint16_t queue = 1) {
    for (std::uint64_t at = first; at < first + size; at += sizeof(Half)) {
      const Half value = half(0.25);
      std::memcpy(image.data() + at, &value, sizeof(Half));
    }
    std::vector<SentPtr> sent;
    for (std::uint64_t at = first; at < first + size;) {
      const std::uint64_t piece = std::min<std::uint64_t>(first + size - at, 256 << 10);
      const nvme::Segment b = buffer(Bytes{piece});
      std::copy_n(image.begin() + static_cast<std::ptrdiff_t>(at), piece, this->at(b.address));
      sent.push_back(send(nvme::encode_block_io(nvme::nvm_opcode::write, kNamespace, nvme::Lba{at / 4096},
                                                static_cast<std::uint32_t>(piece / 4096)),
                          b, queue));
      at += piece;
    }
    return sent;
  }
  void write_records(std::uint64_t first, std::uint64_t size) {
    for (const SentPtr& s : send_records(first, size))
      if (run(s) != nvme::status::success) throw std::runtime_error("records were not written");
  }

  /// A command with random x and biases; counts and flags follow from the arguments.
  FeedForwardCall call(std::uint16_t tokens, std::uint16_t width, std::vector<nvme::NeuronRun> runs,
                       std::uint8_t flags = nvme::feed_forward_flag::bias) {
    FeedForwardCall c;
    std::uint32_t neurons = 0;
    for (const nvme::NeuronRun& run : runs) neurons += run.count;
    c.op = {.tokens = tokens,
            .width = width,
            .runs = static_cast<std::uint16_t>(runs.size()),
            .neurons = static_cast<std::uint16_t>(neurons),
            .flags = flags};
    c.runs = std::move(runs);
    for (std::size_t i = 0; i < std::size_t{tokens} * width; ++i) c.x.push_back(half(1));
    if (c.op.has_bias())
      for (std::uint32_t i = 0; i < neurons; ++i) c.bias.push_back(half(0.5));
    return c;
  }

  void send_call(FeedForwardCall& c, std::uint16_t queue = 1) {
    const nvme::FeedForwardLayout layout = nvme::feed_forward_layout(c.op);
    const nvme::Segment b = buffer(layout.size);
    put(b.address, c.runs);
    if (!c.bias.empty()) put(b.address + layout.bias, c.bias);
    put(b.address + layout.x, c.x);
    c.sent = send(nvme::encode(kNamespace, c.op), b, queue);
  }
  nvme::Status run_call(FeedForwardCall& c) {
    send_call(c);
    return run(c.sent);
  }
  std::vector<float> result(const FeedForwardCall& c) {
    return get<float>(c.sent->buffer.address + nvme::feed_forward_layout(c.op).y, c.x.size());
  }

  /// From the image, in the order of the runs.
  std::vector<float> expected(const FeedForwardCall& c) const {
    const engine::FeedForwardShape shape{.tokens = c.op.tokens,
                                         .width = c.op.width,
                                         .activation = c.op.activation == nvme::NeuronActivation::silu
                                                           ? engine::Activation::silu
                                                           : engine::Activation::relu,
                                         .gated = c.op.gated(),
                                         .threshold = c.op.threshold};
    std::vector<Half> rows;
    const auto add = [&](std::uint64_t address) {
      for (std::uint32_t i = 0; i < c.op.width; ++i) {
        Half h;
        std::memcpy(&h, image.data() + address + i * sizeof(Half), sizeof(Half));
        rows.push_back(h);
      }
    };
    for (const nvme::NeuronRun& run : c.runs)
      for (std::uint64_t i = 0; i < run.count; ++i) {
        add(run.up + i * run.stride);
        if (shape.gated) add(run.gate + i * run.stride);
        add(run.down + i * run.stride);
      }
    std::vector<float> y(c.x.size());
    engine::feed_forward(shape, c.x, rows, c.bias, y);
    return y;
  }

  Rng& rng() { return rng_; }

 private:
  Half half(double scale) {
    const double unit = static_cast<double>(rng_.next() >> 11) * 0x1p-53;
    return float_to_half(static_cast<float>((2 * unit - 1) * scale));
  }

  Rng rng_;
};

/// Records of `matrices` rows side by side.
inline nvme::NeuronRun bundled(std::uint64_t first, std::uint32_t count, std::uint32_t width, std::uint32_t stride,
                               std::uint32_t matrices = 2) {
  const std::uint64_t row = std::uint64_t{width} * 2;
  return {.up = first,
          .gate = matrices == 3 ? first + row : 0,
          .down = first + (matrices - 1) * row,
          .count = count,
          .stride = stride};
}

}  // namespace csdsim::test
