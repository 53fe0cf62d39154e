#include "simulation/waveforms.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "base/error.h"

namespace csdsim {
namespace {

/// Opens `file` as SystemC will, which ends the program if it cannot.
std::string checked(const std::filesystem::path& file) {
  if (file.extension() != ".vcd")
    throw UserError(fmt::format("{}: waveforms need a name that ends in .vcd", file.string()));
  if (!std::ofstream(file)) throw UserError(fmt::format("{}: cannot be written", file.string()));
  std::filesystem::path stem = file;
  return stem.replace_extension().string();
}

}  // namespace

Waveforms::Waveforms(const std::filesystem::path& file)
    : file_(sc_core::sc_create_vcd_trace_file(checked(file).c_str())) {
  file_->set_time_unit(1, sc_core::SC_PS);
}

Waveforms::~Waveforms() { sc_core::sc_close_vcd_trace_file(file_); }

}  // namespace csdsim
