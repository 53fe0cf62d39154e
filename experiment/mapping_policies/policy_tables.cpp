#include "experiment/mapping_policies/policy_tables.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

namespace {

double microseconds(SimTime t) { return t.seconds() * 1e6; }

}  // namespace

ordered_json read_table(const std::vector<PolicyRow>& rows) {
  ordered_json table = ordered_json::array();
  for (const PolicyRow& row : rows) {
    const PolicyFigures& f = row.figures;
    table.push_back({{"policy", row.policy},
                     {"score_pages", f.score_pages},
                     {"score_bound", f.score_bound},
                     {"attend_pages", f.attend_pages},
                     {"attend_bound", f.attend_bound},
                     {"dense_pages", f.dense_pages},
                     {"sparse_imbalance", f.sparse_imbalance},
                     {"dense_imbalance", f.dense_imbalance},
                     {"sparse_us", microseconds(f.sparse_latency)},
                     {"dense_us", microseconds(f.dense_latency)},
                     {"lookups", f.lookups},
                     {"near16_pages", f.near_pages},
                     {"near16_x", f.near_amplification},
                     {"scattered16_pages", f.scattered_pages},
                     {"scattered16_x", f.scattered_amplification}});
  }
  return table;
}

ordered_json write_table(const std::vector<PolicyRow>& rows) {
  ordered_json table = ordered_json::array();
  for (const PolicyRow& row : rows) {
    const PolicyFigures& f = row.figures;
    table.push_back({{"policy", row.policy},
                     {"programmed_pages", f.programmed_pages},
                     {"write_amplification", f.write_amplification},
                     {"gc_pages", f.gc_pages},
                     {"misplaced_pages", f.misplaced_pages},
                     {"erases_mean", f.erases_mean},
                     {"erases_most", f.erases_most},
                     {"occupancy", f.occupancy},
                     {"table_bytes", f.table_peak.value},
                     {"tail_bytes", f.tail_peak.value},
                     {"dram_bytes", f.dram_peak.value},
                     {"refused", f.refused_sequences}});
  }
  return table;
}

ordered_json tail_table(const std::vector<PolicyRow>& rows) {
  ordered_json table = ordered_json::array();
  for (const PolicyRow& row : rows) {
    const PolicyFigures& f = row.figures;
    table.push_back({{"policy", row.policy},
                     {"tail", row.tail},
                     {"embedding_group", row.embedding_group},
                     {"score_pages", f.score_pages},
                     {"sparse_us", microseconds(f.sparse_latency)},
                     {"rewritten_pages", f.rewritten_pages},
                     {"read_back_pages", f.read_back_pages},
                     {"write_amplification", f.write_amplification},
                     {"gc_pages", f.gc_pages},
                     {"occupancy", f.occupancy},
                     {"tail_bytes", f.tail_peak.value},
                     {"refused", f.refused_sequences}});
  }
  return table;
}

}  // namespace csdsim::experiment
