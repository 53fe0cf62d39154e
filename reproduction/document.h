// Output of `csdsim reproduce`: reproduction.json, reproduction.csv, pictures, and text for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "reproduction/definition.h"
#include "reproduction/evaluation.h"

namespace csdsim::reproduction {

/// Version of the layout of reproduction.json. Keys are added, but existing keys do not change their meaning.
inline constexpr int kReproductionSchema = 1;

/// The content of reproduction.json. It has no wall time: equal inputs give equal bytes.
nlohmann::ordered_json document_of(const Definition& definition, const Evaluation& evaluation, const Outcomes& outcomes,
                                   const nlohmann::ordered_json& build, const nlohmann::ordered_json& scenario);

/// The rows as CSV.
std::string csv_of(const nlohmann::ordered_json& document);

/// The constants, the rows, the contradictions and what does not agree.
std::string text_of(const nlohmann::ordered_json& document);

/// Throws UserError "WHERE: ..." unless this is what document_of() makes, as a file has it.
void check_document(const nlohmann::ordered_json& document, const std::string& where);

/// The pictures: file name and HTML.
std::vector<std::pair<std::string, std::string>> pictures_of(const Definition& definition,
                                                             const Evaluation& evaluation);

}  // namespace csdsim::reproduction
