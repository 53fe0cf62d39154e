// The pages that an FTL programs for the writes of the host: one account for both namespaces.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace csdsim::ftl {

/// Pages of an FTL (the block namespace's are mapping units): what the host wrote, and what was programmed, each page
/// under one reason. Programs count when they are planned.
struct WriteWork {
  std::uint64_t written = 0;         ///< by the host; a page that it wrote in part counts as one
  std::uint64_t host = 0;            ///< programmed with what the host wrote
  std::uint64_t collection = 0;      ///< moved by garbage collection
  std::uint64_t maps = 0;            ///< translation pages, except those that were moved
  std::uint64_t wear_levelling = 0;  ///< moved by static wear levelling
  std::uint64_t refresh = 0;         ///< moved because of their age or of many reads of their block
  std::uint64_t retired_blocks = 0;  ///< programs that failed, and pages moved out of blocks that failed
  std::uint64_t padding = 0;         ///< left empty in a word line, or programmed before they were full

  struct Part {
    std::string_view name;
    std::string_view meaning;  ///< meaning of such pages, for the documents
    std::uint64_t WriteWork::*pages;
  };
  /// All that is programmed.
  static constexpr std::array<Part, 7> parts() {
    return {
        {{"host", "pages with what the host wrote; below 1 where a page changed in the buffer", &WriteWork::host},
         {"collection", "pages that garbage collection moved", &WriteWork::collection},
         {"maps", "translation pages", &WriteWork::maps},
         {"wear_levelling", "pages that static wear levelling moved", &WriteWork::wear_levelling},
         {"refresh", "pages that moved because of their age or of many reads", &WriteWork::refresh},
         {"retired_blocks", "programs that failed, and pages moved out of their blocks", &WriteWork::retired_blocks},
         {"padding", "pages left empty in a word line, or programmed before they were full", &WriteWork::padding}}};
  }

  std::uint64_t programmed() const {
    std::uint64_t sum = 0;
    for (const Part& part : parts()) sum += this->*part.pages;
    return sum;
  }
  /// Programmed pages of `part` over those that the host wrote, which are not 0.
  double share_of(const Part& part) const {
    return static_cast<double>(this->*part.pages) / static_cast<double>(written);
  }
  /// All programmed pages over those that the host wrote; 1 if it wrote none.
  double amplification() const {
    return written == 0 ? 1 : static_cast<double>(programmed()) / static_cast<double>(written);
  }

  WriteWork& operator+=(const WriteWork& o) {
    written += o.written;
    for (const Part& part : parts()) this->*part.pages += o.*part.pages;
    return *this;
  }
  friend WriteWork operator-(WriteWork a, const WriteWork& b) {
    a.written -= b.written;
    for (const Part& part : parts()) a.*part.pages -= b.*part.pages;
    return a;
  }
};

}  // namespace csdsim::ftl
