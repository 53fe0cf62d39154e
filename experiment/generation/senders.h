// Kinds of transfers in a generation that compete for shared links and host memory.
#pragma once

#include "experiment/generation/generation_run.h"

namespace csdsim::experiment {

struct Senders {
  bool to_gpu = false, from_gpu = false;  ///< copies between host and GPUs
  bool peer_to_peer = false;              ///< drives read or write GPU memory
  bool host_cores = false;                ///< operations of the host's cores that read or write memory
};

/// The plan of one layer, of the prompts and two steps, has all kinds.
Senders senders_of(const GenerationSetup& setup);

/// True if the copies of all GPUs and the host's cores together can ask host memory for more than its bandwidth.
bool shares_host_memory(const GenerationSetup& setup);

}  // namespace csdsim::experiment
