// Factories for parts of a drive that replace the model's own.
#pragma once

#include <cstdint>
#include <functional>

namespace csdsim {
struct UnitParts;
}

namespace csdsim::engine {
class KvSource;
}

namespace csdsim::csd_model {

struct EngineParts;
enum class DriveUnit : std::uint8_t;

/// Makes an engine that replaces the model's own. `kv` tells where keys and values are and what they hold; it outlives
/// the engine.
using EngineFactory = std::function<EngineParts(engine::KvSource& kv)>;

/// Makes unit `index` of its kind. If the parts that it returns have no module, the drive takes the model's.
using DriveUnitFactory = std::function<UnitParts(DriveUnit unit, std::uint32_t index)>;

}  // namespace csdsim::csd_model
