// Every file of the corpora, findings of earlier runs among them, ends as its target says.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/fuzz/fuzz.h"

namespace test_fuzz_corpora {

using namespace csdsim;

TEST_CASE("the files of the corpora are read or refused") {
  for (const fuzz::Target* target : fuzz::Target::all()) {
    const std::filesystem::path corpus =
        std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/fuzz/corpus" / std::string(target->name);
    std::size_t files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(corpus)) {
      std::ifstream file(entry.path(), std::ios::binary);
      const std::string input{std::istreambuf_iterator<char>(file), {}};
      CAPTURE(entry.path());
      CHECK_NOTHROW(target->run(input));
      ++files;
    }
    CAPTURE(target->name);
    CHECK(files > 0);
  }
}

}  // namespace test_fuzz_corpora
