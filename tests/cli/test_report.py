"""The page of `csdsim report`, as a browser shows it. Usage: test_report.py CSDSIM SOURCE_DIR"""
import csv
import json
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import unittest

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

CSDSIM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
del sys.argv[1:]
SCENARIO = """# yaml-language-server: $schema=../docs/scenario.schema.json
# Does the host or the drive
#   attend faster?
csdsim: 1
name: pages
model: {layers: 2, heads: 8, kv_heads: 8, head_dim: 64, hidden_size: 512, ffn_size: 2048, vocab_size: 1000, max_positions: 4096}
platform: {gpu: {preset: a6000}, device: {preset: instcsd-zynq7045}}
system: {kind: instinfer-dense}
workload: {kind: generation, batch: 2, input_tokens: 64, output_tokens: 8}
sweep: {axes: {platform.device.flash.channels: [4, 8], platform.device.flash.channel_bandwidth: [700 MB/s, 1.4 GB/s],
               system.kind: [instinfer-dense, host-kv]}}
"""


def csdsim(*arguments):
    return subprocess.run([CSDSIM, *map(str, arguments)], capture_output=True, text=True, timeout=600)


class Pages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.out = pathlib.Path(cls.directory.name)
        (cls.out / "s.yaml").write_text(SCENARIO)
        done = csdsim("sweep", cls.out / "s.yaml", "--out", cls.out / "sweep", "-q")
        assert done.returncode == 0, done.stderr
        assert f"csdsim report {cls.out / 'sweep'}" in done.stdout
        done = csdsim("report", cls.out / "sweep")
        assert done.returncode == 0, done.stderr
        cls.page = cls.out / "sweep" / "report.html"
        assert done.stdout == f"{cls.page}\n"
        cls.data = json.loads(re.search(r'id="data">(.*?)</script>', cls.page.read_text(), re.S)[1])
        options = Options()
        for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                         "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1200,900"):
            options.add_argument(argument)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        cls.browser = webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)

    @classmethod
    def tearDownClass(cls):
        cls.browser.quit()
        cls.directory.cleanup()

    def tearDown(self):
        self.assertEqual([entry for entry in self.browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")], [])

    def open(self, view="", page=None):
        self.browser.get("about:blank")
        self.browser.get(f"file://{page or self.page}{'#view=' + view if view else ''}")

    def choose(self, key, value):
        Select(self.browser.find_element(By.ID, key)).select_by_value(value)

    def sets(self):
        """Labels and values of the data sets of the first chart."""
        return self.browser.execute_script(
            "const d = charts[0].data; return d.datasets.map(s => [s.label, s.data.map(v => v !== null && typeof v === 'object' ? v.y : v)])")

    def painted(self):
        """Whether every chart has more than one colour."""
        return self.browser.execute_script("""return charts.map(c => {
            const p = c.canvas.getContext('2d').getImageData(0, 0, c.canvas.width, c.canvas.height).data;
            return new Set(Array.from({length: p.length / 4}, (_, i) => p[4 * i] + ',' + p[4 * i + 1] + ',' + p[4 * i + 2])).size; })""")

    def cells(self, table):
        return self.browser.execute_script(
            "return [...document.querySelectorAll(arguments[0] + ' tr')].map(r => [...r.children].map(c => c.textContent))", table)

    def test_the_data_are_those_of_the_sweep(self):
        rows = list(csv.reader((self.out / "sweep" / "results.csv").read_text().splitlines()))
        self.assertEqual(self.data["points"], len(rows) - 1)
        column = rows[0].index("decode_tokens_per_s")
        for value, row in zip(self.data["metrics"]["decode_tokens_per_s"], rows[1:]):
            self.assertAlmostEqual(value / float(row[column]), 1, 8)
        self.assertEqual([axis["path"] for axis in self.data["axes"]],
                         ["platform.device.flash.channels", "platform.device.flash.channel_bandwidth", "system.kind"])
        origins = {path: origin for path, _, origin in self.data["parameters"]}
        self.assertIn("s.yaml:", origins["workload.batch"])
        self.assertIn("preset a6000", origins["platform.gpu.memory_bandwidth"])
        self.assertTrue(origins["workload.temperature"].startswith("default"))

    def test_it_needs_nothing_else(self):
        text = self.page.read_text()
        self.assertNotRegex(text, r'(src|href)\s*=\s*["\'](?!data:)')
        self.assertNotIn("@import", text)
        again = self.out / "again.html"
        self.assertEqual(csdsim("report", self.out / "sweep", "--out", again).returncode, 0)
        self.assertEqual(again.read_bytes(), self.page.read_bytes())

    def test_without_javascript_it_says_where_the_figures_are(self):
        text = self.page.read_text()
        self.assertIn("need JavaScript. The same figures are in results.csv", text[:text.index("<script")])

    def test_it_makes_no_folders(self):
        nowhere = self.out / "nowhere" / "deep" / "r.html"
        done = csdsim("report", self.out / "sweep", "--out", nowhere)
        self.assertEqual((done.returncode, done.stderr), (2, f"{nowhere}: there is no folder {nowhere.parent}; make it first\n"))
        self.assertFalse((self.out / "nowhere").exists())

    def test_numbers_are_read_with_their_units(self):
        self.open()
        for value, name, text in ((0.273, "requests_per_s", "0.273 /s"), (4533, "page_ops_per_wall_s", "4.53 k/s"),
                                  (0.0123, "ttft_s", "12.3 ms"), (3350000, "latency_p99_ns", "3.35 ms")):
            self.assertEqual(self.browser.execute_script(f"return readable({value}, '{name}')"), text)

    def test_lines_follow_the_selectors(self):
        self.open()
        self.choose("x", "platform.device.flash.channels")
        before = self.sets()
        self.assertEqual(len(before), 4)  # bandwidth x system
        self.assertEqual(len(set(self.browser.execute_script("return charts[0].data.datasets.map(s => s.borderColor)"))), 4)
        self.assertTrue(all(count > 1 for count in self.painted()))
        self.choose("y", "ttft_s")
        after = self.sets()
        self.assertNotEqual(before, after)
        self.choose("only:system.kind", "host-kv")
        fewer = self.sets()
        self.assertEqual(len(fewer), 2)
        for name, values in fewer:
            self.assertIn("host-kv", name)
            self.assertIn([name, values], after)
        # A quantity has a place and its own text on the axis.
        self.choose("x", "platform.device.flash.channel_bandwidth")
        self.assertEqual(self.browser.execute_script("return charts[0].config.type"), "scatter")
        self.assertEqual(self.browser.execute_script("return charts[0].data.datasets[0].data.map(d => d.x)"), [0.7e9, 1.4e9])
        self.assertEqual(self.browser.execute_script("return charts[0].scales.x.ticks.map(t => t.label)"), ["700 MB/s", "1.4 GB/s"])
        self.choose("x", "system.kind")
        self.assertEqual(self.browser.execute_script("return charts[0].config.type"), "bar")
        self.assertIn("x=system.kind", self.browser.current_url)
        self.browser.refresh()  # the address holds what is shown
        self.assertEqual(self.browser.execute_script("return charts[0].config.type"), "bar")

    def test_it_opens_with_the_question_and_lines(self):
        self.open()
        self.assertEqual(self.browser.find_element(By.ID, "question").text, "Does the host or the drive attend faster?")
        self.assertEqual((self.out / "sweep" / "question.txt").read_text(), "Does the host or the drive attend faster?\n")
        self.assertEqual(self.browser.execute_script("return [charts[0].config.type, document.getElementById('x').value]"),
                         ["scatter", "platform.device.flash.channel_bandwidth"])

    def test_heat_map_and_a_point(self):
        self.open("Heat+map")
        heat = self.cells(".heat")
        self.assertEqual([len(row) for row in heat], [3, 3, 3])
        self.assertIn("Cells show the mean over system", self.browser.find_element(By.ID, "view").text)
        self.choose("only:system.kind", "instinfer-dense")
        self.assertNotEqual(self.cells(".heat"), heat)
        self.browser.find_element(By.CSS_SELECTOR, ".heat td").click()
        shown = dict(self.cells("#point"))
        self.assertEqual(set(shown), {name for name, values in self.data["metrics"].items() if values[0] is not None})

    def test_pareto_front_has_the_points_that_no_other_beats(self):
        self.open("Pareto")
        self.choose("px", "energy_per_token_j")
        self.choose("py", "ttft_s")
        pairs = list(zip(self.data["metrics"]["energy_per_token_j"], self.data["metrics"]["ttft_s"]))
        front = {p for p in pairs if not any(q != p and q[0] <= p[0] and q[1] <= p[1] for q in pairs)}
        drawn = {tuple(p) for p in self.browser.execute_script("return charts[0].data.datasets[0].data.map(d => [d.x, d.y])")}
        self.assertEqual(drawn, front)
        self.assertEqual(len(self.cells("#front")), 1 + len(front))

    def test_resources_table_configuration_and_themes(self):
        self.open("Resources")
        self.assertRegex(self.browser.find_element(By.ID, "bound").text, r"Bound by: \w+ \(\d\)")
        self.assertEqual(self.browser.execute_script("return charts.length"), 2)
        self.assertTrue(all(count > 2 for count in self.painted()))
        self.open("Table")
        rows = self.cells("#rows")
        self.assertEqual(len(rows), 1 + self.data["points"])
        column = rows[0].index("decode_tokens_per_s")
        bandwidth = rows[0].index("channel_bandwidth")  # 700 MB/s is less than 1.4 GB/s
        self.browser.find_elements(By.CSS_SELECTOR, "#rows th")[bandwidth].click()
        self.assertEqual([row[bandwidth] for row in self.cells("#rows")[1:]], 4 * ["700 MB/s"] + 4 * ["1.4 GB/s"])
        for sign in (1, -1):  # a second click sorts the other way round
            self.browser.find_elements(By.CSS_SELECTOR, "#rows th")[column].click()
            sorted_rows = self.browser.execute_script(
                "return [...document.querySelectorAll('#rows tr')].slice(1).map(r => Number(r.children[arguments[0]].title))", column)
            self.assertEqual([sign * v for v in sorted_rows], sorted(sign * v for v in sorted_rows))
        find = self.browser.find_element(By.ID, "find")
        find.send_keys("host-kv\n")
        self.assertEqual(len(self.cells("#rows")), 1 + self.data["points"] // 2)
        self.open("Configuration")
        self.assertIn("instcsd", self.browser.find_element(By.ID, "config").text)
        light = self.browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        self.choose("theme", "dark")
        self.assertNotEqual(self.browser.execute_script("return getComputedStyle(document.body).backgroundColor"), light)

    def test_one_run_and_failed_points(self):
        done = csdsim("run", self.out / "s.yaml", "--out", self.out / "one", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(csdsim("report", self.out / "one").returncode, 0)
        self.open(page=self.out / "one" / "report.html")
        self.assertEqual(self.browser.find_element(By.CSS_SELECTOR, "[aria-selected=true]").text, "Summary")
        metrics = json.loads((self.out / "one" / "result.json").read_text())["metrics"]
        cards = self.browser.execute_script("return [...document.querySelectorAll('.card')].map(c => [...c.children].map(e => e.textContent))")
        self.assertEqual(cards[0][0], "decode_tokens_per_s")
        self.assertAlmostEqual(float(cards[0][1].removesuffix(" tokens/s").replace(",", "")) / metrics["decode_tokens_per_s"], 1, 2)
        self.assertIn(["decode is bound by"], [card[:1] for card in cards])
        # Each part of the critical path begins where the one before it ends.
        decode = json.loads((self.out / "one" / "result.json").read_text())["breakdown"]["decode"]["critical_path_s"]
        parts = [seconds for seconds in decode.values() if seconds > 0]
        spans = self.browser.execute_script("return charts.map(c => [c.canvas.closest('div').previousSibling.textContent, c.data.datasets[0].data])"
                                            ".find(c => c[0].startsWith('Where the time of decode goes'))[1]")
        self.assertEqual(len(spans), len(parts))
        for (begin, end), seconds, before in zip(spans, parts, [[0, 0], *spans]):
            self.assertAlmostEqual((end - begin) / seconds, 1, 6)
            self.assertEqual(begin, before[1])
        self.open("Metrics", page=self.out / "one" / "report.html")
        rows = {row[0]: row[2] for row in self.cells("#rows")[1:]}
        self.assertEqual(set(rows), set(metrics))
        self.assertIn("Tokens after the first", rows["decode_tokens_per_s"])
        failed = self.out / "failed"  # as a sweep leaves it whose points 0 and 3 have failed
        shutil.copytree(self.out / "sweep", failed)
        with sqlite3.connect(failed / "results.sqlite") as database:
            database.execute("UPDATE points SET error = 'no </script> <b>room</b>' WHERE point IN (0, 3)")
            database.execute("DELETE FROM runs WHERE key IN (SELECT key FROM points WHERE point IN (0, 3))")
        database.close()
        self.assertEqual(csdsim("report", failed).returncode, 0)
        self.open("Table", page=failed / "report.html")
        rows = self.browser.find_elements(By.CSS_SELECTOR, "tr.failed")
        self.assertEqual([row.find_elements(By.TAG_NAME, "td")[-1].text for row in rows], 2 * ["no </script> <b>room</b>"])
        self.assertIn("2 failed", self.browser.find_element(By.ID, "summary").text)
        for view in ("Lines", "Heat+map", "Pareto", "Resources", "Configuration"):
            self.open(view, page=failed / "report.html")

    def test_a_service_shows_the_distributions_of_its_times(self):
        (self.out / "serving.yaml").write_text("""csdsim: 1
name: service
model: {preset: llama-3.2-1b}
platform: {gpu: {preset: rtx5090, memory: 3.5 GiB}, host: {memory: 64 GiB}}
workload:
  kind: serving
  generate: {requests: 60, input_tokens: 400, output_tokens: 40, block_tokens: 64, prefixes: 2, prefix_tokens: 512, gap: 30 ms, delay: 200 ms}
  engine: {runtime_memory: 512 MiB, most_running: 16}
  tiers: {drives: off}
sweep: {axes: {workload.tiers.host: [off, {capacity: 1 GiB}]}}
""")
        done = csdsim("run", self.out / "serving.yaml", "--out", self.out / "service", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(csdsim("report", self.out / "service").returncode, 0)
        page, result = self.out / "service" / "report.html", json.loads((self.out / "service" / "result.json").read_text())
        curves = "return charts.map(c => [c.canvas.closest('div').previousSibling?.textContent, c.options.scales.x?.type, c.data.datasets.map(s => s.data)])"
        for view in ("Summary", "Distribution"):
            self.open(view, page=page)
            shown = {title: (kind, sets) for title, kind, sets in self.browser.execute_script(curves)}
            for title, metric in (("Time to the first token", "request_ttft"), ("Time per further token, mean of a request", "request_tpot"),
                                  ("Time between two tokens", "itl"), ("From arrival to last token", "request_latency")):
                kind, (points,) = shown[title]
                at = {round(point["y"], 3): point["x"] for point in points}
                for share, percentile in ((0.5, "p50"), (0.99, "p99")):
                    self.assertAlmostEqual(at[share] / result["metrics"][f"{metric}_{percentile}_s"], 1, 6)
                self.assertEqual(kind, "logarithmic" if at[1] >= 16 * at[0] else "linear", metric)
        done = csdsim("sweep", self.out / "serving.yaml", "--out", self.out / "services", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(csdsim("report", self.out / "services").returncode, 0)
        self.open("Distribution", page=self.out / "services" / "report.html")
        self.assertEqual(len(self.sets()), 2)
        self.choose("of", "request_latency_s")
        self.assertEqual(self.browser.execute_script("return charts[0].options.scales.x.title.text"), "request_latency_s")

    def test_many_lines_are_several_charts_and_doubling_axes_are_logarithmic(self):
        text = SCENARIO.split("sweep:")[0] + ("sweep: {axes: {workload.batch: [1, 2], platform.device.flash.channels: [2, 4, 8], system.kind: [instinfer-dense, host-kv],\n"
                                              "  workload.output_tokens: [2, 3, 4]}}\n")
        (self.out / "many.yaml").write_text(text)
        done = csdsim("sweep", self.out / "many.yaml", "--out", self.out / "many", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(csdsim("report", self.out / "many").returncode, 0)
        self.open(page=self.out / "many" / "report.html")
        self.choose("x", "platform.device.flash.channels")
        self.assertEqual(self.browser.execute_script("return charts[0].options.scales.x.type"), "logarithmic")
        shown = self.browser.execute_script("return charts.map(c => [c.options.plugins.title.text, c.data.datasets.map(s => s.label)])")
        self.assertEqual(len(shown), 2)
        self.assertEqual([title for title, _ in shown], ["batch 1", "batch 2"])
        for _, labels in shown:
            self.assertEqual(len(set(labels)), 6)
            self.assertFalse(any("batch" in label for label in labels))
        # Nothing is drawn over itself.
        options = self.browser.execute_script("return [...document.getElementById('x').options].map(o => o.value)")
        self.assertNotIn(self.browser.execute_script("return document.getElementById('y').value"), options)

    def test_a_reproduction(self):
        paper = self.out / "mine.reproduction.yaml"
        shutil.copy(self.out / "s.yaml", self.out / "mine.yaml")
        paper.write_text("""title: A <b>Paper</b>
source: nowhere
scenario: mine.yaml
constants:
  - {path: platform.device.flash.channels, unit: channels, meaning: how many, fitted_on: the gain, group: fitted}
points:
  a: {overrides: {workload.batch: 1}}
  b: {overrides: {workload.batch: 2}}
rows:
  - {id: r.right, metric: batch, unit: prompts, stated: 2, where: table 1, tolerance: 10 %, value: 2 * a.tokens_per_s / a.tokens_per_s}
  - {id: r.wrong, metric: gain, unit: x, stated: 100, where: table 2, kind: ratio, tolerance: 10 %, value: b.tokens_per_s / a.tokens_per_s}
  - {id: r.fit, metric: again, unit: x, stated: 1, where: table 2, kind: ratio, tolerance: 10 %, fitted: true, value: a.tokens_per_s / a.tokens_per_s}
  - {id: r.order, metric: order, stated: a is faster, otherwise: b is faster, where: table 2, kind: trend, holds: a.tokens_per_s > b.tokens_per_s}
inconsistencies: [{text: the gain is too large, rows: [r.wrong]}]
absent: [{id: r.none, why: no figure}]
""")
        done = csdsim("reproduce", paper, "--out", self.out / "paper", "-q")
        self.assertEqual(done.returncode, 0, done.stderr)
        printed = done.stdout
        self.assertIn(f"csdsim report {self.out / 'paper'}", printed)
        done = csdsim("report", self.out / "paper")
        self.assertEqual((done.returncode, done.stdout), (0, f"{self.out / 'paper' / 'report.html'}\n"))
        self.open(page=self.out / "paper" / "report.html")
        self.assertEqual(self.browser.find_element(By.ID, "title").text, "A <b>Paper</b>")
        agreement = "1 of 3 results agree with the paper, 2 do not; 1 more confirm nothing, because constants were fitted on them."
        self.assertIn(agreement, printed)
        self.assertIn(agreement, self.browser.find_element(By.ID, "summary").text)
        self.assertEqual([h.text for h in self.browser.find_elements(By.TAG_NAME, "h2")],
                         ["What does not agree", "Constants", "Stated against simulated", "Contradictions in the paper", "Results without a row"])
        self.assertEqual(self.cells("#constants")[1][:3], ["how many", "8 (channels)", "the gain"])
        rows = [row for row in self.cells("#rows") if len(row) == 7][1:]
        self.assertEqual([(row[0], row[1], row[5]) for row in rows], [("batchr.right", "2 prompts", "within"), ("gainr.wrong", "100 x", "outside"),
                          ("againr.fit", "1 x", "within, fitted"), ("orderr.order", "a is faster", "differs")])
        # An order shows what it is about, as the run of the point has it.
        result = json.loads((self.out / "paper" / "reproduction.json").read_text())
        speeds = [result["points"][point]["metrics"]["tokens_per_s"] for point in "ab"]
        self.assertEqual(result["rows"][3]["figures"], {"a.tokens_per_s": speeds[0], "b.tokens_per_s": speeds[1]})
        self.assertRegex(rows[3][2], r"^b is fastera.tokens_per_s > b.tokens_per_sa.tokens_per_s: [0-9.]+b.tokens_per_s: [0-9.]+$")
        self.assertIn("contradiction 1", rows[1][6])
        # The dot of the first row is in the middle of its band, that of the second at the end of its track.
        dots = self.browser.execute_script("return [...document.querySelectorAll('.dot')].map(d => [d.style.left, d.className])")
        self.assertEqual(dots, [["50%", "dot good"], ["0%", "dot bad beyond"], ["50%", "dot none"]])
        band = self.browser.execute_script("return [...document.querySelectorAll('.band')].map(d => [parseFloat(d.style.left), parseFloat(d.style.width)])")[0]
        self.assertTrue(band[0] < 50 < band[0] + band[1], band)
        self.choose("theme", "dark")
        # All but the pictures is there without JavaScript.
        page = (self.out / "paper" / "report.html").read_text()
        static = page[:page.index("<script")]
        for text in (agreement, "A &lt;b&gt;Paper&lt;/b&gt;", "the gain is too large", "r.wrong", "how many"):
            self.assertIn(text, static)
        # A file that others made is refused, and does not end the program.
        for change in (lambda d: d["rows"][0].pop("fitted"), lambda d: d["rows"][0].update(figures={"a": "b"}),
                       lambda d: d["constants"][0].pop("value"), lambda d: d["points"].update(a=7),
                       lambda d: d["rows"][0].update(stated="<b>", simulated=[1])):
            broken = json.loads(json.dumps(result))
            change(broken)
            (self.out / "paper" / "reproduction.json").write_text(json.dumps(broken))
            self.assertIn(csdsim("report", self.out / "paper").returncode, (0, 2))
        (self.out / "paper" / "reproduction.json").write_text('{"schema": 1, "title": 7}')
        self.assertIn("is no result of csdsim reproduce", csdsim("report", self.out / "paper").stderr)

    def test_what_is_no_result(self):
        for make, message in ((lambda d: None, "holds neither"),
                              (lambda d: (d / "result.json").write_text("{"), "is no JSON file"),
                              (lambda d: (d / "result.json").write_text("[]"), "is no result"),
                              (lambda d: (d / "results.sqlite").write_text("no database at all"), "not a database"),
                              (lambda d: (d / "results.sqlite").write_bytes(b""), "the sweep has not ended")):
            with tempfile.TemporaryDirectory() as name:
                directory = pathlib.Path(name)
                make(directory)
                done = csdsim("report", directory)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(message, done.stderr)
        self.assertIn("is no folder", csdsim("report", self.out / "nowhere").stderr)
        full = csdsim("report", self.out / "sweep", "--out", "/dev/full")
        self.assertEqual((full.returncode, full.stderr), (2, "/dev/full: cannot be written: No space left on device\n"))

    def test_charts_of_other_commands_are_drawn_the_same_way(self):
        done = csdsim("roofline", SOURCE / "scenarios/papers/instinfer.yaml", "--out", self.out / "roof")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.open(page=self.out / "roof" / "roofline.html")
        self.assertNotRegex((self.out / "roof" / "roofline.html").read_text(), r'(src|href)\s*=\s*["\'](?!data:)')
        document = json.loads((self.out / "roof" / "roofline.json").read_text())
        self.assertEqual([name for name, _ in self.sets()], [*document["machines"], *document["operators"]])
        self.assertTrue(all(count > 3 for count in self.painted()))
        self.assertEqual(self.browser.execute_script("return charts[0].options.scales.y.type"), "logarithmic")
        policies = csdsim("run", SOURCE / "tests/ftl_conformance/small_study.yaml", "--out", self.out / "study", "-q")
        self.assertEqual(policies.returncode, 0, policies.stderr)
        self.open(page=self.out / "study" / "policies.html")
        self.assertEqual(self.browser.execute_script("return charts.length"), 7)
        self.assertTrue(all(count > 2 for count in self.painted()))
        self.assertTrue(all(value > 0 for _, values in self.sets() for value in values))


if __name__ == "__main__":
    unittest.main()
