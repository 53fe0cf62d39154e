// Result documents that were stored: what a run writes as result.json, checked when it is read again.
#pragma once

#include <functional>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace csdsim::report {

/// True if a key is kept: its depth (1: at the top) and name. What is not kept is read and dropped.
using KeepKey = std::function<bool(int depth, const std::string& key)>;

/// Parses JSON text that may come from anybody. Throws UserError "WHERE: ..." for text that is no JSON, or nested more
/// than 100 deep.
nlohmann::ordered_json parse_json(std::string_view text, const std::string& where, const KeepKey& keep = {});
/// Reads up to the first byte that is no JSON, so that it ends for /dev/zero too.
nlohmann::ordered_json parse_json(std::istream& text, const std::string& where);

/// Throws UserError "WHERE: ..." unless the parts of a result document that csdsim reads again have the form in which
/// it writes them. Parts may be absent, but for the metrics.
void check_result(const nlohmann::ordered_json& document, const std::string& where);

}  // namespace csdsim::report
