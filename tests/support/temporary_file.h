// A file that goes away with the test.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

namespace csdsim::test {

struct TemporaryFile {
  std::filesystem::path path;

  explicit TemporaryFile(const std::string& bytes) {
    std::string name = (std::filesystem::temp_directory_path() / "csdsim-test-XXXXXX").string();
    const int descriptor = mkstemp(name.data());
    REQUIRE(descriptor >= 0);
    close(descriptor);
    path = name;
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::filesystem::remove(path); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

}  // namespace csdsim::test
