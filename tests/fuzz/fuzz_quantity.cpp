// Quantities with units.
#include "base/one_of.h"
#include "base/quantity.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_quantity {

using namespace csdsim;

namespace {

/// What is read and written again is the same value.
template <class Parse>
void read_back(Parse parse, std::string_view input) {
  try {
    const auto value = parse(input);
    fuzz::require(parse(format_quantity(value)) == value, "a quantity is not read back as it was written");
  } catch (const UserError&) {
  }
}

const fuzz::Target kTarget("quantity", [](std::string_view input) {
  read_back(parse_time, input);
  read_back(parse_bytes, input);
  read_back(parse_bandwidth, input);
  read_back(parse_frequency, input);
  read_back(parse_compute_rate, input);
  read_back(parse_energy, input);
  read_back(parse_power, input);
  read_back(parse_ratio, input);
  parse_count(input);
});

}  // namespace

}  // namespace fuzz_quantity
