// Writes the outcome of a generation run to result.json, and as a sentence.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "experiment/checkpoint/loaded_model.h"
#include "experiment/generation/generation_run.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

nlohmann::ordered_json to_json(const Tokens& tokens);

/// Counts of file operations.
nlohmann::ordered_json to_json(const host::FileTotals& totals);

/// Share of positions at which both agree, and the first at which they do not.
nlohmann::ordered_json agreement(const Tokens& a, const Tokens& b);

/// Fills `metrics` and `breakdown` of the document.
void add_metrics(nlohmann::ordered_json& document, const GenerationOutcome& out, const scenario::Scenario& s);

/// What bounds the phases, of a document with its breakdown: "decode by flash_channels (97 % busy)".
std::string meaning(const GenerationOutcome& out, const nlohmann::ordered_json& document);

}  // namespace csdsim::experiment
