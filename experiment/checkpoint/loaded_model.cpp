#include "experiment/checkpoint/loaded_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/rng.h"
#include "base/text_file.h"

namespace csdsim::experiment {

using host::TokenId;

namespace {

constexpr std::size_t kLongestPrompt = std::size_t{16} << 20;  // bytes

}  // namespace

std::vector<std::uint32_t> lengths_of(const Tokens& prompts) {
  std::vector<std::uint32_t> lengths;
  for (const auto& prompt : prompts) lengths.push_back(static_cast<std::uint32_t>(prompt.size()));
  return lengths;
}

LoadedModel::LoadedModel(const std::filesystem::path& directory, host::Processor processor,
                         std::optional<Ratio> fatrelu, const RowQuantisation& quantisation)
    : checkpoint(host::open_checkpoint(directory)), processor_(processor) {
  checkpoint.config.fatrelu = fatrelu;
  if (quantisation.quantised()) rounded_.emplace(checkpoint.config, *checkpoint.weights, quantisation);
  try {
    tokenizer_.emplace(host::open_tokenizer(directory));
  } catch (const UserError& error) {
    no_tokenizer_ = error.what();
  }
}

const host::WeightSource& LoadedModel::weights() const {
  if (rounded_) return *rounded_;
  return *checkpoint.weights;
}

host::Decoder& LoadedModel::decoder() {
  if (!decoder_) {
    backend_ = make_backend(processor_);
    decoder_ = make_decoder(processor_, checkpoint.config, weights(), *backend_);
  }
  return *decoder_;
}

const host::Tokenizer& LoadedModel::tokenizer() const {
  if (!tokenizer_) throw UserError(no_tokenizer_);
  return *tokenizer_;
}

std::string LoadedModel::text(const std::vector<TokenId>& tokens) const {
  std::string text;
  for (auto from = tokens.begin(); from != tokens.end();) {
    const auto to = std::find_if(from, tokens.end(), [&](TokenId t) { return t.value >= tokenizer().vocabulary(); });
    if (to != from) text += tokenizer().decode({from, to});
    from = to;
    if (to != tokens.end()) text += "\uFFFD", ++from;
  }
  return text;
}

void add_texts(const LoadedModel& model, const Tokens& sequences, scenario::RunResult& result) {
  if (!model.no_tokenizer().empty()) {
    result.meaning += fmt::format(" No text: {}.", model.no_tokenizer());
    return;
  }
  nlohmann::ordered_json texts = nlohmann::ordered_json::array();
  for (const auto& tokens : sequences) texts.push_back(model.text(tokens));
  result.document["text"] = std::move(texts);
  result.document["tokenizer"] = model.tokenizer().file().filename().string();
  for (const std::string& note : model.tokenizer().notes()) result.meaning += "\n" + note;
}

Tokens read_prompts(const std::filesystem::path& path, const host::Tokenizer& tokenizer) {
  TextLines lines(path, kLongestPrompt);
  Tokens prompts;
  while (const auto line = lines.next()) prompts.push_back(tokenizer.encode(*line));
  if (prompts.empty()) throw UserError(fmt::format("{}: holds no prompt; write one a line", path.string()));
  return prompts;
}

Tokens make_prompts(const GenerationWorkload& workload, std::uint32_t vocabulary, std::uint64_t seed) {
  Rng rng(seed, "prompts");
  Tokens prompts;
  for (const std::uint32_t tokens : workload.lengths().prompts()) {
    auto& prompt = prompts.emplace_back();
    for (std::uint32_t i = 0; i < tokens; ++i) prompt.emplace_back(static_cast<std::uint32_t>(rng.below(vocabulary)));
  }
  return prompts;
}

}  // namespace csdsim::experiment
