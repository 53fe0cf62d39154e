// Every file of the corpora, with the findings of earlier runs, ends as its target says. The second test runs only when
// its tag is given. It changes these files at random for some seconds, for targets that clang does not compile.
//   CSDSIM_FUZZ_TARGET=scenario CSDSIM_FUZZ_SECONDS=60 test_fuzz_corpora '[mutate]'
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/fuzz/fuzz.h"

namespace test_fuzz_corpora {

using namespace csdsim;

namespace {

/// The inputs of a target with their files, in the order of the files.
std::vector<std::pair<std::filesystem::path, std::string>> corpus_of(const fuzz::Target& target) {
  std::vector<std::pair<std::filesystem::path, std::string>> inputs;
  const std::filesystem::path folder =
      std::filesystem::path(CSDSIM_SOURCE_DIR) / "tests/fuzz/corpus" / std::string(target.name);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs.emplace_back(entry.path(), std::string{std::istreambuf_iterator<char>(file), {}});
  }
  std::ranges::sort(inputs);
  return inputs;
}

/// An input after one to eight changes: a byte, a piece that is removed, repeated or taken from `other`.
std::string changed(std::string input, const std::string& other, std::mt19937_64& random) {
  const auto below = [&](std::size_t limit) { return limit == 0 ? 0 : static_cast<std::size_t>(random() % limit); };
  for (std::size_t changes = 1 + below(8); changes > 0; --changes) {
    const std::size_t at = below(input.size() + 1), length = below(std::min<std::size_t>(input.size() - at, 40) + 1);
    switch (below(4)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(random());
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(below(input.size() + 1), input.substr(at, length));
        break;
      default:
        input.insert(at, other.substr(below(other.size() + 1), 1 + below(40)));
    }
  }
  return input;
}

std::string setting(const char* name, const char* otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

}  // namespace

TEST_CASE("the files of the corpora are read or refused") {
  for (const fuzz::Target* target : fuzz::Target::all()) {
    const auto inputs = corpus_of(*target);
    for (const auto& [file, input] : inputs) {
      CAPTURE(file);
      CHECK_NOTHROW(target->run(input));
    }
    CAPTURE(target->name);
    CHECK_FALSE(inputs.empty());
  }
}

TEST_CASE("changed files of the corpora are read or refused", "[.mutate]") {
  const std::string only = setting("CSDSIM_FUZZ_TARGET", "");
  const std::uint64_t seed = std::stoull(setting("CSDSIM_FUZZ_SEED", "1"));
  const auto time = std::chrono::seconds(std::stoul(setting("CSDSIM_FUZZ_SECONDS", "10")));
  for (const fuzz::Target* target : fuzz::Target::all()) {
    if (!only.empty() && target->name != only) continue;
    const auto inputs = corpus_of(*target);
    std::mt19937_64 random(seed);
    std::uint64_t count = 0;
    for (const auto end = std::chrono::steady_clock::now() + time; std::chrono::steady_clock::now() < end; ++count) {
      const std::string input =
          changed(inputs[random() % inputs.size()].second, inputs[random() % inputs.size()].second, random);
      // A signal ends the program: the input is in this file then.
      const std::filesystem::path last = fuzz::as_file(input, "last");
      CAPTURE(target->name, seed, count, last, input);
      try {
        target->run(input);
      } catch (const std::exception& error) {
        FAIL(error.what());
      }
    }
    fmt::print("{}: {} inputs from seed {}, no finding\n", target->name, count, seed);
  }
}

}  // namespace test_fuzz_corpora
