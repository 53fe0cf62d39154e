#include <boost/mpi.hpp>
#include <boost/serialization/string.hpp>
#include <chrono>
#include <exception>
#include <thread>

#include "launch/ranks.h"

namespace csdsim::launch {
namespace {

namespace mpi = boost::mpi;

constexpr int kTag = 0;
/// Waiting in MPI itself would take a whole core.
constexpr std::chrono::milliseconds kLook{1};

class MpiRanks final : public Ranks {
 public:
  MpiRanks() : environment_(std::make_unique<mpi::environment>(false)) {}
  ~MpiRanks() override {
    // Without MPI_Finalize the launcher ends the other ranks, which wait for a rank that has failed.
    if (std::uncaught_exceptions() > 0) static_cast<void>(environment_.release());
  }
  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }
  void send(int to, const std::string& message) override { world_.send(to, kTag, message); }
  std::pair<int, std::string> receive() override {
    for (;;) {
      if (const auto status = world_.iprobe(mpi::any_source, kTag)) {
        std::string message;
        world_.recv(status->source(), kTag, message);
        return {status->source(), std::move(message)};
      }
      std::this_thread::sleep_for(kLook);
    }
  }

 private:
  std::unique_ptr<mpi::environment> environment_;
  mpi::communicator world_;
};

}  // namespace
}  // namespace csdsim::launch

extern "C" csdsim::launch::Ranks* csdsim_mpi_ranks() { return new csdsim::launch::MpiRanks; }
