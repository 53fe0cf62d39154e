// Q, K and V of a batch on the host, wherever the decoder computes them.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "host_runtime/core/decoder/decoder.h"

namespace csdsim::host {

/// A processor with a memory of its own starts to copy them at once, and computes beside the copies.
class RowsToHost {
 public:
  /// `queries`: q is going to be asked for. `decoder` must outlive this object.
  RowsToHost(const Decoder& decoder, LayerId layer, std::shared_ptr<const AttentionInputs> inputs, bool queries)
      : decoder_(decoder), layer_(layer), inputs_(std::move(inputs)) {
    k_.started = decoder.backend().start_download(inputs_->k);
    v_.started = decoder.backend().start_download(inputs_->v);
    if (queries) q_.started = decoder.backend().start_download(inputs_->q);
  }

  /// True if asking for rows may have to wait.
  bool on_the_way() const { return k_.started != nullptr; }
  const std::vector<Half>& q() { return rows(q_, inputs_->q, {}); }
  /// UserError as Decoder::keys_to_host().
  const std::vector<Half>& k() { return rows(k_, inputs_->k, "K"); }
  const std::vector<Half>& v() { return rows(v_, inputs_->v, "V"); }

 private:
  struct Rows {
    std::unique_ptr<Download> started;
    std::vector<Half> arrived;
  };

  /// Rows with a name are checked.
  const std::vector<Half>& rows(Rows& rows, const Tensor& from, std::string_view name) {
    if (!rows.arrived.empty()) return rows.arrived;
    if (rows.started) {
      const std::span<const Half> values = rows.started->wait();
      rows.arrived.assign(values.begin(), values.end());
      rows.started.reset();
    } else {
      rows.arrived = decoder_.to_host(from);
    }
    if (!name.empty()) rows.arrived = Decoder::finite(layer_, name, std::move(rows.arrived), from.cols);
    return rows.arrived;
  }

  const Decoder& decoder_;
  LayerId layer_;
  std::shared_ptr<const AttentionInputs> inputs_;  // outlives the downloads
  Rows q_, k_, v_;
};

}  // namespace csdsim::host
