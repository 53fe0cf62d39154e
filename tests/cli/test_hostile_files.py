"""Files of strangers, damaged results and full disks: each ends in a located error. Usage: test_hostile_files.py CSDSIM SOURCE_DIR"""
import json
import os
import pathlib
import pty
import random
import re
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

from sanitized import reserves_address_space

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:]
SCENARIO = """csdsim: 1
name: small
platform:
  device:
    flash: {channels: 2, dies_per_channel: 1, planes_per_die: 1, blocks_per_plane: 64, pages_per_block: 64,
            page_size: 4 KiB, read_latency: 50 us, program_latency: 600 us, erase_latency: 3 ms,
            channel_bandwidth: 1.4 GB/s}
    link: {generation: 3, lanes: 4}
    ftl: {mapping: {kind: page}, over_provisioning: 0.07}
workload: {kind: block_io, pattern: random_read, request_size: 4 KiB, queue_depth: 4, requests: 50, working_set: 0.5}
"""
SWEEP = "sweep: {axes: {workload.queue_depth: [1, 2]}}\n"


class HostileFiles(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def csdsim(self, *arguments, status=0, says="", **how):
        run = subprocess.run([CSDSIM, *map(str, arguments)], capture_output=True, text=True, timeout=120, cwd=self.out, **how)
        self.assertEqual(run.returncode, status, f"{arguments}: {run.stderr}{run.stdout}")
        self.assertIn(says, run.stderr)
        self.assertNotIn("internal error", run.stderr)
        return run

    def scenario(self, text, name="s.yaml"):
        (self.out / name).write_text(text)
        return name

    def sweep(self, folder="o"):
        self.csdsim("sweep", self.scenario(SCENARIO + SWEEP), "--out", folder, "-q")
        return self.out / folder

    def change(self, folder, *statements):
        with sqlite3.connect(folder / "results.sqlite") as database:
            for statement in statements:
                database.execute(statement)
        database.close()

    def store(self, folder, document):
        """Stores a result in place of that of point 0, as csdsim would."""
        with sqlite3.connect(folder / "results.sqlite") as database:
            import zlib
            database.execute("UPDATE runs SET result = ?, crc32 = ? WHERE key = (SELECT key FROM points WHERE point = 0)",
                             (document, zlib.crc32(document.encode())))
        database.close()

    def readers(self, folder):
        return (("compare", folder, folder), ("report", folder), ("merge", folder, "--out", "merged"))

    def test_results_that_are_none(self):
        folder = self.sweep()
        deep = '{"metrics": ' + 100_000 * '{"a": ' + "1" + 100_000 * "}" + "}"
        for document, says in (("{}", "it has no metrics"), (deep, "nested more than 100 deep"), ("[", "is no JSON"),
                               ('{"metrics": []}', "metrics is not a map"),
                               ('{"metrics": {"iops": {}}}', "metrics.iops is not a number"),
                               ('{"metrics": {}, "wall": 3}', "wall is not a map of numbers"),
                               ('{"metrics": {}, "scenario": 3}', "scenario is not a map"),
                               ('{"metrics": {}, "breakdown": {"measured": {"bound_by": "x"}}}', "bound_by is not one of")):
            self.store(folder, document)
            for command in self.readers(folder):
                self.csdsim(*command, status=2, says=says)
            one = self.out / "one"
            one.mkdir(exist_ok=True)
            (one / "result.json").write_text(document)
            for command in (("compare", one, one), ("report", one)):
                self.csdsim(*command, status=2, says=says)

    def test_a_database_with_wrong_rows(self):
        for statements, says in ((["UPDATE axes SET point = 7 WHERE point = 1"], "a row of point 7"),
                                 (["UPDATE axes SET point = -1 WHERE point = 1"], "a row of point -1"),
                                 (["DELETE FROM axes WHERE point = 1"], "have different axes")):
            folder = self.sweep(f"o{len(list(self.out.iterdir()))}")
            self.change(folder, *statements)
            for command in self.readers(folder):
                self.csdsim(*command, status=2, says=says)

    def test_a_database_with_wrong_bytes(self):
        folder, other = self.sweep(), self.out / "damaged"
        whole = (folder / "results.sqlite").read_bytes()
        rng = random.Random(4)
        failures = 0
        for round in range(150):
            shutil.rmtree(other, ignore_errors=True)
            shutil.copytree(folder, other)
            damaged = bytearray(whole)
            if round % 3 == 0:
                damaged = damaged[:rng.randrange(len(damaged))]
            for _ in range(1 + round % 20):
                if damaged:
                    damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            (other / "results.sqlite").write_bytes(damaged)
            run = subprocess.run([CSDSIM, "compare", folder, other], capture_output=True, text=True, timeout=60,
                                 errors="replace")
            self.assertIn(run.returncode, (0, 2), f"round {round}: {run.stderr}")
            failures += run.returncode == 2
        self.assertGreater(failures, 50)

    def test_an_edited_result_is_found_by_its_checksum(self):
        folder = self.sweep()
        self.change(folder, "UPDATE runs SET result = replace(result, '\"iops\":', '\"iops\":1')")
        for command in self.readers(folder):
            self.csdsim(*command, status=2, says="the stored result is damaged; run the sweep again with --resume")
        before = json.loads((folder / "points/queue_depth=1/result.json").read_text())["metrics"]["iops"]
        again = self.csdsim("sweep", "s.yaml", "--out", folder, "--resume", says="the point runs again")
        self.assertNotIn("kept", again.stderr)
        result = json.loads((folder / "points/queue_depth=1/result.json").read_text())
        self.assertEqual(result["metrics"]["iops"], before)
        self.assertEqual(self.csdsim("sweep", "s.yaml", "--out", folder, "--resume").stderr.count("kept"), 2)

    def test_axes_that_a_table_cannot_hold(self):
        self.csdsim("sweep", self.scenario(SCENARIO + "sweep: {axes: {name: [a, b]}}\n"), "--out", "n", status=2,
                    says="sweep.axes: a name changes no result")
        self.assertFalse((self.out / "n").exists())
        trace = "0,host,0,Read,0,4096,0\n"
        names = ["007", "7", "12345678901234567890123"]
        for name in names:
            (self.out / name).write_text(trace)
        text = re.sub("workload:.*", "workload: {kind: trace, format: msr, file: '007', timing: {kind: fast, queue_depth: 1}}", SCENARIO)
        self.csdsim("sweep", self.scenario(text + f"sweep: {{axes: {{workload.file: {json.dumps(names)}}}}}\n"), "--out", "t", "-q")
        lines = [json.loads(line) for line in (self.out / "t/results.jsonl").read_text().splitlines()]
        self.assertEqual([str(line["workload.file"]) for line in lines], names)
        self.assertEqual(lines[0]["workload.file"], "007")

    def test_texts_of_strangers(self):
        folder = self.sweep()
        # A page that a browser reads to its end.
        text = "# Is <!--<script> and </script> a question?\n" + SCENARIO
        self.csdsim("run", self.scenario(text, "q.yaml"), "--out", "q", "-q")
        self.csdsim("report", "q")
        page = (self.out / "q/report.html").read_text()
        data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)
        self.assertIn("<!--<script>", json.loads(data.group(1))["question"])
        self.assertNotIn("<", data.group(1))
        # Control characters are shown, on a terminal and in messages.
        document = json.loads((folder / "points/queue_depth=1/result.json").read_text())
        document["metrics"]["\x1b]0;title\x07\x9b31m"] = 1.0
        other = self.out / "other"
        other.mkdir()
        (other / "result.json").write_text(json.dumps(document))
        document["metrics"]["\x1b]0;title\x07\x9b31m"] = 2.0
        (self.out / "third").mkdir()
        (self.out / "third/result.json").write_text(json.dumps(document))
        controller, terminal = pty.openpty()
        run = subprocess.run([CSDSIM, "compare", other, self.out / "third"], stdout=terminal, stderr=subprocess.PIPE, timeout=60)
        os.close(terminal)
        shown = os.read(controller, 1 << 20).decode()
        os.close(controller)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("\\x1b]0;title\\x07\\x9b31m", shown)
        self.assertFalse([c for c in shown if ord(c) < 32 and c not in "\r\n\t"])
        run = self.csdsim("run", "no\x1b[31m.yaml", status=2)
        self.assertIn("no\\x1b[31m.yaml", run.stderr)
        # A spreadsheet would take a text that begins like this for a formula.
        (other / "result.json").write_text(json.dumps({"metrics": {"=1+cmd": 1.0}}))
        (self.out / "third/result.json").write_text(json.dumps({"metrics": {"=1+cmd": 2.0}}))
        self.assertIn("'=1+cmd,1.0,2.0", self.csdsim("compare", other, "third", "--format", "csv").stdout)

    def test_numbers_that_are_too_large(self):
        model = ("generate", "--model", SOURCE / "tests/data/golden/qwen2", "--prompt", "a", "--attention", "host", "-q",
                 "--max-new-tokens", 1)
        self.csdsim(*model, "--seed", 2**64 - 1)
        for seed in (2**64, "-1", "1x", ""):
            self.csdsim(*model, "--seed", seed, status=2, says="a whole number from 0 to 18446744073709551615 is needed")
        self.csdsim("run", SOURCE / "scenarios/papers/llm-in-a-flash.yaml", "--set", "model.hidden_size=0", status=2,
                    says="model.hidden_size")

    def test_a_full_disk(self):
        with open("/dev/full", "w") as full:
            for command in (("list",), ("describe", "flash"), ("describe", "--schema"), ("completion", "bash"), ("--help",)):
                run = subprocess.run([CSDSIM, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual((run.returncode, run.stderr), (2, "standard output: cannot be written\n"), command)

    @unittest.skipIf(reserves_address_space(CSDSIM), "AddressSanitizer needs more address space")
    def test_no_memory(self):
        self.scenario(SCENARIO)
        for limit in (100_000, 150_000, 200_000, 300_000):
            space = lambda: resource.setrlimit(resource.RLIMIT_AS, (limit * 1024, limit * 1024))
            run = subprocess.run([CSDSIM, "run", "s.yaml"], capture_output=True, text=True, timeout=60, cwd=self.out,
                                 preexec_fn=space)
            self.assertIn(run.returncode, (0, 1, 2, 127), f"{limit}: {run.stderr}")
            if run.returncode == 1:
                self.assertIn("csdsim: out of memory (ulimit -v limits it)", run.stderr, limit)

    def test_only_runs_that_compute_load_openblas(self):
        (self.out / "lib").mkdir()
        (self.out / "lib/libopenblas.so.0").write_text("no library")
        without = os.environ | {"LD_LIBRARY_PATH": str(self.out / "lib")}
        self.csdsim("run", self.scenario(SCENARIO), env=without)
        self.csdsim("run", SOURCE / "scenarios/quickstart.yaml", status=2, says="apt-get install libopenblas0", env=without)

    def test_only_tokenizers_load_icu(self):
        (self.out / "lib").mkdir()
        for version in range(50, 100):
            (self.out / f"lib/libicui18n.so.{version}").write_text("no library")
        without = os.environ | {"LD_LIBRARY_PATH": str(self.out / "lib")}
        self.csdsim("run", self.scenario(SCENARIO), env=without)
        self.csdsim("generate", "--model", SOURCE / "tests/data/golden/mistral", "--prompt", "x", status=2,
                    says="apt-get install libicu", env=without)

    def test_temporary_files_are_our_own(self):
        folder = self.sweep()
        # A link where the temporary file would be is not followed, a file left by a killed program is replaced.
        victim = self.out / "victim"
        victim.write_text("mine")
        (folder / "report.html.part").symlink_to(victim)
        self.csdsim("report", folder)
        self.assertEqual(victim.read_text(), "mine")
        self.assertFalse((folder / "report.html").is_symlink())
        # Nobody can prepare the folder in which a figure is drawn.
        temporary = self.out / "tmp"
        temporary.mkdir()
        watched = f"""#!/bin/sh
        stat -c '%a %n' "$(dirname "$1")" >> {self.out / "seen"}
        """
        (self.out / "python3").write_text(watched)
        (self.out / "python3").chmod(0o755)
        environment = {**os.environ, "TMPDIR": str(temporary), "PATH": f"{self.out}:{os.environ['PATH']}"}
        for _ in range(2):
            self.csdsim("report", folder, "--plot", "f.png", env=environment)
        seen = (self.out / "seen").read_text().splitlines()
        self.assertEqual([line.split()[0] for line in seen], ["700", "700"])
        self.assertEqual(len(set(seen)), 2)
        self.assertEqual(list(temporary.iterdir()), [])

    def test_libraries_that_are_none(self):
        good = CSDSIM.parent / "tests/policies/plugins/plugin_good.so"
        whole = good.read_bytes()
        for name, content, says in (("text", b"a text", "it is no ELF file"), ("empty", b"", "it is no ELF file"),
                                    ("head", whole[:40], "it is truncated"), ("half", whole[:len(whole) // 2], "it is truncated"),
                                    ("other", whole[:18] + b"\x08\x00" + whole[20:], "it was made for another kind of machine"),
                                    ("program", CSDSIM.read_bytes()[:16] + b"\x02" + CSDSIM.read_bytes()[17:64], "it is no shared library")):
            (self.out / f"{name}.so").write_bytes(content)
            self.csdsim("test-policy", f"./{name}.so", status=2, says=f"./{name}.so cannot be loaded: {says}")
        # What does not name the entry is not run: its constructor would say so.
        source = self.out / "ctor.cpp"
        source.write_text('#include <cstdio>\n__attribute__((constructor)) static void run() { std::puts("has run"); }\n')
        subprocess.run(["c++", "-shared", "-fPIC", "-o", self.out / "ctor.so", source], check=True, timeout=120)
        run = self.csdsim("test-policy", "./ctor.so", status=2, says="it does not export")
        self.assertNotIn("has run", run.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
