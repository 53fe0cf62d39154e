// Checks that the demands of systems on drives agree with the rest of a scenario.
#pragma once

#include "experiment/generation/generation_workload.h"
#include "ftl/kv/kv_layout.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// A stated number of heads is large enough to show its error, and some are passed over. Not for sampling: off.
void check_sampled_heads(scenario::Checker& c, const GenerationWorkload& work, bool has_model);

/// A stated number of sampled layers: what is read outside the layers does not scale with their number.
void check_sampled_layers(scenario::Checker& c, const GenerationWorkload& work);

/// Recorded neurons are for timing runs of systems that predict neurons. Precondition: simulation.neurons is given.
void check_neurons(scenario::Checker& c, const GenerationWorkload& work, bool has_model);

/// Settings of simulation.tokens are for timing runs of systems that choose tokens.
void check_tokens(scenario::Checker& c);

/// Commands to a drive name the query heads of a KV head in eight bits.
void check_query_groups(scenario::Checker& c);

/// A run has one platform: drives with a KV namespace, drives with files, or drives with blocks. Systems that use no
/// drive go with any but files, whose page cache takes host memory.
void check_comparison(scenario::Checker& c, const GenerationWorkload& work);

/// Checks that the files of the system fit into the drives, and the buffers of their I/Os into host memory. Files are
/// whole I/Os, and what is written together may end behind the last token.
void check_file_space(scenario::Checker& c, const GenerationWorkload& work);

/// Checks that the engines of the drives hold what a head needs for attention to its longest context.
void check_job_size(scenario::Checker& c, const GenerationWorkload& work, const ftl::KvLayout& layout);

}  // namespace csdsim::experiment
