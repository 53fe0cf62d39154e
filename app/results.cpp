#include "app/results.h"

#include <fmt/format.h>

#include <fstream>

#include "base/error.h"
#include "report/result_document.h"

namespace csdsim::app {

using nlohmann::ordered_json;

ordered_json read_json(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: cannot be read", path.string()));
  return report::parse_json(file, path.string());
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
  report::check_result(row.result, file.string());
  return {row};
}

}  // namespace csdsim::app
