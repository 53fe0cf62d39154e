// A VCD file with the waveforms of modules (sc_trace).
#pragma once

#include <filesystem>
#include <systemc>

namespace csdsim {

/// Open from construction to destruction; the kernel writes while it simulates. Destroy it before the modules.
class Waveforms {
 public:
  /// `file` ends in .vcd, because SystemC gives it that ending. Throws UserError if it does not, or cannot be written.
  explicit Waveforms(const std::filesystem::path& file);
  ~Waveforms();
  Waveforms(const Waveforms&) = delete;
  Waveforms& operator=(const Waveforms&) = delete;

  /// Adds what `module` shows. Call it before the simulation starts.
  void add(const sc_core::sc_module& module) { module.trace(file_); }

 private:
  sc_core::sc_trace_file* file_;
};

}  // namespace csdsim
