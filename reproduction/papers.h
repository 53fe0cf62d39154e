// Papers that can be reproduced: those that are part of the program (scenarios/papers), and definitions in files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "reproduction/definition.h"

namespace csdsim::reproduction {

/// A definition and where its scenario is.
struct Paper {
  Definition definition;
  std::filesystem::path file;           ///< file of the definition, for messages
  std::filesystem::path scenario_file;  ///< scenario of a definition in a file; empty: see scenario_text
  std::string scenario_text;            ///< scenario of a paper that is part of the program
};

struct PaperName {
  std::string name;
  std::string title;
};

/// The papers that are part of the program, by name.
std::vector<PaperName> builtin_papers();

/// Returns the paper of that name or, if `name` ends with ".yaml", the definition in that file. Throws UserError that
/// lists the names, and what read_definition() throws.
Paper open_paper(const std::string& name);

}  // namespace csdsim::reproduction
