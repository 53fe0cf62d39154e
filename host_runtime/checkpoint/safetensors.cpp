#include "host_runtime/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"
#include "host_runtime/checkpoint/config_fields.h"
#include "host_runtime/checkpoint/json_file.h"
#include "host_runtime/checkpoint/mapped_file.h"

namespace csdsim::host {
namespace {

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
// The reference implementation's limit.
constexpr std::uint64_t kMaxHeader = 100'000'000;
constexpr std::size_t kMaxRank = 8;

struct KnownType {
  std::string_view name;
  std::uint64_t size;
  std::optional<ElementType> element;  // what a decoder can use
};
constexpr std::array<KnownType, 15> kTypes{{{"F16", 2, ElementType::f16},
                                            {"BF16", 2, ElementType::bf16},
                                            {"F32", 4, ElementType::f32},
                                            {"F64", 8, {}},
                                            {"I64", 8, {}},
                                            {"U64", 8, {}},
                                            {"I32", 4, {}},
                                            {"U32", 4, {}},
                                            {"I16", 2, {}},
                                            {"U16", 2, {}},
                                            {"I8", 1, {}},
                                            {"U8", 1, {}},
                                            {"BOOL", 1, {}},
                                            {"F8_E4M3", 1, {}},
                                            {"F8_E5M2", 1, {}}}};

const KnownType* find_type(std::string_view name) {
  const auto it = std::find_if(kTypes.begin(), kTypes.end(), [&](const KnownType& t) { return t.name == name; });
  return it == kTypes.end() ? nullptr : &*it;
}

// An array of non-negative integers, or nothing.
std::optional<std::vector<std::uint64_t>> unsigned_array(const json& object, const char* key) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_array()) return {};
  std::vector<std::uint64_t> values;
  for (const json& value : *it) {
    if (!value.is_number_unsigned()) return {};
    values.push_back(value.get<std::uint64_t>());
  }
  return values;
}

// Bytes of a tensor; nothing where the product does not fit 64 bits.
std::optional<std::uint64_t> byte_count(const std::vector<std::uint64_t>& shape, std::uint64_t element) {
  std::uint64_t bytes = element;
  for (const std::uint64_t extent : shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return {};
  }
  return bytes;
}

std::string_view header_text(std::span<const std::byte> file, const std::string& path) {
  if (file.size() < kLengthBytes) {
    throw UserError(fmt::format("{}: {} bytes is too short for a safetensors file", path, file.size()));
  }
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) length |= std::to_integer<std::uint64_t>(file[i]) << (8 * i);
  if (length > kMaxHeader) {
    throw UserError(fmt::format("{}: the header claims {} bytes, at most {} are allowed: not a safetensors file?", path,
                                length, kMaxHeader));
  }
  if (length > file.size() - kLengthBytes) {
    throw UserError(fmt::format("{}: truncated: the header claims {} bytes, the file has {} after the length", path,
                                length, file.size() - kLengthBytes));
  }
  return {reinterpret_cast<const char*>(file.data()) + kLengthBytes, length};
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path.string()), file_(path) {
  const std::string_view text = header_text(file_.bytes(), path_);
  const json header = parse_json_object(text, path_ + " (header)");
  data_ = file_.bytes().subspan(kLengthBytes + text.size());

  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      for (const auto& [key, entry] : value.items()) {
        if (!value.is_object() || !entry.is_string())
          throw UserError(fmt::format("{}: __metadata__: expected a map of texts, found {}", path_, value.type_name()));
        metadata_.emplace(key, entry.get<std::string>());
      }
      continue;
    }
    const auto fail = [&, &tensor = name](const std::string& reason) {
      throw UserError(fmt::format("{}: tensor '{}': {}", path_, tensor, reason));
    };
    if (!value.is_object()) fail(fmt::format("expected an object, found {}", value.type_name()));
    for (const auto& [key, content] : value.items())
      if (key != "dtype" && key != "shape" && key != "data_offsets")
        fail(fmt::format("'{}' is no key of a tensor", printable(key)));
    const auto type_name = value.find("dtype");
    if (type_name == value.end() || !type_name->is_string()) fail("'dtype' is missing or not a string");
    const KnownType* const type = find_type(type_name->get_ref<const std::string&>());
    if (type == nullptr) fail(fmt::format("unknown dtype '{}'", type_name->get_ref<const std::string&>()));
    const auto shape = unsigned_array(value, "shape"), offsets = unsigned_array(value, "data_offsets");
    if (!shape || shape->size() > kMaxRank) {
      fail(fmt::format("'shape' must be an array of at most {} counts", kMaxRank));
    }
    if (!offsets || offsets->size() != 2) fail("'data_offsets' must be [begin, end]");
    const std::uint64_t begin = (*offsets)[0], end = (*offsets)[1];
    if (begin > end) fail(fmt::format("data_offsets [{}, {}] run backwards", begin, end));
    if (end > data_.size()) {
      fail(fmt::format("data_offsets [{}, {}] reach past the {} bytes of data: truncated file?", begin, end,
                       data_.size()));
    }
    const auto expected = byte_count(*shape, type->size);
    if (!expected || *expected != end - begin) {
      fail(fmt::format("shape [{}] of {} needs {} bytes, data_offsets [{}, {}] hold {}", fmt::join(*shape, ", "),
                       type->name, expected ? std::to_string(*expected) : "too many", begin, end, end - begin));
    }
    entries_.emplace(name, Entry{std::string(type->name), *shape, begin, end});
  }

  std::vector<const std::pair<const std::string, Entry>*> in_order;
  for (const auto& entry : entries_) in_order.push_back(&entry);
  std::sort(in_order.begin(), in_order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::uint64_t covered = 0;
  for (const auto* entry : in_order) {
    const Entry& e = entry->second;
    if (e.begin != covered) {
      throw UserError(fmt::format("{}: tensor '{}': data_offsets [{}, {}] {} at byte {}", path_, entry->first, e.begin,
                                  e.end, e.begin < covered ? "overlap the tensor that ends" : "leave a hole", covered));
    }
    covered = e.end;
  }
  if (covered != data_.size()) {
    throw UserError(fmt::format("{}: {} bytes of data follow the last tensor", path_, data_.size() - covered));
  }
}

StoredTensor SafetensorsFile::tensor(std::string_view name) const {
  const auto it = entries_.find(name);
  if (it == entries_.end()) throw UserError(fmt::format("{}: tensor '{}' is missing", path_, name));
  const Entry& entry = it->second;
  const KnownType* const type = find_type(entry.type);
  if (!type->element) {
    throw UserError(
        fmt::format("{}: tensor '{}' has dtype {}; weights may be F16, BF16 or F32", path_, name, entry.type));
  }
  return {*type->element, entry.shape, data_.subspan(entry.begin, entry.end - entry.begin)};
}

std::vector<std::string> SafetensorsFile::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

void SafetensorsFile::release(std::string_view name) const {
  if (const auto it = entries_.find(name); it != entries_.end())
    file_.release(data_.subspan(it->second.begin, it->second.end - it->second.begin));
}

ShardedSafetensors::ShardedSafetensors(const std::filesystem::path& index) : path_(index.string()) {
  const json description = read_json_object(index);
  std::vector<std::string> problems;
  ConfigFields fields(description, path_, problems);
  fields.find("weight_map");
  if (auto metadata = fields.object("metadata")) metadata->refuse_unread(kUnreadOfIndexMetadata, "csdsim");
  fields.refuse_unread({}, "csdsim");
  throw_problems(problems);
  const auto map = description.find("weight_map");
  if (map == description.end() || !map->is_object()) {
    throw UserError(fmt::format("{}: 'weight_map' is missing or not an object", path_));
  }
  for (const auto& [name, file] : map->items()) {
    if (!file.is_string()) {
      throw UserError(
          fmt::format("{}: weight_map: '{}': expected a file name, found {}", path_, name, file.type_name()));
    }
    const std::string& file_name = file.get_ref<const std::string&>();
    const std::filesystem::path plain(file_name);
    if (file_name.empty() || plain.filename() != plain || file_name == "..") {
      throw UserError(fmt::format("{}: weight_map: '{}': '{}' is not a plain file name", path_, name, file_name));
    }
    auto shard = shards_.find(file_name);
    if (shard == shards_.end()) {
      const std::filesystem::path shard_path = index.parent_path() / file_name;
      if (!is_present(shard_path)) {
        throw UserError(fmt::format("{}: shard '{}' of tensor '{}' does not exist: is the download complete?", path_,
                                    file_name, name));
      }
      shard = shards_.emplace(file_name, SafetensorsFile(shard_path)).first;
    }
    if (!shard->second.contains(name)) {
      throw UserError(fmt::format("{}: tensor '{}' is not in its shard '{}'", path_, name, file_name));
    }
    shard_of_.emplace(name, &shard->second);
  }
}

std::vector<std::filesystem::path> ShardedSafetensors::files() const {
  std::vector<std::filesystem::path> files;
  for (const auto& [name, shard] : shards_) files.emplace_back(shard.description());
  return files;
}

std::vector<std::string> ShardedSafetensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, shard] : shard_of_) names.push_back(name);
  return names;
}

void ShardedSafetensors::release(std::string_view name) const {
  if (const auto it = shard_of_.find(name); it != shard_of_.end()) it->second->release(name);
}

StoredTensor ShardedSafetensors::tensor(std::string_view name) const {
  const auto it = shard_of_.find(name);
  if (it == shard_of_.end()) throw UserError(fmt::format("{}: tensor '{}' is missing", path_, name));
  return it->second->tensor(name);
}

}  // namespace csdsim::host
