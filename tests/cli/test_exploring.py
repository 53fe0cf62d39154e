"""Questions to many points: searches, several scenarios, parts of a sweep, comparisons. Usage: test_exploring.py CSDSIM SOURCE_DIR"""
import csv
import json
import pathlib
import resource
import sqlite3
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from sanitized import reserves_address_space

CSDSIM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
del sys.argv[1:]
PLATFORM = """csdsim: 1
platform:
  device:
    flash: {channels: 4, dies_per_channel: 4, planes_per_die: 1, blocks_per_plane: 64, pages_per_block: 64,
            page_size: 4 KiB, read_latency: 50 us, program_latency: 600 us, erase_latency: 3 ms,
            channel_bandwidth: 1.4 GB/s}
    link: {generation: 3, lanes: 4}
    nvme: {pipeline_time: 0 ps}    # stated: no note about it
    ftl: {mapping: {kind: page}, over_provisioning: 0.07}
workload: {kind: block_io, pattern: random_read, request_size: 4 KiB, queue_depth: 4, requests: 300, working_set: 0.5}
"""
DEPTHS = "sweep: {axes: {workload.queue_depth: 1..16 times 2, platform.device.flash.channels: [2, 4]}%s}\n"


class Exploring(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def csdsim(self, *arguments, fails=None):
        run = subprocess.run([CSDSIM, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=SOURCE)
        self.assertEqual(run.returncode, 2 if fails else 0, run.stderr + run.stdout)
        if fails:
            self.assertIn(fails, run.stderr)
        return run

    def scenario(self, sweep, name="s"):
        path = self.out / f"{name}.yaml"
        path.write_text(PLATFORM + sweep)
        return path

    def rows(self, folder):
        """Rows of results.csv without what the host took."""
        rows = list(csv.DictReader((self.out / folder / "results.csv").read_text().splitlines()))
        return [{k: v for k, v in row.items() if "wall" not in k and "rss" not in k} for row in rows]

    def test_the_best_points_are_those_of_the_table(self):
        search = ", maximize: iops, minimize: latency_mean_ns, subject_to: [latency_p99_ns < 400000, iops > 20000]"
        run = self.csdsim("sweep", self.scenario(DEPTHS % search), "--out", self.out / "o", "-j", 2)
        rows = self.rows("o")
        self.assertEqual(len(rows), 10)
        good = [r for r in rows if float(r["latency_p99_ns"]) < 400000 and float(r["iops"]) > 20000]
        self.assertTrue(0 < len(good) < 10, "the constraints have to leave some points out")
        value = lambda r: (float(r["iops"]), -float(r["latency_mean_ns"]))
        front = [r["name"] for r in good
                 if not any(v != value(r) and v[0] >= value(r)[0] and v[1] >= value(r)[1] for v in map(value, good))]
        found = json.loads((self.out / "o" / "search.json").read_text())
        self.assertEqual(found["feasible"], [r["name"] for r in good])
        self.assertEqual(found["front"], front)
        self.assertIn(f"{len(good)} of 10 points meet all constraints", run.stdout)
        # Another question to the same points runs nothing.
        again = self.csdsim("sweep", self.scenario(DEPTHS % ", maximize: iops"), "--out", self.out / "o", "--resume")
        self.assertEqual(again.stderr.count(": kept"), 10)
        best = max(rows, key=lambda r: float(r["iops"]))["name"]
        self.assertEqual(json.loads((self.out / "o" / "search.json").read_text())["front"], [best])
        self.csdsim("sweep", self.scenario(DEPTHS % ", maximize: stats.nothing"), "--out", self.out / "o", "--resume",
                    fails="no point has the metric 'stats.nothing'")

    def test_an_optimiser_comes_close_to_the_best_of_all_points(self):
        axes = ("sweep: {axes: {workload.queue_depth: 1..24 step 1, platform.device.flash.channels: 1..8 step 1}, maximize: iops, "
                "subject_to: latency_p99_ns < 200000%s}\n")
        scenario = self.scenario(axes % ", evaluations: 40")
        run = self.csdsim("sweep", scenario, "--out", self.out / "some", "-j", 2)
        self.assertIn("looked at 40 of 192 points", run.stdout)
        self.csdsim("sweep", scenario, "--out", self.out / "alone")
        self.assertEqual(self.rows("some"), self.rows("alone"))
        self.csdsim("sweep", self.scenario(axes % "", "all"), "--out", self.out / "all", "-j", 2)
        every = {r["name"]: r for r in self.rows("all")}
        best = max(float(r["iops"]) for r in every.values() if float(r["latency_p99_ns"]) < 200000)
        found = json.loads((self.out / "some" / "search.json").read_text())
        self.assertEqual((found["points"], found["looked_at"]), (192, 40))
        self.assertLess(float(every[found["front"][0]]["latency_p99_ns"]), 200000)
        self.assertGreater(float(every[found["front"][0]]["iops"]), 0.9 * best)
        # It goes on where it was.
        more = self.csdsim("sweep", self.scenario(axes % ", evaluations: 60"), "--out", self.out / "some", "--resume")
        self.assertEqual(more.stderr.count(": kept"), 40)
        self.csdsim("sweep", scenario, "--shard", "1/2", "--out", self.out / "part", fails="chooses points by the results of others")
        self.csdsim("sweep", scenario, self.scenario(axes % ", evaluations: 60", "other"), "--out", self.out / "two",
                    fails="searches the points of one scenario")

    def test_mistakes_end_a_sweep_before_its_first_point(self):
        for sweep, says in (("sweep: {axes: {workload.queue_depth: [1]}, maximize: [iops, latency_mean_ns], evaluations: 9}\n",
                             "needs one metric"),
                            ("sweep: {axes: {workload.queue_depth: [1]}, maximize: iops, evaluations: 0}\n", "expected a count from 1"),
                            ("sweep: {axes: {workload.queue_depth: [1]}, maximize: iops, evaluations: 1 us}\n", "expected a count from 1"),
                            ("sweep: {axes: {workload.queue_dept: [1]}}\n", "did you mean workload.queue_depth?"),
                            ("sweep: {axes: {workload.queue_depth: []}}\n", "needs a list of values"),
                            ("sweep: {axes: {}}\n", "expected axes"),
                            ("sweep: {axes: {seed: 1..1000 step 1, workload.queue_depth: 1..1000 step 1, workload.requests: 1..1000 step 1}}\n",
                             "more than 10000 points"),
                            (DEPTHS % ", subject_to: iosp > 3", "has no metric 'iosp'")):
            self.csdsim("sweep", self.scenario(sweep), "--out", self.out / "none", fails=says)
            self.csdsim("check", self.scenario(sweep), fails=says)
        self.assertFalse((self.out / "none").exists())

    def test_an_empty_map_takes_away_what_the_file_says(self):
        scenario = self.scenario(DEPTHS % "")
        self.assertIn("sweep of 10 points", self.csdsim("check", scenario).stdout)
        more = ["--set", "sweep.axes={seed: [1, 2]}"]
        self.assertIn("sweep of 20 points", self.csdsim("check", scenario, *more).stdout)
        self.assertIn("sweep of 2 points", self.csdsim("check", scenario, "--set", "sweep.axes={}", *more).stdout)
        self.csdsim("sweep", scenario, "--set", "sweep.axes={}", "--out", self.out / "none", fails="expected axes")
        channels = []
        for more in ((), ("--set", "platform.device.flash={}")):
            self.csdsim("run", scenario, "-q", "--out", self.out / "r", *more)
            result = json.loads((self.out / "r" / "result.json").read_text())
            channels.append(result["scenario"]["platform"]["device"]["flash"]["channels"])
        self.assertEqual(channels, [4, 8])

    def test_equal_points_run_once(self):
        sweep = "sweep: {zip: {workload.request_size: [4 KiB, 4096 B, 8 KiB], workload.queue_depth: [2, 2, 2]}}\n"
        run = self.csdsim("sweep", self.scenario(sweep), "--out", self.out / "o")
        self.assertEqual(run.stderr.count("same as request_size=4KiB"), 1)
        rows = self.rows("o")
        self.assertEqual(rows[0]["iops"], rows[1]["iops"])
        self.assertNotEqual(rows[0]["iops"], rows[2]["iops"])
        with sqlite3.connect(self.out / "o" / "results.sqlite") as database:
            self.assertEqual(database.execute("SELECT count(*) FROM runs").fetchone(), (2,))

    def test_several_scenarios_make_one_table(self):
        one = self.scenario("name: one\nsweep: {axes: {workload.queue_depth: [1, 2]}}\n", "one")
        two = self.scenario("name: two\nsweep: {axes: {platform.device.flash.channels: [2, 4]}}\n", "two")
        self.csdsim("sweep", one, two, "--out", self.out / "o")
        self.assertEqual([(r["scenario"], r["workload.queue_depth"], r["platform.device.flash.channels"]) for r in self.rows("o")],
                         [("one", "1", "4"), ("one", "2", "4"), ("two", "4", "2"), ("two", "4", "4")])
        self.csdsim("sweep", one, one, "--out", self.out / "p", fails="a second scenario has the name 'one'")

    def test_parts_of_a_sweep_make_the_whole(self):
        scenario = self.scenario(DEPTHS % "")
        self.csdsim("sweep", scenario, "--out", self.out / "whole")
        self.csdsim("sweep", scenario, "--out", self.out / "two", "-j", 2)
        parts = [self.out / f"part{i}" for i in (1, 2, 3)]
        for i, part in enumerate(parts, 1):
            self.csdsim("sweep", scenario, "--out", part, "--shard", f"{i}/3")
        self.assertEqual([len(self.rows(p.name)) for p in parts], [4, 3, 3])
        self.csdsim("merge", *parts, "--out", self.out / "merged")
        self.assertEqual(self.rows("merged"), self.rows("whole"))
        self.assertEqual(self.rows("two"), self.rows("whole"))
        self.assertIn("No metric has changed beyond noise", self.csdsim("compare", self.out / "whole", self.out / "merged").stdout)
        self.csdsim("merge", *parts[:2], "--out", self.out / "x", fails="3 of 10 points are in none of these folders")
        self.csdsim("merge", parts[0], self.out / "whole", "--out", parts[0], fails="is one of the parts")
        other = self.scenario("sweep: {axes: {workload.queue_depth: [1, 2]}}\n", "other")
        self.csdsim("sweep", other, "--out", self.out / "other")
        self.csdsim("merge", *parts, self.out / "other", "--out", self.out / "x", fails="are parts of different sweeps")
        for shard in ("0/3", "4/3", "x", "-1/3", "1/3x", "1/99"):
            self.csdsim("sweep", scenario, "--out", self.out / "x", "--shard", shard, fails=f"--shard {shard}")

    def test_a_comparison_names_what_has_changed(self):
        scenario = self.scenario("sweep: {axes: {workload.queue_depth: [1, 8], seed: [1, 2, 3]}}\n")
        slower = self.scenario("sweep: {axes: {workload.queue_depth: [1, 8], seed: [4, 5, 6]}}\n", "slower")
        slower.write_text(slower.read_text().replace("read_latency: 50 us", "read_latency: 80 us"))
        self.csdsim("sweep", scenario, "--out", self.out / "a", "-j", 2)
        self.csdsim("sweep", slower, "--out", self.out / "b", "-j", 2)
        found = json.loads(self.csdsim("compare", self.out / "a", self.out / "b", "--format", "json").stdout)
        self.assertEqual([(p["path"], p["a"], p["b"]) for p in found["parameters"] if p["path"].endswith("latency")],
                         [("platform.device.flash.read_latency", "50 us", "80 us")])
        changed = {(m["point"], m["metric"]): m["change"] for m in found["metrics"]}
        self.assertGreater(changed["queue_depth=1", "latency_mean_ns"], 0.3)
        self.assertLess(changed["queue_depth=1", "iops"], -0.2)
        self.assertNotIn(("queue_depth=1", "requests_completed"), changed)
        worse = {row["metric"]: row for row in found["summary"]["worse"]}
        self.assertEqual(worse["iops"]["points"], 2)
        self.assertEqual((worse["iops"]["least"], worse["iops"]["most"]), (min(changed["queue_depth=1", "iops"], changed["queue_depth=8", "iops"]),
                                                                       max(changed["queue_depth=1", "iops"], changed["queue_depth=8", "iops"])))
        text = self.csdsim("compare", self.out / "a", self.out / "b").stdout
        self.assertRegex(text.splitlines()[0], r"^2 points compared: \d+ metrics are better, \d+ worse")
        self.assertRegex(text, r"\n  worse: iops in 2 of 2 points, -[\d.]+ % to -[\d.]+ %\n")
        for a, b, fail_on, status in (("a", "b", "worse", 1), ("b", "a", "change", 1), ("a", "a", "change", 0)):
            run = subprocess.run([CSDSIM, "compare", str(self.out / a), str(self.out / b), "--fail-on", fail_on], capture_output=True, timeout=60)
            self.assertEqual(run.returncode, status, (a, b, fail_on))
        # Other seeds alone are noise, for means of many requests.
        seeds = self.scenario("sweep: {axes: {workload.queue_depth: [1, 8], seed: [4, 5, 6]}}\n", "seeds")
        self.csdsim("sweep", seeds, "--out", self.out / "c", "-j", 2)
        found = json.loads(self.csdsim("compare", self.out / "a", self.out / "c", "--format", "json").stdout)
        self.assertLess(max((abs(m["change"]) for m in found["metrics"] if m["metric"] == "iops"), default=0), 0.05)
        result = self.out / "run"
        self.csdsim("run", self.scenario(""), "--out", result, "-q")
        self.assertIn("1 point compared", self.csdsim("compare", result, result / "result.json").stdout)
        self.csdsim("compare", result, self.out / "a", fails="have no point in common")
        self.csdsim("compare", result, self.out / "nowhere", fails="is no folder")

    def test_figures_for_papers(self):
        self.csdsim("sweep", self.scenario(DEPTHS % ""), "--out", self.out / "o", "-j", 2)
        figure = self.out / "f.svg"
        self.csdsim("report", self.out / "o", "--plot", figure, "--x", "queue_depth")
        text = figure.read_text()
        xml.etree.ElementTree.fromstring(text)
        for label in (">queue_depth<", ">iops (1/s)<", ">channels 2<", ">channels 4<", ">16<"):
            self.assertIn(label, text)
        self.csdsim("report", self.out / "o", "--plot", self.out / "g.svg", "--x", "workload.queue_depth", "--y", "iops")
        self.assertEqual((self.out / "g.svg").read_text(), text)
        self.csdsim("report", self.out / "o", "--plot", self.out / "g.svg", "--y", "latency_mean_ns")
        self.assertIn(">latency_mean_ns (ns)<", (self.out / "g.svg").read_text())
        for name, magic in (("f.png", b"\x89PNG"), ("f.pdf", b"%PDF")):
            self.csdsim("report", self.out / "o", "--plot", self.out / name)
            self.assertEqual((self.out / name).read_bytes()[:4], magic)
        for more, says in ((("f.gif",), "has to end with .png, .svg or .pdf"), (("f.svg", "--x", "depth"), "--x depth: is no axis"),
                           (("f.svg", "--y", "iosp"), "did you mean iops?"), (("no/such/f.svg",), "f.svg: No such file or directory")):
            run = self.csdsim("report", self.out / "o", "--plot", self.out / more[0], *more[1:], fails=says)
            self.assertNotIn("Traceback", run.stderr)

    def test_a_figure_of_a_service_shows_the_tail_and_says_so(self):
        (self.out / "service.yaml").write_text("""csdsim: 1
name: service
model: {preset: llama-3.2-1b}
platform: {gpu: {preset: rtx5090, memory: 3.5 GiB}, host: {memory: 64 GiB}}
workload: {kind: serving, generate: {requests: 20, gap: 30 ms}, engine: {runtime_memory: 512 MiB}, tiers: {drives: off}}
sweep: {axes: {workload.generate.gap: [30 ms, 60 ms]}}
""")
        self.csdsim("sweep", self.out / "service.yaml", "--out", self.out / "o", "-q")
        figure = self.out / "f.svg"
        run = self.csdsim("report", self.out / "o", "--plot", figure)
        self.assertIn(">request_ttft_p99_s (s)<", figure.read_text())
        self.assertEqual(run.stderr, "shows request_ttft_p99_s over gap; --y draws another metric (csdsim describe metrics), --x over another axis\n")
        self.assertEqual(run.stdout, f"{figure}\n")
        run = self.csdsim("report", self.out / "o", "--plot", figure, "--x", "gap", "--y", "request_ttft_mean_s")
        self.assertIn(">request_ttft_mean_s (s)<", figure.read_text())
        self.assertEqual(run.stderr, "")

    def test_figures_and_pages_of_many_points(self):
        self.csdsim("sweep", self.scenario("sweep: {axes: {seed: 1..101 step 1, workload.queue_depth: [1]}}\n"), "--out", self.out / "o", "-q")
        self.csdsim("report", self.out / "o", "--plot", self.out / "f.svg", "--x", "seed")
        self.csdsim("report", self.out / "o", "--plot", self.out / "f.svg", "--x", "queue_depth", fails="--plot: more than 100 lines")
        self.csdsim("report", self.out / "o")
        page = (self.out / "o" / "report.html").read_text()
        seeds = json.dumps(list(range(1, 102)), separators=(",", ":"))
        self.assertIn(f'"path":"seed","values":{seeds}', page)
        self.assertIn(f'"at":{json.dumps(list(range(101)), separators=(",", ":"))}', page)

    def test_tables_are_as_documented(self):
        self.csdsim("sweep", self.scenario("sweep: {axes: {workload.queue_depth: [1, 2]}}\n"), "--out", self.out / "o")
        page = (SOURCE / "docs/sweeps.md").read_text()
        with sqlite3.connect(self.out / "o" / "results.sqlite") as database:
            for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                self.assertIn(f"| `{name}` |", page)
                if name != "results":
                    columns = ", ".join(f"`{row[1]}`" for row in database.execute(f"PRAGMA table_info({name})"))
                    self.assertIn(f"| `{name}` | {columns} |", page)
            wide = database.execute("SELECT point, iops FROM results ORDER BY point").fetchall()
            self.assertEqual(database.execute("SELECT point, value FROM metrics WHERE metric = 'iops' ORDER BY point").fetchall(), wide)
            self.assertEqual(database.execute(
                "SELECT json_extract(result, '$.scenario.workload.queue_depth') FROM points JOIN runs USING (key) ORDER BY point").fetchall(), [(1,), (2,)])
        lines = [json.loads(line) for line in (self.out / "o" / "results.jsonl").read_text().splitlines()]
        self.assertEqual([(line["workload.queue_depth"], line["iops"]) for line in lines], [(1, wide[0][1]), (2, wide[1][1])])
        self.assertEqual(self.csdsim("sweep", self.out / "s.yaml", "--out", self.out / "o", "--resume", "-q", "--format", "jsonl").stdout,
                         (self.out / "o" / "results.jsonl").read_text())

    def test_check_refuses_the_ends_of_ranges_that_a_run_would(self):
        for key in ("platform.device.flash.blocks_per_plane=1", "platform.device.ftl.gc_free_blocks=1024",
                    "platform.device.ftl.spare_blocks=65536", "platform.host.memory=64 TiB"):
            self.csdsim("check", self.scenario(""), "--set", key, fails=key.split("=")[0])
        self.csdsim("check", self.scenario(""), "--set", "platform.host.memory=16 TiB")

    @unittest.skipIf(b"__asan_init" in pathlib.Path(CSDSIM).read_bytes(), "AddressSanitizer reserves address space by the terabyte")
    def test_mistakes_on_the_command_line_are_one_sentence(self):
        for command, says in (((), "say what to do: csdsim run scenarios/quickstart.yaml; csdsim --help lists the commands"),
                              (("rnu", "x"), "there is no command 'rnu' (did you mean run?)"),
                              (("--verson",), "there is no option '--verson' (did you mean --version?)"),
                              (("run",), "csdsim run: scenario is required\nAll options: csdsim run --help"),
                              (("run", "x", "--format", "xml"), "'xml' is not table, json or csv"),
                              (("sweep", "x", "--resum"), "--resum (did you mean --resume?)"),
                              (("sweep", "x", "-j", "0"), "Value 0 not in range 1 to 1024"),
                              (("run", "x", "--point", "-1"), "--point: a whole number from 0 to"),
                              (("certify", "x", "--rating", "inf"), "--rating: a number above 0 is needed"),
                              (("generate", "--model", "x", "--temperature", "-1"), "--temperature: a number of at least 0 is needed"),
                              (("run", "scenarios/quikstart.yaml"), "no such file (did you mean scenarios/quickstart.yaml?)")):
            run = self.csdsim(*command, fails=says)
            self.assertLess(run.stderr.count("\n"), 3, run.stderr)
            self.assertEqual(run.stdout, "")
        self.assertNotIn("->", self.csdsim("sweep", "--help").stdout)
        scenario = self.scenario(DEPTHS % "")
        for form in ("json", "csv", "jsonl"):
            self.csdsim("sweep", scenario, "-q", "--out", self.out / "o", "--resume", "--format", form)

    def test_the_table_says_what_binds(self):
        sweep = "sweep: {axes: {platform.device.link: [{bandwidth: 200 MB/s}, {generation: 3}], workload.queue_depth: [64]}}\n"
        run = self.csdsim("sweep", self.scenario(sweep), "--out", self.out / "o")
        self.assertRegex(run.stdout, r"latency_p99_ns +bound by\n")
        self.assertRegex(run.stdout, r"link_to_host (99|100) %\n")
        self.assertRegex(run.stdout, r"flash_\w+ \d\d %, \w+ \d\d %\n")
        policies = self.csdsim("sweep", SOURCE / "tests/ftl_conformance/small_study.yaml", "--set", "sweep.axes={seed: [1]}", "--out", self.out / "p")
        self.assertRegex(policies.stdout, r"seed +policies +appended_tokens +attends +\w+\n[- ]+\n +1 +7 +5176 ")

    @unittest.skipIf(reserves_address_space(CSDSIM), "AddressSanitizer needs more address space")
    def test_a_limit_of_address_space_names_the_memory_to_lower(self):
        def run(*more):
            limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
            return subprocess.run([CSDSIM, "run", str(self.scenario("")), "-q", *more], capture_output=True, text=True, timeout=60, preexec_fn=limit)
        host, gpu = ["--set", "platform.host.memory=1 GiB"], ["--set", "platform.gpu.memory=1 GiB"]
        for more, key in (((), "platform.host.memory: "), (host, "platform.gpu.memory: "), (host + gpu, "platform.device.nvme.mdts: ")):
            limited = run(*more)
            self.assertEqual(limited.returncode, 2, limited.stderr)
            self.assertTrue(limited.stderr.startswith(key), limited.stderr)
        self.assertEqual(run(*host, *gpu, "--set", "platform.device.nvme.mdts=128 KiB").returncode, 0)

    def test_an_output_that_is_a_file_is_told_before_the_run(self):
        (self.out / "file").write_text("")
        for command in (["run", self.scenario(""), "--set", "workload.requests=100000000"],
                        ["calibrate", "scenarios/my_ssd.yaml", "--fio", "scenarios/my_ssd.fio.json"],
                        ["generate", "--model", "models/opt-6m", "--prompt", "a", "--max-new-tokens", "400"],
                        ["eval", "--model", "models/opt-6m", "--text", "models/opt-6m/sample.txt"]):
            run = subprocess.run([CSDSIM, *map(str, command), "--out", str(self.out / "file")], capture_output=True, text=True,
                                 timeout=20, cwd=SOURCE)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertTrue(run.stderr.startswith(f"{self.out / 'file'}: "), run.stderr)

    def test_devices_are_no_files(self):
        trace = self.scenario("")
        text = trace.read_text()
        trace.write_text(text[:text.index("workload")] + "workload: {kind: trace, file: /dev/zero}\n")
        self.csdsim("run", trace, fails="workload.file: /dev/zero is no file")
        self.csdsim("compare", "/dev/zero", "/dev/zero", fails="/dev/zero: is no JSON file")
        self.csdsim("sweep", "scenarios/channels.yaml", "--set", "simulation.selection={kind: recorded, file: /dev/zero}",
                    "--out", self.out / "none", fails="/dev/zero: is a FIFO or a device")

    def test_a_database_of_somebody_else_is_refused(self):
        (self.out / "o").mkdir()
        with sqlite3.connect(self.out / "o" / "results.sqlite") as database:
            database.execute("CREATE TABLE points (point INTEGER PRIMARY KEY, key TEXT NOT NULL, result TEXT NOT NULL)")
        for more in ((), ("--resume",)):
            self.csdsim("sweep", self.scenario(DEPTHS % ""), "--out", self.out / "o", *more, fails="or of another version of it")
        self.csdsim("report", self.out / "o", fails="or of another version of it")
        (self.out / "file").write_text("")
        self.csdsim("sweep", self.scenario(DEPTHS % ""), "--out", self.out / "file", fails="file")


if __name__ == "__main__":
    unittest.main()
