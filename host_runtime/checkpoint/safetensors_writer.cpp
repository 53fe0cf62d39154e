#include "host_runtime/checkpoint/safetensors_writer.h"

#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace csdsim::host {

void write_safetensors(const std::filesystem::path& path, const std::vector<FloatTensor>& tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  std::uint64_t end = 0;
  for (const FloatTensor& tensor : tensors) {
    const std::uint64_t begin = end;
    end += tensor.values.size_bytes();
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // so that the data are aligned
  std::string length(8, '\0');
  for (std::size_t i = 0; i < length.size(); ++i) length[i] = static_cast<char>(text.size() >> (8 * i));

  std::ofstream file(path, std::ios::binary);
  file << length << text;
  for (const FloatTensor& tensor : tensors)
    file.write(reinterpret_cast<const char*>(tensor.values.data()),
               static_cast<std::streamsize>(tensor.values.size_bytes()));
  file.close();
  if (!file) throw UserError(fmt::format("{}: cannot be written", path.string()));
}

}  // namespace csdsim::host
