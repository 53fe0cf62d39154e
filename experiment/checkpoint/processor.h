// The processor that computes what is not offloaded: real work of carried runs and evaluations, not the modelled GPU.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "host_runtime/core/decoder/backend.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/decoder/processor.h"

namespace csdsim::experiment {

/// InternalError if there is no such name.
host::Processor processor_named(std::string_view name);

/// UserError if it is a GPU and this program or machine has none (see host::load_cuda_module).
std::unique_ptr<host::Backend> make_backend(host::Processor processor);

/// As host::make_decoder(), with the decoder that a GPU has. `backend` was made for the same processor.
std::unique_ptr<host::Decoder> make_decoder(host::Processor processor, const host::ModelConfig& config,
                                            const host::WeightSource& weights, host::Backend& backend);

/// As host::generate(), all of it on a GPU, attention by the method. InternalError for the cpu.
std::vector<std::vector<host::TokenId>> generate_on_gpu(host::Processor processor, const host::ModelConfig& config,
                                                        const host::WeightSource& weights,
                                                        const std::vector<std::vector<host::TokenId>>& prompts,
                                                        const host::GenerationOptions& options,
                                                        host::ConfiguredMethod method);

}  // namespace csdsim::experiment
