#include "experiment/fio/fio_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/quantity.h"
#include "base/text.h"
#include "experiment/fio/fio_options.h"

namespace csdsim::experiment {
namespace {

using nlohmann::ordered_json;

/// Options of Flexible Data Placement, which FioOptions does not read.
const std::vector<std::string> kPlacementOptions{"fdp", "dataplacement", "plids"};

/// Second names of options that are read or named in notes.
const std::map<std::string, std::string, std::less<>> kSecondNames{
    {"blocksize", "bs"},     {"readwrite", "rw"},    {"wait_for_previous", "stonewall"},
    {"io_limit", "io_size"}, {"timeout", "runtime"}, {"fdp_pli", "plids"}};

/// Options that say how much of a drive a job uses and for how long. A simulation takes both from the workload.
constexpr const char* kOptionsOfLength[]{"runtime",   "size",       "filesize", "io_size",    "offset",
                                         "ramp_time", "startdelay", "loops",    "number_ios", "steadystate"};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

/// The jobs, each with the options of the global sections before it. As in fio (init.c, parse.c), a section whose name
/// begins with "global" is one of these, and ';' or '#' ends a line.
std::vector<FioOptions> jobs_of(std::string_view text, const std::string& file) {
  std::vector<FioOptions> jobs;
  ordered_json globals = ordered_json::object(), own = ordered_json::object();
  FioOptions::Lines lines_of_globals, lines;
  std::string section;
  const auto end_section = [&] {
    if (section.starts_with("global")) {
      globals.update(own);
      for (const auto& [key, line] : lines) lines_of_globals.insert_or_assign(key, line);
    } else if (!section.empty()) {
      lines.insert(lines_of_globals.begin(), lines_of_globals.end());
      jobs.emplace_back(file, section, globals, own, lines);
    }
    own = ordered_json::object();
    lines.clear();
  };
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::string_view whole = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), whole.size() + 1));
    const std::string_view said = trimmed(whole.substr(0, whole.find_first_of(";#")));
    const auto fail = [&](const std::string& what) {
      throw UserError(fmt::format("{}:{}: error: {}", file, line, what));
    };
    if (said.empty()) continue;
    if (said.front() == '[') {
      if (said.back() != ']' || said.size() < 3) fail("expected a section such as [job]");
      end_section();
      section = said.substr(1, said.size() - 2);
      lines[""] = line;
      continue;
    }
    const std::size_t equals = said.find('=');
    std::string key(trimmed(said.substr(0, equals)));
    if (key.starts_with("include ")) fail("include is not read; put the options into this file");
    if (section.empty()) fail("an option before the first section; write [global] or [job] above it");
    if (said.find("${") != said.npos) fail("variables of the environment are not read; write the value");
    if (const auto first = kSecondNames.find(key); first != kSecondNames.end()) key = first->second;
    own[key] = equals == said.npos ? "1" : std::string(trimmed(said.substr(equals + 1)));
    lines[key] = line;
  }
  end_section();
  if (jobs.empty()) throw UserError(fmt::format("{}: has no job; a job begins with its name, as [job]", file));
  return jobs;
}

/// The placement identifier of the writes of a job; nothing where it gives none.
std::optional<std::uint32_t> placement_of_job(const FioOptions& job) {
  const std::string scheme = job.option("dataplacement").value_or("none");
  if (scheme != "none" && scheme != "fdp")
    job.fail(fmt::format("dataplacement is '{}', expected fdp", printable(scheme)), "dataplacement");
  const std::optional<std::string> identifiers = job.option("plids");
  if (!job.flag("fdp") && scheme == "none") {
    if (identifiers) job.fail("plids has no effect without fdp=1", "plids");
    return std::nullopt;
  }
  const char* const given = job.option("fdp") ? "fdp" : "dataplacement";
  if (!identifiers)
    job.fail(fmt::format("{} without plids takes all placement identifiers in turn, which is not simulated; give "
                         "plids=NUMBER",
                         given),
             given);
  std::uint16_t identifier = 0;
  const auto [end, code] = std::from_chars(identifiers->data(), identifiers->data() + identifiers->size(), identifier);
  if (code != std::errc() || end != identifiers->data() + identifiers->size())
    job.fail(
        fmt::format("plids is '{}', expected one placement identifier; make a job for each", printable(*identifiers)),
        "plids");
  return identifier;
}

/// What a job says that a simulation takes from elsewhere.
std::vector<std::string> notes_of(const FioOptions& job) {
  std::vector<std::string> notes, unused;
  for (const char* const key : kOptionsOfLength)
    if (job.option(key)) unused.emplace_back(key);
  if (!unused.empty())
    notes.push_back(
        fmt::format("not used: {}. workload.requests or workload.duration is what is simulated, workload.working_set "
                    "the share of the drive that requests go to",
                    join(unused)));
  const std::string engine = job.option("ioengine").value_or("psync");
  if (!job.flag("direct") && engine != "io_uring_cmd")
    notes.emplace_back(
        "without direct=1 fio goes through the page cache of the host, which is not simulated: all requests go to the "
        "drive");
  if (job.count("iodepth", 1) > job.depth())
    notes.push_back(fmt::format("ioengine {} has one request in flight whatever iodepth says", engine));
  return notes;
}

bool sequential(const FioOptions& job) { return job.pattern() >= Pattern::sequential_read; }

/// One job with its clones.
ordered_json workload_of_job(const FioOptions& job) {
  const std::uint32_t clones = job.count("numjobs", 1);
  ordered_json work{{"kind", "block_io"},
                    {"pattern", name_of(job.pattern())},
                    {"request_size", format_quantity(job.block_size())},
                    {"queue_depth", std::uint64_t{job.depth()} * clones}};
  if (clones > 1 && sequential(job)) work["streams"] = clones;
  if (job.mixed()) work["read_fraction"] = fmt::format("{} %", job.read_percent());
  return work;
}

/// Jobs side by side.
ordered_json workload_of_jobs(const std::vector<FioOptions>& jobs,
                              const std::vector<std::optional<std::uint32_t>>& placements) {
  const bool mixed = std::ranges::any_of(jobs, &FioOptions::mixed);
  const bool placed = std::ranges::any_of(placements, [](const auto& p) { return p.has_value(); });
  ordered_json flows;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const FioOptions& job = jobs[i];
    const Pattern pattern = job.pattern();
    const std::uint32_t clones = job.count("numjobs", 1);
    if (clones > 1 && sequential(job))
      job.fail("clones of a sequential job beside other jobs are not simulated; make a job of each", "numjobs");
    flows["patterns"].push_back(name_of(pattern));
    flows["request_sizes"].push_back(format_quantity(job.block_size()));
    flows["queue_depths"].push_back(std::uint64_t{job.depth()} * clones);
    const bool reads = pattern == Pattern::random_read || pattern == Pattern::sequential_read;
    if (mixed)
      flows["read_fractions"].push_back(fmt::format("{} %", job.mixed() ? job.read_percent() : reads ? 100 : 0));
    // A write without an identifier uses placement handle 0.
    if (placed) flows["placements"].push_back(placements[i].value_or(0));
  }
  return {{"kind", "block_io"}, {"flows", std::move(flows)}};
}

/// Refuses what the jobs of a file cannot be beside each other.
void check_side_by_side(const FioOptions& job, const FioOptions& first) {
  const char* const waits = job.flag("stonewall") ? "stonewall" : job.option("wait_for") ? "wait_for" : nullptr;
  if (waits != nullptr)
    job.fail(
        fmt::format("waits for a job before it ({}), and the jobs of a file are simulated side by side; put it into "
                    "a file of its own",
                    waits),
        waits);
  const std::string drive = job.option("filename").value_or(""), other = first.option("filename").value_or("");
  if (drive != other && drive.starts_with("/dev/") && other.starts_with("/dev/"))
    job.fail(fmt::format("filename is '{}', that of job '{}' is '{}'; one drive is simulated", printable(drive),
                         printable(first.name()), printable(other)),
             "filename");
}

std::string name_of_scenario(const std::string& file) {
  std::string name = std::filesystem::path(file).stem().string();
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  return name.empty() ? "fio" : name;
}

}  // namespace

FioScenario scenario_of_fio_jobs(std::string_view text, const std::string& file) {
  const std::vector<FioOptions> jobs = jobs_of(text, file);
  FioScenario made;
  const auto note = [&](const std::string& what) {
    std::string line = fmt::format("{}: note: {}", file, what);
    if (std::ranges::find(made.notes, line) == made.notes.end()) made.notes.push_back(std::move(line));
  };
  if (jobs.size() > FlowsConfig::kMost)
    jobs[FlowsConfig::kMost].fail(
        fmt::format("is one of {} jobs; at most {} are simulated side by side", jobs.size(), FlowsConfig::kMost));
  std::vector<std::optional<std::uint32_t>> placements;
  for (const FioOptions& job : jobs) {
    job.refuse_what_is_not_simulated(kPlacementOptions);
    if (&job != &jobs.front()) check_side_by_side(job, jobs.front());
    placements.push_back(placement_of_job(job));
    for (const std::string& what : notes_of(job)) note(what);
  }
  const bool one = jobs.size() == 1;
  if (one && placements.front())
    jobs.front().fail("a single job writes all data by one placement identifier; leave fdp out, or add a job", "plids");
  if (!one) note("each job has its own part of the working set; workload.flows.shares says how large it is");
  const ordered_json scenario{{"csdsim", 1},
                              {"name", name_of_scenario(file)},
                              {"workload", one ? workload_of_job(jobs.front()) : workload_of_jobs(jobs, placements)}};
  made.text = scenario.dump(1);
  return made;
}

}  // namespace csdsim::experiment
