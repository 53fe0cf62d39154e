#include "app/results.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"

namespace csdsim::app {

using nlohmann::ordered_json;

ordered_json read_json(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: cannot be read", path.string()));
  try {
    return ordered_json::parse(file);  // from the stream: ends at the first byte that is no JSON, also in /dev/zero
  } catch (const ordered_json::parse_error&) {
    throw UserError(fmt::format("{}: is no JSON file", path.string()));
  }
}

std::vector<launch::SweepRow> read_rows(const std::filesystem::path& path) {
  const bool folder = std::filesystem::is_directory(path);
  if (!std::filesystem::exists(path))
    throw UserError(fmt::format("{}: is no folder; give the --out of a sweep or a run", path.string()));
  if (folder && std::filesystem::exists(path / "results.sqlite")) {
    std::vector<launch::SweepRow> rows = launch::stored_sweep(path).rows;
    for (launch::SweepRow& row : rows)
      if (row.result.is_null() && row.error.empty()) row.error = "no result is stored";
    return rows;
  }
  const std::filesystem::path file = folder ? path / "result.json" : path;
  if (!std::filesystem::exists(file))
    throw UserError(
        fmt::format("{}: holds neither the results.sqlite of a sweep nor the result.json of a run", path.string()));
  launch::SweepRow row;
  row.result = read_json(file);
  if (!row.result.is_object() || !row.result.contains("metrics"))
    throw UserError(fmt::format("{}: is no result of csdsim run", file.string()));
  return {row};
}

}  // namespace csdsim::app
