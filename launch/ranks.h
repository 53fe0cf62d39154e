// The processes of an MPI program. What needs MPI is in a module of its own, which is loaded under mpirun and srun
// only.
#pragma once

#include <memory>
#include <string>
#include <utility>

namespace csdsim::launch {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual void send(int to, const std::string& message) = 0;
  /// Sleeps until a message arrives; returns its sender and the message.
  virtual std::pair<int, std::string> receive() = 0;
};

/// The ranks that mpirun or srun has started together with this process; nullptr if it is alone. UserError if it is not
/// alone and the module is missing.
std::unique_ptr<Ranks> ranks_of_this_process();

}  // namespace csdsim::launch
