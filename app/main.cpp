// The command line of csdsim. Exit status 0: success; 1: an error of csdsim; 2: an error of the user.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <systemc>

#include "app/commands.h"
#include "app/completion.h"
#include "app/options.h"
#include "app/standard_output.h"
#include "base/error.h"

namespace {

using namespace csdsim;

using app::add_exploration;
using app::add_format;
using app::kNamed;
using app::kWholeNumber;

// One function per subcommand adds its options and its callback.

void add_run(CLI::App& cli, int& status) {
  const auto run = std::make_shared<app::RunArguments>();
  auto* run_command =
      cli.add_subcommand("run", "Run scenarios; write DIR/result.json (several: DIR/<name>/result.json)");
  run_command
      ->add_option("scenario", run->scenarios,
                   "Scenario files (YAML), or job files of fio (NAME.fio) with the drive in --set")
      ->required();
  run_command->add_option("--set", run->overrides, "Override a key: a.b=v (repeatable)")->allow_extra_args(false);
  run_command->add_option("--out", run->out, "Directory for results")->check(kNamed);
  add_format(*run_command, run->format);
  auto* trace = run_command->add_option("--trace", run->trace,
                                        "Write a trace of the run for Perfetto (ui.perfetto.dev) or chrome://tracing");
  trace->check(kNamed);
  run_command->add_option("--trace-limit", run->trace_limit, "Largest size of its file")
      ->needs(trace)
      ->capture_default_str();
  run_command
      ->add_option("--vcd", run->waveforms,
                   "Write the waveforms of the drives (platform.device.fidelity: at) as a .vcd file")
      ->check(kNamed);
  run_command
      ->add_option("--metrics", run->metrics, "Write metrics in Prometheus' text format (workloads of kind serving)")
      ->check(kNamed);
  run_command->add_option("--point", run->point, "Run one point of the scenario's sweep, counted from 0")
      ->check(app::kWholeNumber);
  run_command->add_flag("--sensitivity", run->sensitivity,
                        "Run again with each resource 10 % faster, and tell what the rate gains");
  run_command->add_flag("-q,--quiet", run->quiet, "No progress and no notes on stderr");
  run_command->callback([run, &status] { status = app::run(*run); });
}

void add_roofline(CLI::App& cli, int& status) {
  const auto roofline = std::make_shared<app::RooflineArguments>();
  auto* command = cli.add_subcommand(
      "roofline", "Show where the operators of a decode step belong: GPU, host or drives (nothing is simulated)");
  command->add_option("scenario", roofline->scenario, "Scenario file of a generation")->required();
  command->add_option("--set", roofline->overrides, "Override a key: a.b=v (repeatable)")->allow_extra_args(false);
  command->add_option("--out", roofline->out, "Directory for roofline.json and roofline.html")->check(kNamed);
  add_format(*command, roofline->format);
  command->callback([roofline, &status] { status = app::roofline(*roofline); });
}

void add_datasheet(CLI::App& cli, int& status) {
  const auto sheet = std::make_shared<app::DatasheetArguments>();
  auto* command = cli.add_subcommand(
      "datasheet", "Measure what a drive's data sheet states: rates, latencies, write amplification, endurance");
  command->add_option("drive", sheet->drive, "A drive (csdsim list devices), or a scenario file with one")->required();
  command->add_option("--set", sheet->overrides, "Override a key: a.b=v (repeatable)")->allow_extra_args(false);
  command->add_option("--model", sheet->model,
                      "Also measure attention of this model in the drive (csdsim list models)");
  command->add_option("--out", sheet->out, "Directory for datasheet.json")->check(kNamed);
  add_format(*command, sheet->format);
  command->add_flag("-q,--quiet", sheet->quiet, "No progress and no notes on stderr");
  command->footer(
      "Examples:\n"
      "  csdsim datasheet samsung-980-pro-2tb\n"
      "  csdsim datasheet samsung-980-pro-2tb --set platform.device.flash.read_latency='40 us'    the nearest drive, "
      "with a value of yours\n"
      "  csdsim datasheet my_ssd.yaml                                                           a scenario with your "
      "drive (copy scenarios/my_ssd.yaml)");
  command->callback([sheet, &status] { status = app::datasheet(*sheet); });
}

void add_certify(CLI::App& cli, int& status) {
  const auto certify = std::make_shared<app::CertifyArguments>();
  auto* command = cli.add_subcommand(
      "certify", "Tell how long a drive lives under what is written to it, and what would change that most");
  command->add_option(
      "scenario", certify->scenario,
      "Scenario file with a workload of kind objects and simulation.data: wear, or of kind serving; or the "
      "--out of such a run");
  command->add_option("--set", certify->overrides, "Override a key: a.b=v (repeatable)")->allow_extra_args(false);
  command->add_option("--object", certify->object, "Size of the objects, in place of a scenario: 4MiB");
  command->add_option(
      "--writes", certify->writes,
      "New objects per day: 2TB/day (default: as much as the drive holds, or as a serving run writes to one)");
  command->add_option("--rating", certify->rating, "Drive writes per day that the drive is sold for")
      ->check(app::kPositive)
      ->capture_default_str();
  command->add_option("--seeds", certify->seeds, "Runs with different seeds")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_flag("--only", certify->only, "The drive as it is: no reruns with one change each");
  command->add_option("--out", certify->out, "Directory for certificate.json and certificate.html")->check(kNamed);
  command->add_option("--format", certify->format, "Form of the result")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, app::Format>{{"table", app::Format::table}, {"json", app::Format::json}}));
  command->add_flag("-q,--quiet", certify->quiet, "No progress and no notes on stderr");
  command->callback([certify, &status] { status = app::certify(*certify); });
}

void add_generate(CLI::App& cli, int& status) {
  const auto generate = std::make_shared<app::GenerateArguments>();
  auto* generate_command = cli.add_subcommand("generate", "Generate tokens with a checkpoint, attention in the drive");
  generate_command->add_option("--model", generate->model, "Checkpoint directory (config.json, safetensors, tokenizer)")
      ->required();
  auto* prompt = generate_command->add_option("--prompt", generate->prompt, "Prompt text");
  generate_command->add_option("--tokens", generate->tokens, "File of token ids separated by blanks: a prompt per line")
      ->excludes(prompt);
  generate_command->add_option("--scenario", generate->scenario, "Scenario whose platform is used (default: built in)");
  generate_command->add_option("--set", generate->overrides, "Override a key of the scenario: a.b=v")
      ->allow_extra_args(false);
  generate_command->add_option("--max-new-tokens", generate->max_new_tokens, "Tokens to generate")
      ->check(app::kPositive);
  auto* method = generate_command->add_option("--method", generate->method,
                                              "Attention method of the drive: dense (default), sparf or another");
  generate_command
      ->add_option("--system", generate->system,
                   "Offload system (csdsim list systems), in place of a method. It runs in simulated time; kvpr and "
                   "hf-accelerate with --backend cuda run for real, K and V in pinned host memory, on CUDA streams")
      ->excludes(method);
  generate_command->add_option("--attention", generate->attention, "Where decoding attention runs")
      ->check(CLI::IsMember({"drive", "host"}));
  generate_command->add_option("--backend", generate->backend, "Where the model runs, and host attention with it")
      ->check(CLI::IsMember({"cpu", "cuda", "cuda-bf16"}));
  generate_command
      ->add_option("--rates", generate->rates,
                   "Rates of link and GPU by which a run on CUDA streams chooses what to recompute: measured at its "
                   "start, or of the scenario's platform")
      ->check(CLI::IsMember({"measured", "platform"}))
      ->capture_default_str();
  generate_command->add_option("--temperature", generate->temperature, "0 is greedy")->check(app::kNotNegative);
  generate_command->add_option("--top-k", generate->top_k, "Draw from the k likeliest tokens (default: all)");
  generate_command->add_option("--top-p", generate->top_p,
                               "Draw from the likeliest tokens up to this mass (default: 1)");
  generate_command->add_option("--seed", generate->seed, "Seed of the sampler")->check(kWholeNumber);
  generate_command->add_option("--ratio", generate->ratio, "Compression ratio of sparf (default 1/8)");
  generate_command->add_option("--r", generate->r, "sparf: query components per head");
  generate_command->add_option("--k", generate->k, "sparf: tokens kept per head");
  generate_command->add_option("--local", generate->local, "sparf: newest tokens always kept (inside k)");
  generate_command->add_option("--fatrelu", generate->fatrelu,
                               "Gated networks: silu(gate) below this threshold is zero (default: SiLU)");
  generate_command->add_flag("--stop-at-eos", generate->stop_at_eos,
                             "End a text with the first end token (eos_token_id of the checkpoint)");
  generate_command->add_option("--logprobs", generate->logprobs,
                               "State in result.json the log-probability of each new token and of the N likeliest");
  generate_command->add_option("--logits", generate->logits, "Write the logits of the new tokens, a safetensors file")
      ->check(kNamed);
  generate_command->add_option("--out", generate->out, "Directory for result.json")->check(kNamed);
  generate_command->add_flag("-q,--quiet", generate->quiet, "No progress and no notes on stderr");
  generate_command->callback([generate, &status] { status = app::generate(*generate); });
}

/// How K and V are kept.
void add_kv_options(CLI::App& command, app::EvalArguments& eval) {
  command
      .add_option("--kv-bits", eval.kv_bits,
                  "Bits per element of K and V, as system.kv_bits (default: 16; with 8 and 4 dense attention only, "
                  "unless --method names others)")
      ->check(CLI::IsMember({16, 8, 4}))
      ->delimiter(',');
  command
      .add_option("--kv-group", eval.kv_groups, "Elements of a head that share a scale, with --kv-bits (default: 64)")
      ->delimiter(',');
}

/// What is written beside the result.
void add_recording_options(CLI::App& command, app::EvalArguments& eval) {
  command.add_option("--nll", eval.nll, "Write the negative log-likelihood of every scored token, a CSV file")
      ->check(kNamed);
  command
      .add_option("--record", eval.record,
                  "Write the tokens that one method attends to in every step (csdsim pools replays them), or "
                  "the selections of sparf for timing runs")
      ->check(kNamed);
  command.add_option("--record-every", eval.record_every, "sparf: record one of this many decode steps (default 16)")
      ->check(app::kPositive);
}

void add_eval(CLI::App& cli, int& status) {
  const auto eval = std::make_shared<app::EvalArguments>();
  auto* eval_command = cli.add_subcommand(
      "eval",
      "Measure what attention methods, or feed-forward blocks with predicted neurons, cost in quality: perplexity, "
      "agreement with dense, long-range recall");
  eval_command->add_option("--model", eval->model, "Checkpoint directory (config.json, safetensors, tokenizer)")
      ->required();
  auto* text = eval_command->add_option("--text", eval->text, "Text file");
  eval_command->add_option("--tokens", eval->tokens, "File of whitespace-separated token ids")->excludes(text);
  eval_command->add_option("--method", eval->methods, "Attention methods (default: all that run where attention runs)")
      ->delimiter(',');
  eval_command->add_option("--ratio", eval->ratios, "Kept shares (default: 1/2 to 1/32)")->delimiter(',');
  eval_command
      ->add_option(
          "--ratio-mode", eval->ratio_mode,
          "What the ratio counts: tokens attended to, or all traffic against dense (default methods that would "
          "exceed the ratio by choosing alone are left out)")
      ->check(CLI::IsMember({"tokens", "traffic"}));
  add_kv_options(*eval_command, *eval);
  eval_command->add_option("--r", eval->r, "SparQ and SparF: components");
  eval_command->add_option("--k", eval->k, "SparQ, SparF, infinigen, leoam, fp16, int8, int4: tokens attended to");
  eval_command->add_option("--local", eval->local,
                           "SparQ and SparF: newest tokens always kept (inside k; default k/4)");
  eval_command->add_option("--heavy", eval->heavy, "h2o: heavy hitters kept");
  eval_command->add_option("--recent", eval->recent, "h2o: newest tokens kept");
  eval_command->add_option("--window", eval->window,
                           "local, streamingllm: newest tokens kept; with --predictor: last tokens whose predicted "
                           "neurons take part (default 1)");
  eval_command->add_option("--sinks", eval->sinks, "local, streamingllm: first tokens kept");
  eval_command->add_option("--prefill", eval->prefill, "Tokens of a window that are prefilled densely")
      ->capture_default_str();
  eval_command->add_option("--decode", eval->decode, "Tokens of a window that are then fed one by one")
      ->capture_default_str();
  eval_command->add_option("--windows", eval->windows, "Windows from the start of the text (default: as many as fit)");
  eval_command
      ->add_option("--distance", eval->distances,
                   "Distances of the planted fact (default: 1/4, 1/2 and 7/8 of the prefill)")
      ->delimiter(',');
  eval_command->add_flag("--no-recall", eval->no_recall, "Leave the recall task out");
  eval_command->add_option("--attention", eval->attention, "Where decoding attention runs")
      ->check(CLI::IsMember({"host", "drive"}));
  eval_command->add_option("--backend", eval->backend, "Where the model runs, and host attention with it")
      ->check(CLI::IsMember({"cpu", "cuda", "cuda-bf16"}));
  eval_command->add_option("--scenario", eval->scenario, "Scenario whose platform is used (default: built in)");
  eval_command->add_option("--set", eval->overrides, "Override a key of the scenario: a.b=v")->allow_extra_args(false);
  eval_command->add_option("--seed", eval->seed, "Seed of the planted facts")->check(kWholeNumber);
  add_recording_options(*eval_command, *eval);
  eval_command->add_option("--predictor", eval->predictor,
                           "Run feed-forward blocks with the neurons that this file, or 'oracle', predicts");
  eval_command->add_option("--threshold", eval->thresholds, "Scores above it are predicted to fire (default: 0.5)")
      ->delimiter(',');
  eval_command
      ->add_option(
          "--rank", eval->ranks,
          "Components of the predictor that are used, of all layers (64) or one per layer (16:32:64) (default: all)")
      ->delimiter(',');
  eval_command
      ->add_option("--weight-bits", eval->weight_bits,
                   "Bits per element of the feed-forward networks, as system.weight_bits (with --predictor)")
      ->check(CLI::IsMember({16, 8, 4}));
  eval_command->add_option("--weight-group", eval->weight_group, "Elements that share a scale (default: 64)");
  eval_command
      ->add_option("--record-neurons", eval->record_neurons,
                   "Write the predicted neurons for timing runs, and their locality (default: the oracle's)")
      ->check(kNamed);
  eval_command->add_option("--fatrelu", eval->fatrelu,
                           "Gated networks: silu(gate) below this threshold is zero (default: SiLU)");
  eval_command->add_option("--out", eval->out, "Directory for result.json, eval.csv and eval.html")->check(kNamed);
  add_format(*eval_command, eval->format);
  eval_command->add_flag("-q,--quiet", eval->quiet, "No progress and no notes on stderr");
  eval_command->callback([eval, &status] { status = app::eval(*eval); });
}

void add_pools(CLI::App& cli, int& status) {
  const auto pools = std::make_shared<app::PoolsArguments>();
  auto* command = cli.add_subcommand(
      "pools", "Replay recorded important tokens (csdsim eval --record) through pools in host memory and the drive");
  command->add_option("recording", pools->recordings, "Recordings")->required();
  command->add_option("--policy", pools->policies, "naive, hit-table")->delimiter(',')->capture_default_str();
  command->add_option("--hot", pools->hot, "Share of the context in host memory")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--pinned", pools->pinned, "Share of the newest tokens that stay in host memory")
      ->delimiter(',')
      ->capture_default_str();
  command->add_option("--kept-hot", pools->kept_hot, "hit-table: share that is in host memory for having the most hits")
      ->delimiter(',')
      ->capture_default_str();
  command->add_flag("--locality", pools->locality,
                    "Show how local the recorded tokens are, and those of a locality model fitted to them");
  add_format(*command, pools->format);
  command->callback([pools, &status] { status = app::pools(*pools); });
}

void add_hit_rates(CLI::App& cli, int& status) {
  const auto rates = std::make_shared<app::HitRatesArguments>();
  auto* command = cli.add_subcommand(
      "hit-rates", "Show which share of the prompts of a trace a cache of KV blocks has, over its capacity");
  command->add_option("trace", rates->traces, "Traces of requests (docs/hit_rates.md)")->required();
  command
      ->add_option("--eviction", rates->evictions,
                   "Eviction policies (csdsim list evictions) or shared libraries, with settings: NAME:setting=value")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--admission", rates->admissions,
                   "Which blocks are stored (csdsim list admissions), with settings: nth_sighting:n=3")
      ->delimiter(',')
      ->capture_default_str();
  command
      ->add_option("--capacity", rates->capacities,
                   "Capacities in blocks, or unlimited (default: powers of two up to the whole trace, and unlimited)")
      ->delimiter(',');
  command
      ->add_option("--block-tokens", rates->block_tokens,
                   "Tokens per block of the cache: multiples of the trace's (default: the trace's)")
      ->delimiter(',')
      ->check(kWholeNumber);
  command->add_option("--trace-format", rates->trace_format, "Format of the traces (default: by their content)");
  command
      ->add_option("--trace-block-tokens", rates->trace_block_tokens,
                   "Tokens per block of traces that do not state it (default: of the format, mooncake: 512)")
      ->check(kWholeNumber);
  command->add_option("--tokenizer", rates->tokenizer, "Checkpoint directory whose tokenizer makes tokens of texts");
  command->add_option("--plot", rates->plot, "Also draw the curves, with matplotlib: FILE.png, .svg or .pdf")
      ->check(kNamed);
  add_format(*command, rates->format);
  command->add_flag("-q,--quiet", rates->quiet, "No progress and no notes on stderr");
  command->footer(
      "Examples:\n"
      "  csdsim hit-rates trace.jsonl\n"
      "  csdsim hit-rates trace.jsonl --eviction lru,arc,s3fifo --capacity 1000,5000,unlimited --format json\n"
      "  csdsim hit-rates trace.jsonl --admission always,nth_sighting --block-tokens 512,1024 --plot curve.png\n"
      "  csdsim hit-rates trace.jsonl --eviction ./own_eviction.so:most_uses=3");
  command->callback([rates, &status] { status = app::hit_rates(*rates); });
}

void add_test_policy(CLI::App& cli, int& status) {
  const auto policy = std::make_shared<app::TestPolicyArguments>();
  auto* policy_command = cli.add_subcommand(
      "test-policy",
      "Test whether a mapping policy of the KV cache is correct (exit 1: it is not), and measure its cost");
  policy_command->add_option("policy", policy->policy, "Name (csdsim list mappings), or a shared library")->required();
  policy_command->add_option("--setting", policy->settings, "A setting of the policy: name=value (repeatable)")
      ->allow_extra_args(false);
  policy_command->add_option("--cases", policy->cases, "Random cases of the conformance suite")
      ->check(CLI::Range(1U, 1'000'000U))
      ->capture_default_str();
  policy_command->add_option("--limit", policy->limit_s, "Seconds of processor time after which the test fails")
      ->check(CLI::Range(1U, 1'000'000U))
      ->capture_default_str();
  policy_command->add_option("--seed", policy->seed, "Seed of the cases")->check(kWholeNumber)->capture_default_str();
  policy_command->add_option("--scenario", policy->scenario, "Scenario of workload ftl_policies to measure on");
  policy_command->add_option("--out", policy->out, "Directory for result.json")->check(kNamed);
  add_format(*policy_command, policy->format, app::kDocumentFormats);
  policy_command->callback([policy, &status] { status = app::test_policy(*policy); });
}

void add_test_power(CLI::App& cli, int& status) {
  const auto power = std::make_shared<app::TestPowerArguments>();
  auto* command = cli.add_subcommand(
      "test-power", "Test what a drive loses when the power fails at any operation (exit 1: more than it may)");
  command->add_option("--cuts", power->cuts, "Power losses in random histories, at least")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000}))
      ->capture_default_str();
  command->add_option("--commands", power->commands, "Commands of the histories of which every cut is tried; 0: none")
      ->check(CLI::Range(0U, 4U))
      ->capture_default_str();
  command->add_option("--seed", power->seed, "Seed of the random histories")
      ->check(kWholeNumber)
      ->capture_default_str();
  command
      ->add_option("--units-per-program", power->units_per_program,
                   "Mapping units of a word line (default: 1, 3, 4 and 12)")
      ->check(CLI::Range(1U, 64U));
  command->add_option("--protection", power->protection, "power_loss.protection of the drives (default: both)")
      ->check(CLI::IsMember({"none", "capacitors"}));
  command
      ->add_option("--namespace", power->of,
                   "What is tested: block, kv, or both; the two options above are of block, and leave kv out of both")
      ->check(CLI::IsMember({"block", "kv", "both"}))
      ->capture_default_str();
  command->callback([power, &status] {
    if (power->of == "kv" && (power->units_per_program || power->protection))
      throw UserError("--units-per-program and --protection are of the block namespace: leave out --namespace kv");
    status = app::test_power(*power);
  });
}

void add_profile_gpu(CLI::App& cli, int& status) {
  const auto profile =
      std::make_shared<app::ProfileGpuArguments>(app::ProfileGpuArguments{.name = {}, .out = "gpu-preset.yaml"});
  auto* profile_command = cli.add_subcommand(
      "profile-gpu",
      "Measure operators and link of this machine's GPU, or derive them from a scenario's model; write a preset for "
      "modelled runs on any machine");
  profile_command->add_option("--name", profile->name, "Name of the preset (default: from the GPU's name)");
  profile_command->add_option("--out", profile->out, "File to write")->capture_default_str()->check(kNamed);
  profile_command->add_option("--scenario", profile->scenario,
                              "Derive from the GPU that this scenario models, instead of this machine's");
  profile_command->add_option("--set", profile->overrides, "With --scenario: path=value");
  profile_command->callback([profile, &status] { status = app::profile_gpu(*profile); });
}

void add_check(CLI::App& cli, int& status) {
  const auto checked = std::make_shared<std::vector<std::filesystem::path>>();
  const auto overrides = std::make_shared<std::vector<std::string>>();
  auto* check_command = cli.add_subcommand("check", "Validate scenarios without running them");
  check_command->add_option("scenario", *checked, "Scenario files")->required();
  check_command->add_option("--set", *overrides, "Override a key: a.b=v")->allow_extra_args(false);
  check_command->callback([checked, overrides, &status] { status = app::check(*checked, *overrides); });
}

/// Adds list and describe, which take the same options.
void add_list_and_describe(CLI::App& cli, int& status) {
  struct Arguments {
    std::string kind;
    std::string name;
    std::vector<std::filesystem::path> plugins;
    app::Format format = app::Format::table;
    bool markdown = false;
    bool schema = false;
  };
  const auto a = std::make_shared<Arguments>();
  const auto add_plugins = [a](CLI::App* command) {
    command->add_option("--plugin", a->plugins, "Shared library that adds kinds (repeatable)")->allow_extra_args(false);
  };
  auto* list_command = cli.add_subcommand("list", "List what exists: presets, systems, mappings, papers, ...");
  list_command->add_option("kind", a->kind, "What to list: presets, devices, gpus, systems, ... (default: all)");
  add_plugins(list_command);
  add_format(*list_command, a->format, app::kDocumentFormats);
  list_command->callback([a, &status] { status = app::list(a->kind, a->format, a->plugins); });
  auto* describe_command = cli.add_subcommand("describe", "Parameters with unit, range, default and source");
  add_plugins(describe_command);
  describe_command->add_flag("--markdown", a->markdown, "Every parameter, in the form of docs/parameters.md");
  describe_command->add_flag("--schema", a->schema, "A JSON Schema of scenario files, for editors")
      ->excludes(describe_command->get_option("--markdown"));
  add_format(*describe_command, a->format, app::kDocumentFormats);
  describe_command->add_option("kind", a->kind,
                               "metrics, or a part of the scenario: flash, engine, system, ... (default: all)");
  describe_command->add_option("name", a->name, "A member of that part: a kind, a preset or a parameter");
  describe_command->callback([a, &status] {
    using app::Description;
    const Description form = a->schema                        ? Description::schema
                             : a->markdown                    ? Description::markdown
                             : a->format == app::Format::json ? Description::json
                                                              : Description::text;
    status = app::describe(a->kind, a->name, form, a->plugins);
  });
}

void add_completion(CLI::App& cli, int& status) {
  const auto form = std::make_shared<std::string>();
  auto* command = cli.add_subcommand("completion", "Print a completion script for a shell, or the manual page");
  command->add_option("form", *form, "bash, zsh, fish or man")
      ->required()
      ->check(CLI::IsMember(app::completion_forms()));
  command->callback([form, &cli, &status] {
    app::print_result(*form == "man"    ? app::manual_page(cli)
                      : *form == "fish" ? app::fish_completion(cli)
                      : *form == "zsh"  ? app::zsh_completion(cli)
                                        : app::bash_completion(cli));
    status = 0;
  });
}

/// Each adds a command, or several; the one that is called most comes first.
constexpr void (*kCommands[])(CLI::App&, int&) = {
    add_run,         add_exploration, add_roofline,          add_datasheet, add_certify,     add_generate,
    add_eval,        add_pools,       app::add_make_trace,   add_hit_rates, add_test_policy, add_test_power,
    add_profile_gpu, add_check,       add_list_and_describe, add_completion};

int parse_and_run(int argc, char** argv) {
  CLI::App cli{
      "csdsim simulates decoding attention, or the scoring of tokens, inside the drive:\n"
      "a SystemC model of a computational SSD with a real host runtime."};
  cli.name("csdsim");
  cli.set_version_flag("--version", app::version_line());
  cli.require_subcommand(1);
  cli.failure_message(
      [&](const CLI::App* app, const CLI::Error& error) { return app::command_line_error(*app, error, argc, argv); });
  cli.footer("Start with: csdsim run scenarios/quickstart.yaml");

  int status = 0;
  const std::string_view called = argc > 1 ? argv[1] : "";
  const auto is_called = [&](const CLI::App* command) { return command->get_name() == called; };
  for (const auto add : kCommands) {
    add(cli, status);
    // Only help, messages and completion need commands that are not called. The options of all of them take longer than
    // reading a scenario.
    if (!cli.get_subcommands(is_called).empty()) break;
  }

  try {
    cli.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return cli.exit(error) == 0 ? 0 : 2;
  }
  return status;
}

}  // namespace

int main(int argc, char* argv[]) {
  // Keep SystemC from printing its copyright banner at every start.
  setenv("SYSTEMC_DISABLE_COPYRIGHT_MESSAGE", "1", 1);
  return sc_core::sc_elab_and_sim(argc, argv);
}

int sc_main(int argc, char* argv[]) {
  // The SystemC kernel prints nothing itself: its reports become exceptions or messages of csdsim.
  sc_core::sc_report_handler::set_actions(sc_core::SC_INFO, sc_core::SC_DO_NOTHING);
  try {
    const int status = parse_and_run(argc, argv);
    // What was printed may still be in a buffer: a full disk and a closed pipe show here.
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    throw UserError("standard output: cannot be written");
  } catch (const UserError& error) {
    app::print_message(fmt::format("{}\n", error.what()));
    return 2;
  } catch (const std::bad_alloc&) {
    app::print_message("csdsim: out of memory (ulimit -v limits it)\n");
    return 1;
  } catch (const std::exception& error) {
    app::print_message(fmt::format("csdsim: internal error: {}\n", error.what()));
    return 1;
  }
}
