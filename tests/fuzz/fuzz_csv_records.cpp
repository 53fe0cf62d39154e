// Comma-separated values with a heading.
#include "base/csv_records.h"
#include "tests/fuzz/fuzz.h"

namespace fuzz_csv_records {

using namespace csdsim;

namespace {

const fuzz::Target kTarget("csv_records", [](std::string_view input) {
  static const FieldNames kNames{{"time", "arrival"}, {"input"}, {"output"}};
  CsvRecords records(fuzz::as_file(input, "input.csv"), kNames, {1});
  while (records.next()) {
    records.at(1);
    records.find(0);
  }
  records.torn_note();
});

}  // namespace

}  // namespace fuzz_csv_records
