"""What is generated from the descriptions of parameters and metrics. Usage: test_described.py CSDSIM SOURCE_DIR"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import yaml

CSDSIM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
del sys.argv[1:]
GENERATION = """csdsim: 1
model: {layers: 2, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 2048, vocab_size: 1000, max_positions: 4096}
platform: {gpu: {preset: a6000}, device: {preset: instcsd-zynq7045}}
system: {kind: instinfer-dense}
workload: {kind: generation, batch: 3, input_tokens: 64, output_tokens: 8}
simulation: {sampling: off}
"""


def csdsim(*arguments):
    run = subprocess.run([CSDSIM, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=SOURCE)
    assert run.returncode == 0, run.stderr
    return run.stdout


def scenarios():
    files = [*SOURCE.glob("scenarios/**/*.yaml"), *SOURCE.glob("examples/**/scenario.yaml")]
    return sorted(f for f in files if "csdsim:" in f.read_text() and not f.name.endswith(".reproduction.yaml"))


class Schema(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.text = csdsim("describe", "--schema")
        cls.validator = jsonschema.Draft7Validator(json.loads(cls.text))

    def mistakes(self, text):
        document = yaml.safe_load(text)
        return self.mistakes_of(document)

    def mistakes_of(self, document):
        return [f"{'.'.join(map(str, e.absolute_path))}: {e.message[:100]}" for e in self.validator.iter_errors(document)]

    def test_the_stored_schema_is_that_of_this_build(self):
        jsonschema.Draft7Validator.check_schema(json.loads(self.text))
        self.assertEqual((SOURCE / "docs/scenario.schema.json").read_text(), self.text,
                         "run: csdsim describe --schema > docs/scenario.schema.json")

    def test_parameters_and_metrics_as_json(self):
        every = json.loads(csdsim("describe", "--format", "json"))
        self.assertEqual(len({(row["path"], *row["kinds"]) for row in every}), len(every))
        flash = json.loads(csdsim("describe", "flash", "--format", "json"))
        self.assertTrue(all(row["path"].startswith("platform.device.flash.") for row in flash))
        channels = [row for row in flash if row["path"] == "platform.device.flash.channels"]
        self.assertEqual([(row["type"], row["range"], row["source"]) for row in channels], [("count", "1 to 128", channels[0]["source"])])
        self.assertLess(len(flash), len(every))
        [metric] = json.loads(csdsim("describe", "metrics", "tokens_per_s", "--format", "json"))
        self.assertEqual((metric["unit"], "serving" in metric["runs"], "generation" in metric["runs"]), ("tokens/s", True, True))
        run = subprocess.run([CSDSIM, "describe", "flesh", "--format", "json"], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.returncode, 2)
        self.assertIn("flash", run.stderr)
        # The word of a data sheet is no key, but the description of a key contains it.
        run = subprocess.run([CSDSIM, "describe", "tbw"], capture_output=True, text=True, timeout=60)
        self.assertEqual((run.returncode, run.stderr),
                         (2, "nothing to describe under 'tbw' (did you mean platform.device.flash.rated_cycles?)\n"))

    def test_a_copied_scenario(self):
        with tempfile.TemporaryDirectory() as name:
            copy = pathlib.Path(name) / "copy.yaml"
            copy.write_text((SOURCE / "scenarios/block_read.yaml").read_text())
            run = subprocess.run([CSDSIM, "check", copy], capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("copy.yaml:1: note: editors find no schema at", run.stderr)
            text = "$schema: scenario.schema.json\n" + "".join(copy.read_text().splitlines(keepends=True)[1:])
            copy.write_text(text)
            run = subprocess.run([CSDSIM, "check", copy], capture_output=True, text=True, timeout=60)
            self.assertEqual((run.returncode, run.stderr), (0, ""))
            self.assertEqual(self.mistakes(text), [])
            self.assertEqual(len(self.mistakes(text.replace("scenario.schema.json", "[a]"))), 1)
        run = subprocess.run([CSDSIM, "check", SOURCE / "scenarios/block_read.yaml"], capture_output=True, text=True, timeout=60)
        self.assertEqual(run.stderr, "")

    def test_every_scenario_is_valid_and_names_the_schema(self):
        self.assertGreater(len(scenarios()), 20)
        for file in scenarios():
            if file.is_relative_to(SOURCE / "examples"):
                continue  # kinds of plugins
            text = file.read_text()
            self.assertEqual(self.mistakes(text), [], file)
            first = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
            self.assertTrue(first, f"{file}: the first line has to name the schema")
            self.assertTrue((file.parent / first[1]).samefile(SOURCE / "docs/scenario.schema.json"), file)

    def test_an_effective_configuration_is_valid(self):
        with tempfile.TemporaryDirectory() as out:
            (pathlib.Path(out) / "s.yaml").write_text(GENERATION)
            csdsim("run", f"{out}/s.yaml", "--out", out, "-q")
            config = json.loads((pathlib.Path(out) / "result.json").read_text())["scenario"]
        self.assertEqual(self.mistakes_of(config), [])

    def test_mistakes_are_found(self):
        self.assertEqual(self.mistakes(GENERATION), [])
        for old, new, says in (("batch: 3", "bach: 3", "'bach' was unexpected"), ("batch: 3", "batch: 0", "minimum"),
                               ("batch: 3", "batch: three", "batch"), ("instinfer-dense", "instinfer-dens", "system.kind"),
                               ("instinfer-dense}", "instinfer-dense, ratio: 1/8}", "False schema does not allow '1/8'"), ("csdsim: 1", "csdsim: 2", "csdsim"),
                               ("csdsim: 1\n", "", "'csdsim' is a required property"),
                               ("simulation:", "sweep: {axes: {workload.bach: [1]}}\nsimulation:", "workload.bach"),
                               ("simulation:", "sweep: {axis: {workload.batch: [1]}}\nsimulation:", "axis")):
            found = self.mistakes(GENERATION.replace(old, new))
            self.assertTrue(any(says in mistake for mistake in found), f"{new}: {found}")


    # Path in GENERATION and a value that csdsim refuses.
    MUTATIONS = {
        "csdsim": [2, "one"], "seed": [-1, "many"], "name": [[]],
        "model.preset": ["llama-9-8b"], "model.layers": [0, "8 GiB", 1.5], "model.architecture": ["gpt"], "model.embeddings": ["shared"],
        "platform.gpu.preset": ["a7000"], "platform.gpu.memory": ["24", "24 G", "24 GHz", "24 gib"],
        "platform.gpu.fp16_rate": ["155 TFLOP", "155", 155], "platform.gpu.memory_bandwidth": ["768 GB", "768 gbps"],
        "platform.gpu.link.generation": [7, "four"], "platform.gpu.link.lanes": ["x16"], "platform.host.preset": ["xeon"],
        "platform.host.memory": ["64 GB/s"], "platform.host.cores": ["many"],
        "platform.device.preset": ["instcsd"], "platform.device.fidelity": ["exact"],
        "platform.device.flash.page_size": ["16K", "16 K", "16384"], "platform.device.flash.read_latency": ["1 uss", "50", "50 u"],
        "platform.device.flash.program_latency": ["0x10 us"], "platform.device.flash.interface": ["onfi-99"],
        "platform.device.flash.channel_bandwidth": ["1.4 GB", "1.4 GB/h"], "platform.device.flash.plane_mode": ["together"],
        "platform.device.flash.class_priority": [["hosts"]], "platform.device.flash.codewords": ["yes", {"sise": "4 KiB"}],
        "platform.device.engine.clock": ["285 MHZ"], "platform.device.nvme.queues": [0], "platform.device.energy.mac": ["5 pF"],
        "platform.device.ftl.mapping.kind": ["pages"], "simulation.sampling": ["none", {"layers": 1}], "simulation.data": ["real"],
    }

    def test_at_least_50_mutations_are_refused_by_schema_and_program(self):
        refused = 0
        with tempfile.TemporaryDirectory() as out:
            for path, values in self.MUTATIONS.items():
                for value in values:
                    document = yaml.safe_load(GENERATION)
                    document["simulation"] = {}
                    *maps, key = path.split(".")
                    at = document
                    for name in maps:
                        at = at.setdefault(name, {})
                    at[key] = value
                    with self.subTest(path=path, value=value):
                        self.assertNotEqual(self.mistakes_of(document), [])
                        file = pathlib.Path(out) / "s.yaml"
                        file.write_text(json.dumps(document))
                        run = subprocess.run([CSDSIM, "check", file], capture_output=True, text=True, timeout=60)
                        self.assertEqual(run.returncode, 2, run.stdout)
                        refused += 1
        self.assertGreaterEqual(refused, 50)

    def test_files_of_presets_bring_names_that_the_schema_does_not_know(self):
        text = GENERATION.replace("a6000", "my-gpu")
        self.assertNotEqual(self.mistakes(text), [])
        self.assertEqual(self.mistakes(text + "presets: my-gpu.yaml\n"), [])

    def test_a_size_without_its_unit_says_which_it_may_be(self):
        run = subprocess.run([CSDSIM, "check", "scenarios/block_read.yaml", "--set", "platform.device.flash.page_size=16K"],
                             capture_output=True, text=True, timeout=60, cwd=SOURCE)
        self.assertIn("'16K': a size needs a unit: 16 KiB?", run.stderr)


class Metrics(unittest.TestCase):
    PATH = re.compile(r"[A-Za-z_][\w.]*")

    def value(self, document, name):
        if name in document["metrics"]:
            return document["metrics"][name]
        for key in name.split("."):
            document = document[key]
        return document

    def documents(self):
        with tempfile.TemporaryDirectory() as out:
            path = pathlib.Path(out) / "s.yaml"
            for text, name, more in (
                    (GENERATION, "", ()), (GENERATION, "", ("--set", "system.kind=hillinfer", "--set", "platform.device.preset=smartssd")),
                    ("", "scenarios/block_read.yaml", ("--set", "workload.requests=500")),
                    ("", "scenarios/serving.yaml", ("--set", "workload.first_requests=6")),
                    ("", "tests/ftl_conformance/small_study.yaml", ())):
                path.write_text(text)
                csdsim("run", name or path, "--out", out, "-q", *more)
                yield json.loads((pathlib.Path(out) / "result.json").read_text())

    def test_the_page_is_that_of_this_build(self):
        self.assertEqual((SOURCE / "docs/metrics.md").read_text(), csdsim("describe", "metrics", "--markdown"),
                         "run: csdsim describe metrics --markdown > docs/metrics.md")

    def test_runs_have_the_metrics_that_are_defined_with_the_values_of_their_formulas(self):
        rows = {}
        for line in (SOURCE / "docs/metrics.md").read_text().splitlines():
            if line.startswith("| `"):
                cells = [cell.strip(" `") for cell in line.strip("|").split(" | ")]
                rows[cells[0]] = cells[-1] if len(cells) == 4 else ""
        checked = set()
        for document in self.documents():
            kind = document["scenario"]["workload"]["kind"]
            arrivals = "requests" in document["scenario"]["workload"] and "request_ttft_mean_s" in document["metrics"]
            for name in [*document["metrics"], *document["wall"]]:
                known = re.sub(r"^(write|trim|flush)_latency|read_latency_(p.*|max)_ns", "read_latency_mean_ns", name)
                self.assertTrue(name in rows or known.startswith("read_latency_mean_ns"), f"{kind}: {name} is not in docs/metrics.md")
                formula = rows.get(name, "")
                if not formula or (arrivals and "breakdown" in formula) or (arrivals and "scenario" in formula):
                    continue
                formula = self.PATH.sub(lambda m: repr(float(self.value(document, m[0]))), formula)
                stated = document["metrics"].get(name, document["wall"].get(name))
                self.assertAlmostEqual(eval(formula) / stated if stated else 1, 1, 6, f"{kind}: {name}")
                checked.add(name)
        self.assertGreaterEqual(len(checked), 8, checked)


class Completion(unittest.TestCase):
    """The script for bash, asked as bash asks it."""

    @classmethod
    def setUpClass(cls):
        cls.script = csdsim("completion", "bash")

    def complete(self, *words):
        line = " ".join(words)
        command = f"""{self.script}
COMP_WORDS=({line}{" ''" if line.endswith(" ") else ""}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _csdsim; printf '%s\\n' "${{COMPREPLY[@]}}" """
        run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60,
                             env={"PATH": f"{pathlib.Path(CSDSIM).parent}:/usr/bin:/bin"})
        self.assertEqual(run.stderr, "")
        return run.stdout.split()

    def test_commands_options_and_values(self):
        self.assertEqual(self.complete("csdsim", "sw"), ["sweep"])
        self.assertIn("--resume", self.complete("csdsim", "sweep", "--r"))
        self.assertEqual(self.complete("csdsim", "sweep", "--shar"), ["--shard"])
        self.assertIn("instinfer-dense", self.complete("csdsim", "describe", "system", "instinfer-d"))
        self.assertIn("workload.batch=", self.complete("csdsim", "run", "s.yaml", "--set", "workload.bat"))

    def test_values_presets_and_papers(self):
        # Bash takes PATH=VALUE for three words, zsh for one.
        self.assertEqual(self.complete("csdsim", "run", "s.yaml", "--set", "workload.kind", "=", "blo"), ["block_io"])
        self.assertIn("random_read", self.complete("csdsim", "run", "s.yaml", "--set", "workload.pattern", "="))
        self.assertEqual(self.complete("csdsim", "run", "s.yaml", "--set", "model.preset=llama-3.2"), ["model.preset=llama-3.2-1b"])
        self.assertEqual(self.complete("csdsim", "datasheet", "samsung-9"), ["samsung-980-pro-2tb"])
        self.assertIn("kvpr", self.complete("csdsim", "reproduce", "k"))
        self.assertEqual(self.complete("csdsim", "completion", "f"), ["fish"])
        self.assertEqual(self.complete("csdsim", "hit-rates", "t", "--eviction", "lr"), ["lru"])

    def test_scripts_of_other_shells(self):
        """Both read their script; fish also says what it completes."""
        zsh, fish = csdsim("completion", "zsh"), csdsim("completion", "fish")
        self.assertIn(self.script, zsh)
        self.assertEqual(subprocess.run(["zsh", "-n"], input=zsh, capture_output=True, text=True).stderr, "")
        for words in ("'run sweep", "reproduce' -a 'hillinfer", "workload.kind={block_io,"):
            self.assertIn(words, fish)
        for line, said in (("csdsim sw", "sweep"), ("csdsim run --set workload.kind=blo", "workload.kind=block_io"),
                           ("csdsim reproduce kv", "kvpr")):
            run = subprocess.run(["fish", "--no-config", "-c", f"{fish}\ncomplete -C '{line}'"], capture_output=True, text=True)
            self.assertEqual((run.stderr, run.stdout.split()[:1]), ("", [said]), line)

    def test_the_manual_page_has_every_command_and_option(self):
        page = csdsim("completion", "man")
        for command in re.findall(r"^  (\S+) {2,}", csdsim("--help").split("Subcommands:")[1], re.M):
            self.assertIn(f".SS {command}", page)
            for option in re.findall(r"(--[a-z-]+)", csdsim(command, "--help")):
                self.assertIn(option.replace("-", "\\-"), page, command)


if __name__ == "__main__":
    unittest.main()
