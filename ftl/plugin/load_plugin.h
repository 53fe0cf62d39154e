// Loads mapping policies from shared libraries.
#pragma once

#include <filesystem>
#include <string>

#include "ftl/policies/registry.h"

namespace csdsim::ftl {

/// Adds the policy of a shared library (ftl/plugin/mapping_plugin.h) to the registry and returns its name. The library
/// stays loaded until the program ends, so that policies and their exceptions outlive every registry.
///
/// Throws UserError, which names the library, if it does not exist, is no shared library, exports no plugin or one for
/// another csdsim, interface or compiler (both are named), and if the policy's name is taken or not a valid name.
/// PolicyRegistry::make turns exceptions of the policy's constructor into a UserError that names the library.
std::string load_mapping_plugin(const std::filesystem::path& library, PolicyRegistry& registry);

}  // namespace csdsim::ftl
