#include "host_runtime/checkpoint/json_file.h"

#include <fmt/format.h>

#include <set>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text_file.h"

namespace csdsim::host {

using nlohmann::json;

json parse_json_object(std::string_view text, const std::string& where) {
  std::vector<std::set<std::string>> open_objects;
  // The library lets the last of two equal keys win, silently.
  const auto refuse_duplicates = [&](int, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::object_start) open_objects.emplace_back();
    if (event == json::parse_event_t::object_end) open_objects.pop_back();
    if (event == json::parse_event_t::key && !open_objects.back().insert(parsed.get<std::string>()).second) {
      throw UserError(fmt::format("{}: key '{}' appears twice", where, parsed.get<std::string>()));
    }
    return true;
  };
  json result;
  try {
    result = json::parse(text, refuse_duplicates);
  } catch (const json::exception& error) {
    std::string_view message = error.what();
    if (const auto prefix = message.find("] "); prefix != std::string_view::npos) message.remove_prefix(prefix + 2);
    throw UserError(fmt::format("{}: not valid JSON: {}", where, printable(message, 400)));
  }
  if (!result.is_object()) {
    throw UserError(fmt::format("{}: expected a JSON object, found {}", where, result.type_name()));
  }
  return result;
}

std::string text_of(const MappedFile& file, const std::filesystem::path& path) {
  return decode_text({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path.string());
}

json read_json_object(const std::filesystem::path& path, Bytes limit) {
  const MappedFile file(path);
  if (file.bytes().size() > limit.value) {
    throw UserError(fmt::format("{}: {} bytes is too large for a JSON description (at most {} MiB)", path.string(),
                                file.bytes().size(), limit.value >> 20));
  }
  return parse_json_object(text_of(file, path), path.string());
}

}  // namespace csdsim::host
