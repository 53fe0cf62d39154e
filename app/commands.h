// The subcommands of csdsim. Each returns its exit status; errors are thrown (base/error.h) and main maps them to an
// exit status.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "launch/input_files.h"
#include "launch/point_places.h"
#include "report/text.h"
#include "scenario/load.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {
struct EvalInput;
}

namespace csdsim::app {

using report::Format;

struct RunArguments {
  std::vector<std::filesystem::path> scenarios;
  std::vector<std::string> overrides;  ///< "a.b=v", in order
  std::optional<std::filesystem::path> out;
  Format format = Format::table;
  std::optional<std::filesystem::path> trace;
  std::string trace_limit = "200 MB";              ///< largest size of its file
  std::optional<std::filesystem::path> waveforms;  ///< VCD file
  std::optional<std::filesystem::path> metrics;    ///< Prometheus text
  bool quiet = false;                              ///< no progress and no notes on stderr
  std::optional<std::size_t> point;                ///< run this point of the scenario's sweep, counted from 0
  bool sensitivity = false;                        ///< run again with each resource faster
};
int run(const RunArguments& arguments);
/// Hash of all that the result of a scenario depends on, except the program: its configuration and the contents of its
/// input files.
std::uint64_t fingerprint(const scenario::Scenario& scenario, launch::InputFiles& inputs);
/// Runs a scenario, which tells `tell` how far it is, and writes its result.json into `directory`. Returns the exit
/// status. UserError if an input file has changed since fingerprint().
int run_point(const scenario::Scenario& scenario, const launch::InputFiles& inputs,
              const std::filesystem::path& directory, const launch::TellProgress& tell);

struct SweepArguments {
  std::vector<std::filesystem::path> scenarios;
  std::vector<std::string> overrides;
  std::optional<std::filesystem::path> out;
  Format format = Format::table;
  unsigned jobs = 1;
  bool resume = false;
  bool overwrite = false;
  std::optional<std::string> shard;  ///< "I/N": the I-th of N parts, from 1
  bool quiet = false;
};
int sweep(const SweepArguments& arguments);

struct MergeArguments {
  std::vector<std::filesystem::path> parts;  ///< --out of sweeps with --shard
  std::filesystem::path out;
  Format format = Format::table;
  bool overwrite = false;
};
/// Puts the parts of a sweep together.
int merge(const MergeArguments& arguments);

struct CompareArguments {
  std::filesystem::path a, b;  ///< --out of a run or a sweep, or a result.json
  std::optional<std::filesystem::path> out;
  Format format = Format::table;
  std::string fail_on;  ///< "worse" or "change": the exit status is 1 if there is any; empty: never
};
/// Tells what has changed from `a` to `b`.
int compare(const CompareArguments& arguments);

struct ReproduceArguments {
  std::string paper;                   ///< name of a built-in paper, or the file of a definition
  std::vector<std::string> overrides;  ///< "a.b=v", in every point
  std::vector<std::string> rows;       ///< ids; empty: all
  bool one_column = false;             ///< the scenario as it is, without the other columns of the definition
  std::optional<std::filesystem::path> out;
  Format format = Format::table;
  unsigned jobs = 1;
  bool resume = false;
  bool overwrite = false;
  bool quiet = false;
};
/// Returns 0 also when results differ from those of the paper.
int reproduce(const ReproduceArguments& arguments);

/// File of a sweep or a run that says where each value of the configuration is from.
inline constexpr const char* kOriginsFile = "origins.json";
/// File of a sweep or a run that holds what its scenarios ask: the comment at the top of each. Absent without any.
inline constexpr const char* kQuestionFile = "question.txt";
/// Writes both files; `questions` has a line per scenario.
void write_origins(const scenario::Resolved& resolved, const std::string& questions,
                   const std::filesystem::path& directory);

struct ReportArguments {
  std::filesystem::path directory;            ///< --out of a sweep or a run
  std::optional<std::filesystem::path> out;   ///< default: report.html in `directory`
  std::optional<std::filesystem::path> plot;  ///< a figure in place of the HTML file: .png, .svg or .pdf
  std::optional<std::string> x, y;            ///< axis and metric of the figure
};
/// Writes one self-contained HTML file, or a figure.
int report(const ReportArguments& arguments);

struct CalibrateArguments {
  std::filesystem::path scenario;          ///< block_io on the drive as far as it is known
  std::vector<std::filesystem::path> fio;  ///< JSON output of fio
  std::vector<std::string> overrides;      ///< "a.b=v", in order
  std::vector<std::string> fit, fix;       ///< "KEY=LOW..HIGH", "KEY"
  std::optional<std::filesystem::path> out, plot;
  Format format = Format::table;
  std::uint64_t seed = 1;
  std::uint64_t requests = 10'000;  ///< one page each, per point and simulation
  unsigned jobs = 1;
  bool quiet = false;
};
/// Finds the drive that gives the measured points.
int calibrate(const CalibrateArguments& arguments);

struct RooflineArguments {
  std::filesystem::path scenario;
  std::vector<std::string> overrides;  ///< "a.b=v", in order
  std::optional<std::filesystem::path> out;
  Format format = Format::table;
};
/// Simulates nothing.
int roofline(const RooflineArguments& arguments);

struct DatasheetArguments {
  std::string drive;                   ///< name of a preset, or a scenario file
  std::vector<std::string> overrides;  ///< "a.b=v", in order
  std::optional<std::string> model;    ///< preset of the model whose attention is measured
  std::optional<std::filesystem::path> out;
  Format format = Format::table;
  bool quiet = false;
};
/// Measures what a vendor's data sheet states.
int datasheet(const DatasheetArguments& arguments);

struct CertifyArguments {
  std::optional<std::filesystem::path> scenario;
  std::vector<std::string> overrides;  ///< "a.b=v", in order
  std::optional<std::string> object;   ///< size of the objects, in place of a scenario
  std::optional<std::string> writes;   ///< "2TB/day"
  double rating = 1;                   ///< drive writes per day
  std::uint32_t seeds = 3;
  bool only = false;  ///< the scenario as it is, without changes
  std::optional<std::filesystem::path> out;
  Format format = Format::table;
  bool quiet = false;
};
/// Tells how long a drive lives.
int certify(const CertifyArguments& arguments);

struct GenerateArguments {
  std::filesystem::path model;
  std::optional<std::string> prompt;
  std::optional<std::filesystem::path> tokens;  ///< file of token ids, a prompt per line
  std::optional<std::filesystem::path> scenario;
  std::vector<std::string> overrides;
  std::uint32_t max_new_tokens = 64;
  std::optional<std::string> system;  ///< offload system; default: the first one whose drive runs `method`
  std::optional<std::string> method;  ///< default: dense, or the method of the system
  std::string attention = "drive";
  std::string backend = "cpu";
  std::string rates = "measured";  ///< rates that a run on streams is planned with:
                                   ///< measured, platform
  double temperature = 0;
  std::optional<std::uint32_t> top_k;
  std::optional<double> top_p;
  std::uint64_t seed = 1;
  std::optional<std::uint32_t> r, k, local;  ///< SparF budget; default from the ratio
  std::optional<std::string> ratio;
  std::optional<std::string> fatrelu;  ///< threshold of FATReLU; unset: SiLU
  bool stop_at_eos = false;
  std::optional<std::uint32_t> logprobs;        ///< likeliest tokens to state beside each new one
  std::optional<std::filesystem::path> logits;  ///< safetensors file
  std::optional<std::filesystem::path> out;
  bool quiet = false;
};
int generate(const GenerateArguments& arguments);

struct EvalArguments {
  std::filesystem::path model;
  std::optional<std::filesystem::path> text;
  std::optional<std::filesystem::path> tokens;  ///< file of whitespace-separated token ids, instead of `text`
  std::vector<std::string> methods;             ///< empty: all
  std::vector<std::string> ratios;              ///< empty: 1/2 to 1/32
  std::string ratio_mode = "tokens";
  std::vector<std::uint32_t> kv_bits;    ///< bits per number of K and V; empty: 16
  std::vector<std::uint32_t> kv_groups;  ///< elements that share a scale; empty: 64
  std::optional<std::uint32_t> r, k, local, heavy, recent, window, sinks;
  std::uint32_t prefill = 512, decode = 256, windows = 0;
  std::vector<std::uint32_t> distances;  ///< distances of the recall task; empty: 1/4, 1/2 and 7/8 of the prefill
  bool no_recall = false;
  std::string attention = "host";
  std::string backend = "cpu";
  std::optional<std::filesystem::path> scenario;
  std::vector<std::string> overrides;
  std::uint64_t seed = 1;
  std::optional<std::filesystem::path> nll;  ///< CSV file of the likelihood of every scored token
  std::optional<std::filesystem::path> record;
  std::optional<std::uint32_t> record_every;  ///< decode steps per recorded one; sparf, default 16
  std::optional<std::string> fatrelu;         ///< threshold of FATReLU; unset: SiLU
  std::optional<std::string> predictor;       ///< file of a neuron predictor, or "oracle"
  std::vector<std::string> thresholds;        ///< thresholds of the predictor
  std::uint32_t weight_bits = 16;             ///< bits of the weights of the feed-forward networks
  std::optional<std::uint32_t> weight_group;
  std::vector<std::string> ranks;  ///< ranks of the predictor: "64", or one per layer, "32:32:64"
  std::optional<std::filesystem::path> record_neurons;
  std::optional<std::filesystem::path> out;
  Format format = Format::table;
  bool quiet = false;
};
/// The checkpoint and the text of the arguments, which name one. Throws UserError for what cannot be read.
experiment::EvalInput eval_input(const EvalArguments& arguments);
int eval(const EvalArguments& arguments);
/// eval() of feed-forward blocks with predicted neurons: --predictor or --record-neurons.
int eval_neurons(const EvalArguments& arguments);

struct PoolsArguments {
  std::vector<std::filesystem::path> recordings;  ///< recordings of csdsim eval --record
  std::vector<std::string> policies{"naive", "hit-table"};
  std::vector<std::string> hot{"4/5"};       ///< shares of the context in host memory
  std::vector<std::string> pinned{"0"};      ///< shares of the newest tokens that stay there
  std::vector<std::string> kept_hot{"1/5"};  ///< shares that are there for their hits
  bool locality = false;                     ///< how local the tokens are, instead of what moves
  Format format = Format::table;
};
int pools(const PoolsArguments& arguments);

struct MakeTraceArguments {
  std::string kind;  ///< poisson, bursts, chats, agents, closed-loop
  std::optional<std::filesystem::path> out;
  std::string format = "mooncake";
  std::uint32_t requests = 300;
  std::uint64_t seed = 1;
  // Default: that of the kind.
  std::optional<std::uint32_t> block_tokens, input_tokens, output_tokens, prefixes, prefix_tokens, clients, most_tokens;
  std::optional<double> turns, burst;
  std::optional<std::string> gap, delay, token_time;  ///< with units
};
/// Writes requests that were made by a generator.
int make_trace(const MakeTraceArguments& arguments);

struct HitRatesArguments {
  std::vector<std::filesystem::path> traces;
  std::string trace_format;                         ///< empty: by the content
  std::optional<std::uint32_t> trace_block_tokens;  ///< where the file does not state them; default: of the format
  std::optional<std::filesystem::path> tokenizer;   ///< checkpoint directory, for traces of texts
  /// Names, evictions also paths of libraries; settings as "nth_sighting:n=3".
  std::vector<std::string> evictions{"lru"}, admissions{"always"};
  std::vector<std::string> capacities;      ///< in blocks, or "unlimited"; empty: powers of two, and unlimited
  std::vector<std::uint32_t> block_tokens;  ///< empty: those of the trace
  std::optional<std::filesystem::path> plot;
  Format format = Format::table;
  bool quiet = false;
};
/// Replays traces of requests without time.
int hit_rates(const HitRatesArguments& arguments);

struct TestPolicyArguments {
  std::string policy;                 ///< a name, or the path of a plugin
  std::vector<std::string> settings;  ///< settings of the policy: name=value
  std::uint32_t cases = 200;
  std::uint32_t limit_s = 600;  ///< limit in seconds of processor time
  std::uint64_t seed = 1;
  std::optional<std::filesystem::path> scenario;  ///< a scenario of workload ftl_policies; default: built in
  std::optional<std::filesystem::path> out;
  Format format = Format::table;
};
/// Returns 1 when the policy violates a property.
int test_policy(const TestPolicyArguments& arguments);

struct TestPowerArguments {
  std::uint64_t cuts = 10'000;  ///< at least so many in random histories
  std::uint64_t seed = 1;
  std::uint32_t commands = 2;                      ///< length of the histories in which every cut is tried; 0: none
  std::optional<std::uint32_t> units_per_program;  ///< unset: several
  std::optional<std::string> protection;           ///< none or capacitors; unset: both
  std::string of = "both";                         ///< block, kv, or both namespaces
};
/// Returns 1 when a power loss took what was durable.
int test_power(const TestPowerArguments& arguments);

struct ProfileGpuArguments {
  std::string name;           ///< name of the preset; empty: derived from the GPU's name
  std::filesystem::path out;  ///< preset file to write
  /// Scenario whose modelled GPU and link take the place of those of this machine.
  std::optional<std::filesystem::path> scenario = {};
  std::vector<std::string> overrides = {};
};
/// Measures the operators of this machine's GPU and its link, or derives them from a scenario's model, and writes a
/// preset file for `presets:` of a scenario.
int profile_gpu(const ProfileGpuArguments& arguments);

int check(const std::vector<std::filesystem::path>& scenarios, const std::vector<std::string>& overrides);
/// Lists the built-in names and those that `plugins` (scenario/plugin.h) register.
int list(const std::string& kind, Format format, const std::vector<std::filesystem::path>& plugins);
enum class Description { text, markdown, schema, json };
/// Prints the parameters of `kind`; empty: of the whole scenario. `kind` "metrics": the metrics of results. The schema
/// is that of the whole scenario.
int describe(const std::string& kind, const std::string& name, Description form,
             const std::vector<std::filesystem::path>& plugins);

/// One line with the version, build type and compiler.
std::string version_line();

}  // namespace csdsim::app
