// Tokens of opt-6m whose feed-forward networks are computed in drives, from records that were written to them.
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <numeric>

#include "attention_engine/core/feed_forward.h"
#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/features/neurons/model/neuron_runs.h"
#include "tests/host_runtime/opt_6m.h"
#include "tests/host_sysc/drive_rig.h"

namespace test_neuron_tokens {

using namespace csdsim;
using namespace csdsim::test;
using host::OpKind;

namespace {

constexpr std::uint32_t kSteps = 12;

/// The sum over `neurons` of a layer for x [tokens][width], both rounded to fp16; the biases are those of the list.
using Network = std::function<std::vector<float>(LayerId layer, const std::vector<std::uint32_t>& neurons,
                                                 std::uint32_t tokens, const std::vector<Half>& x)>;

std::vector<Half> halves_of(const std::string& name) {
  const host::StoredTensor tensor = opt_6m().checkpoint.weights->tensor(name);
  std::vector<Half> values(tensor.bytes.size() / sizeof(Half));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

std::string layer_name(LayerId layer, const char* what) {
  return "model.decoder.layers." + std::to_string(layer.value) + "." + what;
}

/// Rows of a layer: up is a row of fc1, down a column of fc2.
struct LayerRows {
  std::vector<Half> up, bias, down;
  explicit LayerRows(LayerId layer) : up(halves_of(layer_name(layer, "fc1.weight"))) {
    bias = halves_of(layer_name(layer, "fc1.bias"));
    const std::vector<Half> columns = halves_of(layer_name(layer, "fc2.weight"));
    const std::size_t width = opt_6m().checkpoint.config.width, ffn = bias.size();
    down.resize(columns.size());
    for (std::size_t n = 0; n < ffn; ++n)
      for (std::size_t i = 0; i < width; ++i) down[n * width + i] = columns[i * ffn + n];
  }
  std::vector<Half> biases(const std::vector<std::uint32_t>& neurons) const {
    std::vector<Half> chosen;
    for (const std::uint32_t n : neurons) chosen.push_back(bias[n]);
    return chosen;
  }
};

const LayerRows& rows_of(LayerId layer) {
  static std::map<LayerId, LayerRows> rows;
  return rows.try_emplace(layer, layer).first->second;
}

/// In memory, with the arithmetic of the drive.
std::vector<float> on_host(LayerId layer, const std::vector<std::uint32_t>& neurons, std::uint32_t tokens,
                           const std::vector<Half>& x) {
  const std::uint32_t width = opt_6m().checkpoint.config.width;
  const LayerRows& all = rows_of(layer);
  std::vector<Half> rows;
  for (const std::uint32_t n : neurons)
    for (const std::vector<Half>* matrix : {&all.up, &all.down})
      rows.insert(rows.end(), matrix->begin() + n * width, matrix->begin() + (n + 1) * width);
  std::vector<float> y(x.size());
  engine::feed_forward({.tokens = tokens, .width = width}, x, rows, all.biases(neurons), y);
  return y;
}

/// Drives that divide the neurons of each layer: drive i of n has the neurons that are i modulo n.
struct Drives {
  DriveRig rig;
  std::vector<host::RecordDirectory> directories;

  Drives(std::uint32_t count, host::RecordLayout layout)
      : rig(true, drive(), nvme::Granularity::layer_mini_batch, count) {
    const host::ModelConfig& config = opt_6m().checkpoint.config;
    for (std::uint32_t d = 0; d < count; ++d)
      directories.emplace_back(host::RecordFormat{.layers = config.layers,
                                                  .neurons = config.ffn / count,
                                                  .matrices = 2,
                                                  .row = Bytes{config.width * sizeof(Half)},
                                                  .layout = layout,
                                                  .aligned = false,
                                                  .block_size = Bytes::kib(4)});
    for (std::uint32_t d = 0; d < count; ++d)
      for (LayerId layer{0}; layer.value < config.layers; ++layer.value) write(d, layer);
  }
  static csd_model::DriveConfig drive() {
    csd_model::DriveConfig config = tiny_drive();
    config.geometry.blocks_per_plane = 128;
    config.kv_share = 0.1;
    return config;
  }
  void write(std::uint32_t drive, LayerId layer) {
    const host::RecordDirectory& directory = directories[drive];
    const std::size_t row = directory.format().row.value;
    const host::Extent extent = directory.layer(layer);
    const Bytes start = directory.format().block_size * extent.first;
    std::vector<std::byte> bytes((directory.format().block_size * extent.blocks).value);
    for (std::uint32_t n = 0; n < directory.format().neurons; ++n)
      for (const std::uint32_t matrix : {0u, 1u}) {
        const std::size_t neuron = n * directories.size() + drive;
        const std::vector<Half>& from = matrix == 0 ? rows_of(layer).up : rows_of(layer).down;
        std::memcpy(bytes.data() + (directory.address(layer, n, matrix) - start).value,
                    from.data() + neuron * row / sizeof(Half), row);
      }
    rig.data.blocks = {bytes};
    rig.run({{OpKind::write_blocks, host::Resource::drive_blocks(host::DriveIndex{drive}),
              host::BlockWork{.extents = {extent}, .memory = host::Place::host()}}});
  }

  std::vector<std::uint32_t> share_of(std::uint32_t drive, const std::vector<std::uint32_t>& neurons) const {
    std::vector<std::uint32_t> share;
    for (const std::uint32_t n : neurons)
      if (n % directories.size() == drive) share.push_back(n);
    return share;
  }
  /// The GPU adds the drives' sums in their order.
  Network network() {
    return [this](LayerId layer, const std::vector<std::uint32_t>& neurons, std::uint32_t tokens,
                  const std::vector<Half>& x) {
      std::vector<float> y(x.size());
      for (std::uint32_t d = 0; d < directories.size(); ++d) {
        const std::vector<std::uint32_t> share = share_of(d, neurons);
        std::vector<std::uint32_t> in_drive;
        for (const std::uint32_t n : share) in_drive.push_back(n / static_cast<std::uint32_t>(directories.size()));
        rig.data.x = x;
        rig.data.bias = rows_of(layer).biases(share);
        rig.run({{OpKind::feed_forward, host::Resource::drive_blocks(host::DriveIndex{d}),
                  host::NeuronWork{.runs = host::neuron_runs(directories[d], layer, in_drive),
                                   .tokens = tokens,
                                   .width = opt_6m().checkpoint.config.width,
                                   .bias = true}}});
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += rig.data.y[i];
      }
      return y;
    };
  }
  /// The same sums in memory.
  Network reference() const {
    return [this](LayerId layer, const std::vector<std::uint32_t>& neurons, std::uint32_t tokens,
                  const std::vector<Half>& x) {
      std::vector<float> y(x.size());
      for (std::uint32_t d = 0; d < directories.size(); ++d) {
        const std::vector<float> part = on_host(layer, share_of(d, neurons), tokens, x);
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += part[i];
      }
      return y;
    };
  }
};

/// A batch of prompts, decoded greedily. The prompt is computed on the processor. In decode steps the neurons that fire
/// for any token of the batch are computed by `network`; the output bias is added by the processor.
std::vector<std::vector<host::TokenId>> decode(const Network& network) {
  const Opt6m& model = opt_6m();
  const host::Decoder& decoder = *model.decoder;
  host::Backend& backend = decoder.backend();
  host::HostAttention attention(decoder.config(), std::make_unique<host::DenseAttention>());
  const std::vector<std::vector<host::TokenId>> prompts = {model.tokens(0, 20), model.tokens(300, 20)};
  std::vector<host::SequenceSlice> slices;
  std::vector<host::TokenId> flat;
  std::vector<SequenceId> sequences;
  for (std::uint32_t s = 0; s < prompts.size(); ++s) {
    sequences.push_back(SequenceId{s});
    slices.push_back({SequenceId{s}, 20});
    attention.create_sequence(SequenceId{s});
    flat.insert(flat.end(), prompts[s].begin(), prompts[s].end());
  }
  const std::vector<std::uint32_t> last = {19, 39};
  std::vector<float> logits = decoder.logits(host::prefill(decoder, attention, slices, flat), last);
  std::vector<std::vector<host::TokenId>> generated(prompts.size());
  for (std::uint32_t step = 0; step < kSteps; ++step) {
    std::vector<host::TokenId> tokens;
    for (std::size_t s = 0; s < prompts.size(); ++s) {
      const auto row = std::span(logits).subspan(s * decoder.config().vocab, decoder.config().vocab);
      const auto best = std::ranges::max_element(row) - row.begin();
      tokens.push_back(host::TokenId{static_cast<std::uint32_t>(best)});
      generated[s].push_back(tokens.back());
    }
    const std::vector<TokenIndex> positions(prompts.size(), TokenIndex{20 + step});
    host::HiddenStates hidden = decoder.embed(tokens, positions);
    for (LayerId layer{0}; layer.value < decoder.config().layers; ++layer.value) {
      const host::AttentionInputs inputs = decoder.attention_inputs(layer, hidden);
      const host::Tensor attended = attention.attend_rows(decoder, layer, sequences, inputs);
      if (!network) {
        decoder.finish_layer(layer, hidden, attended);
        continue;
      }
      decoder.finish_attention(layer, hidden, attended);
      const host::Tensor x = decoder.feed_forward_inputs(layer, hidden);
      const std::vector<float> fires = decoder.to_host_float(decoder.neuron_activations(layer, x));
      const std::size_t ffn = fires.size() / prompts.size();
      std::vector<std::uint32_t> neurons;
      for (std::uint32_t n = 0; n < ffn; ++n)
        if (fires[n] != 0 || fires[ffn + n] != 0) neurons.push_back(n);
      REQUIRE(neurons.size() < ffn);
      std::vector<float> y = network(layer, neurons, 2, decoder.to_host(x));
      const std::vector<Half> bias = halves_of(layer_name(layer, "fc2.bias"));
      for (std::size_t i = 0; i < y.size(); ++i) y[i] += half_to_float(bias[i % bias.size()]);
      host::Tensor output = backend.allocate(prompts.size(), bias.size());
      const host::StoredTensor stored{
          host::ElementType::f32, {prompts.size(), bias.size()}, std::as_bytes(std::span(y))};
      backend.embedding(backend.load(stored), std::vector<std::uint32_t>{0, 1}, output);
      decoder.add_feed_forward(layer, hidden, output);
    }
    logits = decoder.logits(hidden);
  }
  return generated;
}

}  // namespace

TEST_CASE("tokens of opt-6m with its networks in drives equal those of the same sums in memory") {
  const std::uint32_t count = GENERATE(1u, 2u);
  const auto layout =
      count == 1 ? GENERATE(host::RecordLayout::bundled, host::RecordLayout::rows) : host::RecordLayout::bundled;
  CAPTURE(count, static_cast<int>(layout));
  Drives drives(count, layout);
  std::uint64_t calls = 0, differing = 0;
  const Network in_drives = drives.network(), in_memory = drives.reference();
  const auto tokens = decode(
      [&](LayerId layer, const std::vector<std::uint32_t>& neurons, std::uint32_t n, const std::vector<Half>& x) {
        std::vector<float> y = in_drives(layer, neurons, n, x);
        ++calls;
        if (y != in_memory(layer, neurons, n, x)) ++differing;
        return y;
      });
  CHECK(calls == std::uint64_t{kSteps} * opt_6m().checkpoint.config.layers);
  CHECK(differing == 0);
  CHECK(tokens == decode(in_memory));
  // Inputs rounded to fp16 do not change these tokens.
  CHECK(tokens == decode({}));
}

TEST_CASE("a record that was overwritten makes other sums") {
  Drives drives(1, host::RecordLayout::bundled);
  const host::RecordDirectory& directory = drives.directories[0];
  const host::Extent extent = directory.layer(LayerId{0});
  drives.rig.data.blocks = {std::vector<std::byte>(4096, std::byte{0x38})};
  drives.rig.run({{OpKind::write_blocks, kBlocks,
                   host::BlockWork{.extents = {{extent.first, 1}}, .memory = host::Place::host()}}});
  std::vector<std::uint32_t> neurons(opt_6m().checkpoint.config.ffn);
  std::iota(neurons.begin(), neurons.end(), 0u);
  const std::vector<Half> x(opt_6m().checkpoint.config.width, float_to_half(0.1f));
  CHECK(drives.network()(LayerId{0}, neurons, 1, x) != drives.reference()(LayerId{0}, neurons, 1, x));
  CHECK(drives.network()(LayerId{1}, neurons, 1, x) == drives.reference()(LayerId{1}, neurons, 1, x));
}

}  // namespace test_neuron_tokens
