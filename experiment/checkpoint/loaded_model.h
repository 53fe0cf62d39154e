// A checkpoint that is ready to decode, and the prompts of a scenario.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "experiment/checkpoint/processor.h"
#include "experiment/generation/generation_workload.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/features/neurons/model/neuron_rows.h"
#include "scenario/experiment.h"

namespace csdsim::experiment {

/// By prompt.
using Tokens = std::vector<std::vector<host::TokenId>>;

std::vector<std::uint32_t> lengths_of(const Tokens& prompts);

class LoadedModel {
 public:
  host::Checkpoint checkpoint;

  /// `fatrelu`: see ModelConfig. Feed-forward networks have the values of quantised rows.
  LoadedModel(const std::filesystem::path& directory, host::Processor processor, std::optional<Ratio> fatrelu = {},
              const RowQuantisation& quantisation = {});

  /// The checkpoint's weights, rounded to quantised rows if they are.
  const host::WeightSource& weights() const;

  /// Made when first asked for: what runs on a GPU from end to end does not need it.
  host::Decoder& decoder();
  /// UserError if the checkpoint has none that can be read: only text needs it.
  const host::Tokenizer& tokenizer() const;
  /// Why there is no text; empty if there is.
  const std::string& no_tokenizer() const { return no_tokenizer_; }
  /// Ids that the tokenizer does not know (a padded vocabulary, random weights) become U+FFFD.
  std::string text(const std::vector<host::TokenId>& tokens) const;

 private:
  host::Processor processor_;
  std::optional<host::RoundedWeights> rounded_;
  std::unique_ptr<host::Backend> backend_;
  std::unique_ptr<host::Decoder> decoder_;
  std::optional<host::Tokenizer> tokenizer_;
  std::string no_tokenizer_;
};

/// Adds the text of each sequence of tokens and the name of the tokenizer's file to a result, and says in its meaning
/// why there is no text, or where the files of tokenizers disagree.
void add_texts(const LoadedModel& model, const Tokens& sequences, scenario::RunResult& result);

/// One prompt per line that is not blank. UserError if the file cannot be read or holds none.
Tokens read_prompts(const std::filesystem::path& path, const host::Tokenizer& tokenizer);

/// Prompts of a given length for a workload that names none: token ids drawn from the seed.
Tokens make_prompts(const GenerationWorkload& workload, std::uint32_t vocabulary, std::uint64_t seed);

}  // namespace csdsim::experiment
