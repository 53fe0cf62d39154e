#include "host_runtime/core/features/neurons/flash_loading.h"

#include <utility>

namespace csdsim::host {

bool FlashLoading::next_step(OperationSink& sink) {
  if (std::exchange(emitted_, true)) return false;
  for (LayerId layer{0}; layer.value < weights_.model().layers; ++layer.value)
    for (std::uint32_t part = 0; part < weights_.parts(); ++part)
      sink.add(OpKind::write_blocks, Resource::drive_blocks(weights_.drive_of(layer, part)),
               {.phase = Phase::prefill, .layer = layer},
               BlockWork{.extents = {weights_.directory().layer(weights_.on_drive(layer))},
                         .payload = LinkPayload::weights,
                         .memory = Place::host(),
                         .block_size = weights_.directory().format().block_size},
               {});
  return true;
}

}  // namespace csdsim::host
