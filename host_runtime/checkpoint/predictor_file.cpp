#include "host_runtime/checkpoint/predictor_file.h"

#include <fmt/format.h>

#include <optional>

#include "base/error.h"
#include "base/quantity.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/checkpoint/safetensors.h"

namespace csdsim::host {
namespace {

constexpr std::string_view kFormat = "csdsim-neuron-predictor-1";

std::string metadata_of(const SafetensorsFile& file, std::string_view key) {
  const auto it = file.metadata().find(key);
  if (it == file.metadata().end())
    throw UserError(fmt::format("{}: '{}' is missing in its metadata: not a predictor?", file.description(), key));
  return it->second;
}

std::string text_of(const WeightsDigest& digest) {
  return fmt::format("{} bytes, CRC-32 {:08x}", digest.bytes, digest.crc32);
}

std::string text_of(std::optional<Ratio> fatrelu) {
  return fatrelu ? fmt::format("FATReLU {:g}", fatrelu->value()) : "no FATReLU";
}

std::optional<Ratio> fatrelu_of(const SafetensorsFile& file) {
  if (!file.metadata().contains("fatrelu")) return {};
  const std::string text = metadata_of(file, "fatrelu");
  try {
    return parse_ratio(text);
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}: 'fatrelu' in its metadata: {}", file.description(), error.what()));
  }
}

}  // namespace

std::shared_ptr<const LowRankWeights> open_predictor(const std::filesystem::path& file,
                                                     const std::filesystem::path& directory,
                                                     const ModelConfig& config) {
  const SafetensorsFile source(file);
  if (const std::string format = metadata_of(source, "format"); format != kFormat)
    throw UserError(fmt::format("{}: format '{}' is not {}", source.description(), format, kFormat));
  const WeightsDigest digest = weights_digest(directory);
  const std::string bytes = metadata_of(source, "checkpoint_bytes"), crc = metadata_of(source, "checkpoint_crc32");
  if (bytes != std::to_string(digest.bytes) || crc != fmt::format("{:08x}", digest.crc32)) {
    throw UserError(
        fmt::format("{}: this predictor belongs to another checkpoint: it was trained on weights of {} "
                    "bytes, CRC-32 {}; {} has {}",
                    source.description(), bytes, crc, directory.string(), text_of(digest)));
  }
  const std::optional<Ratio> trained = fatrelu_of(source);
  if (trained.has_value() != config.fatrelu.has_value() || (trained && (*trained <=> *config.fatrelu) != 0)) {
    throw UserError(fmt::format("{}: this predictor was trained with {}, the run has {}", source.description(),
                                text_of(trained), text_of(config.fatrelu)));
  }
  return std::make_shared<const LowRankWeights>(LowRankWeights::load(source, config));
}

}  // namespace csdsim::host
