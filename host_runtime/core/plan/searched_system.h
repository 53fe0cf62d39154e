// The interface of an offload system that leaves parameters to a search by the rates of the platform.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "base/units.h"
#include "host_runtime/core/machine/gpu_config.h"
#include "host_runtime/core/model/model_shape.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

/// In which token pages the tokens are that SparF attends to.
struct TouchedPages {
  double share = 1;              ///< share of the token pages, unless selected_per_page is set
  double selected_per_page = 0;  ///< selected tokens in each touched page; 0: `share` counts
  Bytes page = {};               ///< size of a flash page

  /// Share of the token pages in which a share `selected` of the tokens is, with rows of `row` bytes.
  double of(double selected, double row) const {
    if (selected_per_page == 0) return share;
    return std::min(1.0, selected * std::floor(static_cast<double>(page.value) / row) / selected_per_page);
  }
};

/// Upper bounds of the rates of one drive.
struct DriveRates {
  Bandwidth link;                  ///< in each direction
  SimTime command;                 ///< fixed time of a command, and of the first page that it reads
  Bandwidth reads;                 ///< rate of reads of whole pages to the engine
  Bandwidth fetches;               ///< rate of reads that fetch one token each
  Bytes fetch{4096};               ///< bytes that such a read moves: some codewords, or a page
  double products = 0;             ///< multiplications per second of the attention kernels
  double dequantised = 0;          ///< elements of 8 or 4 bits that the kernels dequantise per second
  std::array<double, 3> scores{};  ///< products of scores per second, by ScorePrecision; 0: no such scores
  TouchedPages touched_pages = {};
};

/// Rates and sizes of a platform, for systems that choose parameters by adding them up.
struct PlatformRates {
  Bandwidth host_to_gpu, gpu_to_host;
  Bandwidth files_to_host, host_to_files;  ///< rate of all drives together, through the host's file path
  ComputeRate gpu_gemm, host_attention;
  Bandwidth host_memory_bandwidth;
  Bytes gpu_memory, host_memory, files;  ///< capacities
  GpuConfig gpu = {};                    ///< GpuModel makes the time of an operator from it
  SimTime link_latency;                  ///< latency of a copy between host and GPU
  Bandwidth gpu_peer_link;  ///< rate of the link of a GPU, in each direction, for drives that write to its memory
  DriveRates drive = {};
  std::uint32_t drives = 1, gpus = 1;
  std::uint32_t mini_batches = 1;    ///< mini-batches of the run
  bool mini_batches_stated = false;  ///< by the scenario
  bool carried = false;              ///< the run carries data
  bool through_host = false;         ///< data between GPU and drives pass through host memory
};

/// Values that parameters came to: {key, text}, for the statistics of a result.
using Remarks = std::vector<std::pair<std::string, std::string>>;

/// A capability beside OffloadSystem.
class SearchedSystem {
 public:
  virtual ~SearchedSystem() = default;

  /// Chooses what the parameters leave to a search. Called once, after check(). Throws
  /// UserError if nothing fits.
  virtual void choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates) = 0;
  /// What the search has chosen; nothing if the parameters left it nothing. `longest` is the longest context.
  virtual Remarks remarks(const ModelShape& model, std::uint32_t longest) const = 0;
};

}  // namespace csdsim::host
