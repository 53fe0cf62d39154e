#include "host_runtime/checkpoint/known_keys.h"

#include <algorithm>

namespace csdsim::host {
namespace {

using Key = std::string_view;

// Where the file comes from, and what wrote it.
constexpr Key kConfigOrigin[] = {"_commit_hash",           "_name_or_path",        "auto_map",
                                 "finetuning_task",        "model_type",           "tokenizer_class",
                                 "transformers.js_config", "transformers_version", "unsloth_fixed",
                                 "unsloth_version"};
// How the model is trained: rates of dropout, initialisation, the order of sums.
constexpr Key kTraining[] = {"activation_dropout",     "attention_dropout", "dropout",           "embd_pdrop",
                             "gradient_checkpointing", "init_std",          "initializer_range", "layerdrop",
                             "output_router_logits",   "pretraining_tp",    "resid_pdrop"};
// How transformers runs a model, and what it returns.
constexpr Key kRunning[] = {"_attn_implementation",
                            "_attn_implementation_autoset",
                            "_flash_attn_2_enabled",
                            "attn_implementation",
                            "chunk_size_feed_forward",
                            "dtype",
                            "keys_to_ignore_at_inference",
                            "output_attentions",
                            "output_hidden_states",
                            "return_dict",
                            "torch_dtype",
                            "torchscript",
                            "use_bfloat16",
                            "use_cache"};
// For models with an encoder, and for other tasks than text.
constexpr Key kOtherTasks[] = {"cross_attention_hidden_size", "id2label",           "is_decoder",
                               "is_encoder_decoder",          "label2id",           "problem_type",
                               "task_specific_params",        "tie_encoder_decoder"};
// The first layer with a window, where none has one.
constexpr Key kWindows[] = {"max_window_layers"};
// Names for what other keys state.
constexpr Key kAliases[] = {"is_llama_config", "max_sequence_length"};
// csdsim puts no tokens before or after a text; eos_token_id is read for --stop-at-eos.
constexpr Key kSpecialTokenIds[] = {
    "add_bos_token", "add_eos_token",       "bos_token_id",        "decoder_start_token_id",
    "eos_token_id",  "forced_bos_token_id", "forced_eos_token_id", "pad_token_id",
    "prefix",        "sep_token_id"};

// Defaults of generate() in transformers, which version 4 has in config.json too. The options of a command of csdsim
// say how it samples.
constexpr Key kGeneration[] = {"_from_model_config",
                               "assistant_confidence_threshold",
                               "assistant_early_exit",
                               "assistant_ensemble_weight",
                               "assistant_lookbehind",
                               "bad_words_ids",
                               "begin_suppress_tokens",
                               "cache_config",
                               "cache_implementation",
                               "chat_format",
                               "compile_config",
                               "constraints",
                               "disable_compile",
                               "diversity_penalty",
                               "do_sample",
                               "dola_layers",
                               "early_stopping",
                               "encoder_no_repeat_ngram_size",
                               "encoder_repetition_penalty",
                               "epsilon_cutoff",
                               "eta_cutoff",
                               "exponential_decay_length_penalty",
                               "force_words_ids",
                               "guidance_scale",
                               "is_assistant",
                               "length_penalty",
                               "low_memory",
                               "max_cache_len",
                               "max_length",
                               "max_matching_ngram_size",
                               "max_new_tokens",
                               "max_time",
                               "max_window_size",
                               "min_length",
                               "min_new_tokens",
                               "min_p",
                               "no_repeat_ngram_size",
                               "num_assistant_tokens",
                               "num_assistant_tokens_schedule",
                               "num_beam_groups",
                               "num_beams",
                               "num_return_sequences",
                               "output_logits",
                               "output_scores",
                               "penalty_alpha",
                               "prefill_chunk_size",
                               "prompt_lookup_num_tokens",
                               "remove_invalid_values",
                               "renormalize_logits",
                               "repetition_penalty",
                               "return_dict_in_generate",
                               "sequence_bias",
                               "speculation_type",
                               "stop_strings",
                               "suppress_tokens",
                               "target_lookbehind",
                               "temperature",
                               "token_healing",
                               "top_h",
                               "top_k",
                               "top_p",
                               "typical_p",
                               "use_mtp",
                               "watermarking_config"};

// Tokens before and after a text: csdsim adds none, a prompt states them.
constexpr Key kAround[] = {"add_bos_token", "add_eos_token"};
// Where the tokenizer comes from, and which class of transformers opens it.
constexpr Key kTokenizerOrigin[] = {"__type",
                                    "auto_map",
                                    "backend",
                                    "from_slow",
                                    "init_inputs",
                                    "is_local",
                                    "local_files_only",
                                    "merges_file",
                                    "name_or_path",
                                    "processor_class",
                                    "special_tokens_map_file",
                                    "tokenizer_class",
                                    "tokenizer_file",
                                    "transformers_version",
                                    "trust_remote_code",
                                    "unsloth_fixed",
                                    "use_fast",
                                    "vocab_file"};
// How transformers makes batches of texts.
constexpr Key kBatches[] = {
    "max_length",        "model_input_names", "model_max_length",   "pad_to_multiple_of",    "pad_token_id",
    "pad_token_type_id", "padding",           "padding_side",       "return_token_type_ids", "stride",
    "truncation",        "truncation_side",   "truncation_strategy"};
// Templates that make text of a conversation; csdsim takes text.
constexpr Key kChats[] = {"chat_template", "response_schema", "response_template", "use_default_system_prompt"};
// How transformers writes decoded text; the ids stay the same.
constexpr Key kDecoding[] = {"clean_up_tokenization_spaces", "errors", "spaces_between_special_tokens"};

// Keys of an added token: its class, and whether decoding may leave it out.
constexpr Key kOfTokens[] = {"__type", "special"};
// Sizes, which follow from the shards.
constexpr Key kSizes[] = {"total_parameters", "total_size"};
// What wrote the index.
constexpr Key kIndexOrigin[] = {"format", "mergekit_version"};

constexpr UnreadKeys kConfigGroups[] = {kConfigOrigin, kTraining, kRunning,         kOtherTasks,
                                        kWindows,      kAliases,  kSpecialTokenIds, kGeneration};
constexpr UnreadKeys kGenerationGroups[] = {kConfigOrigin, kRunning, kSpecialTokenIds, kGeneration};
constexpr UnreadKeys kTokenizerGroups[] = {kTokenizerOrigin, kAround, kBatches, kChats, kDecoding};
constexpr UnreadKeys kTokenGroups[] = {kOfTokens};
constexpr UnreadKeys kIndexGroups[] = {kSizes, kIndexOrigin};

}  // namespace

constinit const UnreadKeyGroups kUnreadOfConfig = kConfigGroups, kUnreadOfGenerationConfig = kGenerationGroups,
                                kUnreadOfTokenizerConfig = kTokenizerGroups, kUnreadOfTokens = kTokenGroups,
                                kUnreadOfIndexMetadata = kIndexGroups;

bool stands_in(UnreadKeyGroups groups, std::string_view key) {
  return std::ranges::any_of(groups, [&](UnreadKeys keys) { return std::ranges::find(keys, key) != keys.end(); });
}

}  // namespace csdsim::host
