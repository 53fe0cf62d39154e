"""Sweeps whose files change, and other ways in which rows could be wrong. Usage: test_sweep.py CSDSIM SOURCE_DIR"""
import json
import os
import pathlib
import pty
import re
import select
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest

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
"""
SCENARIO = PLATFORM + """workload: {kind: block_io, pattern: random_read, request_size: 4 KiB, queue_depth: 4, requests: REQUESTS, working_set: 0.5}
sweep: {axes: {seed: [1, 2, 3, 4], workload.queue_depth: [1, 8]}}
"""

SERVING = """csdsim: 1
name: s
model: {preset: llama-3.2-1b}
platform:
  gpu: {preset: rtx5090, memory: 3.5 GiB}
  host: {memory: 64 GiB}
  device: {preset: samsung-980-pro-2tb, flash: {blocks_per_plane: 8, slc_cache: 1 MB}}
workload:
  kind: serving
  generate: {requests: REQUESTS, input_tokens: 400, output_tokens: 40, most_tokens: 8000, block_tokens: 64, prefixes: 2, prefix_tokens: 512, gap: 30 ms, delay: 200 ms}
  engine: {runtime_memory: 512 MiB, most_running: 16}
  tiers: {host: {capacity: 64 MiB}, drives: {capacity: 1 GiB}}
"""


class Sweeps(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)
        self.scenario = self.out / "s.yaml"

    def tearDown(self):
        self.directory.cleanup()

    def write(self, requests):
        self.scenario.write_text(SCENARIO.replace("REQUESTS", str(requests)))

    def command(self, folder, *more, jobs=2):
        return [CSDSIM, "sweep", str(self.scenario), "--out", str(self.out / folder), "-j", str(jobs), *map(str, more)]

    def sweep(self, folder, *more):
        return subprocess.run(self.command(folder, *more), capture_output=True, text=True, timeout=300)

    def table(self, folder):
        """The rows without the times that the host took."""
        with sqlite3.connect(self.out / folder / "results.sqlite") as database:
            rows = database.execute("SELECT * FROM results ORDER BY point")
            names = [column[0] for column in rows.description]
            return [{n: v for n, v in zip(names, row) if not n.startswith("wall") and "wall" not in n and "_rss" not in n
                     and n not in ("events_per_s", "simulated_s_per_s")} for row in rows]

    def start(self, folder, finished, *more):
        """A sweep of which so many points have finished."""
        run = subprocess.Popen(self.command(folder, *more), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for _ in range(finished):
            run.stderr.readline()
        return run

    def test_what_is_written_has_a_name_and_is_no_input(self):
        self.write(100)
        said = self.scenario.read_text()
        for more, message in ((["--out", ""], "--out: a name is needed"), (["--trace", ""], "--trace: a name is needed"),
                              (["--trace", str(self.scenario)], "the run reads this file"),
                              (["--trace", str(self.out / "." / "s.yaml")], "the run reads this file")):
            run = subprocess.run([CSDSIM, "run", str(self.scenario), *more], capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 2, more)
            self.assertIn(message, run.stderr)
        self.assertEqual(self.scenario.read_text(), said)

    def test_a_full_output_is_told(self):
        self.write(100)
        for command in (self.command("full", "-q"), [CSDSIM, "check", str(self.scenario)], [CSDSIM, "list", "systems"]):
            with open("/dev/full", "w", encoding="utf-8") as full:
                run = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            self.assertEqual(run.returncode, 2, command)
            self.assertIn("standard output: cannot be written", run.stderr)

    def test_a_scenario_on_standard_input_is_read_once(self):
        self.write(100)
        self.sweep("file")
        command = [CSDSIM, "sweep", "/dev/stdin", "--out", str(self.out / "input"), "-j", "2"]
        run = subprocess.run(command, input=self.scenario.read_text(), capture_output=True, text=True, timeout=300)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.table("input"), self.table("file"))

    def test_all_points_run_what_the_scenario_said_at_the_start(self):
        self.write(20000)
        self.assertEqual(self.sweep("before").returncode, 0)
        run = self.start("o", 1)
        self.write(40)
        _, said = run.communicate(timeout=300)
        self.assertEqual(run.returncode, 0, said)
        self.assertEqual(self.table("o"), self.table("before"))

    def test_a_killed_sweep_goes_on_where_it_was(self):
        self.write(20000)
        self.assertEqual(self.sweep("whole").returncode, 0)
        for finished in (1, 5):
            run = self.start("o", finished)
            run.send_signal(signal.SIGKILL)
            run.communicate()
            again = self.sweep("o", "--resume")
            self.assertEqual(again.returncode, 0, again.stderr)
            self.assertGreaterEqual(again.stderr.count(": kept"), 1)  # short runs are durable within a second
            self.assertEqual(self.table("o"), self.table("whole"))

    def test_an_interrupted_sweep_says_how_it_goes_on(self):
        self.write(20000)
        for told in (signal.SIGINT, signal.SIGTERM):
            run = self.start("o", 2, "--overwrite")
            run.send_signal(told)
            _, said = run.communicate(timeout=60)
            self.assertEqual(run.returncode, -told)
            self.assertIn("interrupted; the same command with --resume goes on", said)
            # What is done is in the table, the files and a report.
            done = len(self.table("o"))
            self.assertTrue(2 <= done < 8, done)
            self.assertIn(f"{done} of 8 points are done", said)
            self.assertEqual(len((self.out / "o" / "results.csv").read_text().splitlines()), 1 + done)
            report = subprocess.run([CSDSIM, "report", str(self.out / "o")], capture_output=True, text=True, timeout=60)
            self.assertEqual(report.returncode, 0, report.stderr)
        self.assertEqual(self.sweep("o", "--resume").returncode, 0)
        self.assertEqual(self.sweep("whole").returncode, 0)
        self.assertEqual(self.table("o"), self.table("whole"))

    def test_two_sweeps_do_not_share_a_folder(self):
        self.write(2000000)
        run = self.start("o", 0)
        while not (self.out / "o" / "points").exists():
            time.sleep(0.02)
        second = self.sweep("o")
        self.assertIsNone(run.poll())
        run.kill()
        run.communicate()
        self.assertEqual(second.returncode, 2)
        self.assertIn("another csdsim writes its results here", second.stderr)

    def test_a_run_does_not_write_where_a_sweep_does(self):
        self.write(2000000)
        run = self.start("o", 0)
        while not (self.out / "o" / "points").exists():
            time.sleep(0.02)
        second = subprocess.run([CSDSIM, "run", str(self.scenario), "--out", str(self.out / "o")], capture_output=True,
                                text=True, timeout=60)
        run.kill()
        run.communicate()
        self.assertEqual(second.returncode, 2)
        self.assertIn("another csdsim writes its results here", second.stderr)
        self.assertFalse((self.out / "o" / "result.json").exists())

    def test_an_interrupted_run_says_so(self):
        self.write(2000000)
        run = subprocess.Popen([CSDSIM, "run", str(self.scenario), "--out", str(self.out / "r")], stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        while not (self.out / "r").exists():
            time.sleep(0.02)
        time.sleep(0.2)
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=60)
        self.assertEqual(run.returncode, -signal.SIGINT)
        self.assertIn("csdsim run: interrupted", said)

    def test_an_interrupted_service_has_what_had_ended(self):
        self.scenario.write_text(SERVING.replace("REQUESTS", "200000"))
        for told in (signal.SIGINT, signal.SIGTERM):
            run = subprocess.Popen([CSDSIM, "run", str(self.scenario), "--out", str(self.out / "r")], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
            said = ""
            while " of 200000 requests" not in said:  # the first progress comes after ten seconds
                said = run.stderr.readline()
                self.assertIsNone(run.poll(), said)
            run.send_signal(told)
            shown, said = run.communicate(timeout=60)
            self.assertEqual(run.returncode, -told, said)
            result = json.loads((self.out / "r" / "result.json").read_text())
            ended = result["partial"]["requests_ended"]
            self.assertGreater(ended, 0)
            self.assertIn(f"csdsim run: interrupted: the result has the {ended} of 200000 requests that had ended", said)
            self.assertIn("PARTIAL: interrupted after", shown)
            self.assertEqual(len((self.out / "r" / "requests.csv").read_text().splitlines()), 1 + ended)

    def test_points_that_simulate_the_same_run_once(self):
        self.scenario.write_text(SERVING.replace("REQUESTS", "40") +
                                 "sweep: {axes: {workload.tiers.drives: [off, {model: rates}], platform.device.preset: "
                                 "[samsung-980-pro-2tb, smartssd, micron-9550-max-6.4tb]}}\n")
        done = self.sweep("o")
        self.assertEqual(done.returncode, 0, done.stderr)
        first, *others = (f"drives=off,preset={name}" for name in ("samsung-980-pro-2tb", "smartssd", "micron-9550-max-6.4tb"))
        for other in others:
            self.assertIn(f"{other}: same as {first}", done.stderr)
        self.assertEqual(done.stderr.count("same as"), 2)
        self.assertIn(f"Simulated once, because nothing that they use differs: {first}, {', '.join(others)}.\n", done.stdout)
        for name in ("samsung-980-pro-2tb", "smartssd", "micron-9550-max-6.4tb"):  # what results note stands below the table
            self.assertRegex(done.stdout, f"drives=-model-rates-,preset={name}: A drive was written .* at the rate of its SLC cache")
        self.assertEqual(done.stdout.count("SLC cache, which holds 0.001 GB"), 3)
        rows = self.table("o")
        self.assertEqual(len(rows), 6)
        self.assertEqual({row["request_ttft_mean_s"] for row in rows[:3]}, {rows[0]["request_ttft_mean_s"]})

    def test_results_are_not_deleted_in_silence(self):
        self.write(100)
        self.assertEqual(self.sweep("o").returncode, 0)
        before = (self.out / "o" / "results.sqlite").read_bytes()
        again = self.sweep("o")
        self.assertEqual(again.returncode, 2)
        self.assertIn("holds the results of 8 points: --resume keeps what is still right, --overwrite deletes them", again.stderr)
        self.assertEqual((self.out / "o" / "results.sqlite").read_bytes(), before)
        self.assertEqual(self.sweep("o", "--overwrite").stderr.count(": kept"), 0)
        self.assertEqual(self.sweep("o", "--resume").stderr.count(": kept"), 8)
        self.assertEqual(self.sweep("o", "--resume", "--overwrite").returncode, 2)
        merge = [CSDSIM, "merge", str(self.out / "o"), "--out", str(self.out / "m")]
        for more, status in (([], 0), ([], 2), (["--overwrite"], 0)):
            self.assertEqual(subprocess.run([*merge, *more], capture_output=True, timeout=60).returncode, status, more)

    def test_a_long_point_says_how_far_it_is(self):
        self.write(100_000_000)
        ours, theirs = pty.openpty()
        run = subprocess.Popen(self.command("o", jobs=1), stderr=theirs, stdout=subprocess.DEVNULL)
        os.close(theirs)
        said, end = "", time.monotonic() + 60
        while not re.search(r"queue_depth=\d+[^ ]*: \d+ of 100000000 requests \(\d+ %\)", said) and time.monotonic() < end:
            if select.select([ours], [], [], 1)[0]:
                said += os.read(ours, 4096).decode()
        run.send_signal(signal.SIGKILL)
        run.wait()
        os.close(ours)
        self.assertRegex(said, r"of 100000000 requests \(\d+ %\)")

    def trace(self, blocks):
        (self.out / "t.csv").write_text("".join(f"{1000 * i},host,0,Read,{4096 * b},4096,0\n" for i, b in enumerate(blocks)))
        self.scenario.write_text(PLATFORM + "workload: {kind: trace, format: msr, file: t.csv}\nsweep: {axes: {seed: [1, 2]}}\n")

    def test_resume_keeps_nothing_of_another_input(self):
        self.trace(range(50))
        first = self.sweep("o")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(self.sweep("o", "--resume").stderr.count(": kept"), 2)
        self.trace(range(60))
        self.assertEqual(self.sweep("o", "--resume").stderr.count(": kept"), 0)

    def test_an_input_that_changes_meanwhile_fails_the_points_that_follow(self):
        self.trace([7 * i % 5000 for i in range(60000)])
        run = subprocess.Popen(self.command("o", jobs=1), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        for _ in range(200):
            if (self.out / "o" / "points").exists():
                break
            time.sleep(0.02)
        (self.out / "t.csv").write_text("1000,host,0,Read,0,4096,0\n")
        _, said = run.communicate(timeout=300)
        self.assertEqual(run.returncode, 2, said)
        self.assertIn("t.csv: has changed since the sweep started", said)

    def test_a_combination_that_does_not_fit_is_a_row_with_its_reason(self):
        self.scenario.write_text(PLATFORM + "workload: {kind: block_io, pattern: random_read, request_size: 4 KiB, "
                                 "requests: 100, working_set: 0.5}\n"
                                 "sweep: {axes: {workload.request_size: [4 KiB, 1 MiB], workload.working_set: [0.0001, 0.5]}}\n")
        checked = subprocess.run([CSDSIM, "check", str(self.scenario)], capture_output=True, text=True, timeout=60)
        self.assertEqual(checked.returncode, 0, checked.stderr)
        self.assertIn("sweep of 4 points, 1 of which do not fit:\n  request_size=1MiB,working_set=0.0001: ", checked.stdout)
        swept = self.sweep("o")
        self.assertEqual(swept.returncode, 2)
        reason = self.table("o")[2]["error"]
        self.assertIn("s.yaml:11:", reason)
        self.assertIn("1 of 4 points failed:", swept.stdout)
        self.assertIn(reason, swept.stdout)
        self.assertIn("does not fit", swept.stderr)
        merged = subprocess.run([CSDSIM, "merge", str(self.out / "o"), "--out", str(self.out / "m")], capture_output=True, text=True, timeout=60)
        self.assertEqual((merged.returncode, merged.stderr), (2, ""))
        self.assertIn(reason, (self.out / "o" / "results.csv").read_text())
        self.assertEqual([row["error"] is None for row in self.table("o")], [True, True, False, True])
        report = subprocess.run([CSDSIM, "report", str(self.out / "o")], capture_output=True, text=True, timeout=60)
        self.assertEqual(report.returncode, 0, report.stderr)
        self.assertIn(reason.split(": ")[-1], (self.out / "o" / "report.html").read_text())
        # Beside another scenario, whose axes it does not have.
        other = self.out / "other.yaml"
        other.write_text(self.scenario.read_text().replace("workload.request_size: [4 KiB, 1 MiB], workload.working_set: [0.0001, 0.5]", "seed: [1, 2]"))
        both = subprocess.run([CSDSIM, "sweep", str(self.scenario), str(other), "--out", str(self.out / "both")],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(both.returncode, 2, both.stderr)
        self.assertIn("1 of 6 points failed:", both.stdout)
        # None fits: a mistake of the file.
        none = self.sweep("none", "--set", "sweep.axes={workload.request_size: [1 MiB], workload.working_set: [0.0001]}")
        self.assertEqual(none.returncode, 2)
        self.assertFalse((self.out / "none").exists())

    def test_the_closing_sentences_say_something(self):
        text = PLATFORM + ("workload: {kind: block_io, pattern: random_read, request_size: 4 KiB, queue_depth: 4, "
                           "requests: 200, working_set: 0.5}\nsweep: {axes: {AXES}}\n")
        for axes, says, silent in (
                ("seed: [1, 2], workload.queue_depth: [1, 8]", "queue_depth from 1 to 8: iops is ", "seed from"),
                ("platform.device.dram.capacity: [1 GiB, 2 GiB]", "capacity from 1 GiB to 2 GiB: iops does not change", "times"),
                ("workload.pattern: [random_read, sequential_read, random_write]", "", "pattern from"),
                ("workload.pattern: [random_read, random_write]", "pattern from random_read to random_write: iops is", "not change")):
            self.scenario.write_text(text.replace("AXES", axes))
            swept = self.sweep("o", "--overwrite")
            self.assertEqual(swept.returncode, 0, swept.stderr)
            self.assertIn(says, swept.stdout)
            self.assertNotIn(silent, swept.stdout)

    def test_the_closing_sentences_compare_points_that_differ_in_one_axis(self):
        self.scenario.write_text(PLATFORM + (
            "workload: {kind: block_io, pattern: random_read, request_size: 4 KiB, requests: 200, working_set: 0.5}\n"
            "sweep:\n  axes: {platform.device.flash.channels: [1, 2, 4], platform.device.flash.read_latency: [20 us, 40 us], workload.queue_depth: [1, 4]}\n"))

        def said(where, *more):
            swept = self.sweep("o", "--overwrite", "--set", f"sweep.where={where}", *more)
            self.assertEqual(swept.returncode, 0, swept.stderr)
            iops = {(str(row["platform.device.flash.channels"]), row["platform.device.flash.read_latency"], str(row["workload.queue_depth"])): row["iops"] for row in self.table("o")}
            return [line for line in swept.stdout.splitlines() if ": iops " in line], iops

        def times(iops, *pairs):
            ratios = sorted(iops[last] / iops[first] for first, last in pairs)
            if ratios[0] > 0.995 and ratios[-1] < 1.005:
                return "iops does not change."
            same = ratios[-1] - ratios[0] < 0.005 * ratios[-1]
            return f"iops is {ratios[-1]:.2f} times as high." if same else f"iops is {ratios[0]:.2f} to {ratios[-1]:.2f} times as high."

        reads = ("20 us", "40 us")
        lines, iops = said("channels * queue_depth <= 8")
        self.assertEqual(lines, [
            "channels from 1 to 4, where queue_depth is 1: " + times(iops, *((("1", t, "1"), ("4", t, "1")) for t in reads)),
            "channels from 1 to 2, where queue_depth is 4: " + times(iops, *((("1", t, "4"), ("2", t, "4")) for t in reads)),
            "read_latency from 20 us to 40 us: " + times(iops, *(((c, "20 us", q), (c, "40 us", q)) for c, _, q in iops if (c, "40 us", q) in iops)),
            "queue_depth from 1 to 4, where channels is 1 or 2: " + times(iops, *(((c, t, "1"), (c, t, "4")) for c in "12" for t in reads))])
        # The first row of a cut corner has the last value of an axis.
        lines, iops = said("channels * queue_depth >= 4")
        self.assertEqual(lines[0], "channels from 1 to 4, where queue_depth is 4: " + times(iops, *((("1", t, "4"), ("4", t, "4")) for t in reads)))
        self.assertEqual(lines[2], "queue_depth from 1 to 4, where channels is 4: " + times(iops, *((("4", t, "1"), ("4", t, "4")) for t in reads)))
        # A single point is missing: the sentence counts, because no list of values says which.
        lines, iops = said("channels < 4 or read_latency < 40 us or queue_depth < 4")
        self.assertEqual(lines[0], "channels from 1 to 4, in 3 of 4 cases: " + times(
            iops, *((("1", t, q), ("4", t, q)) for t in reads for q in "14" if (t, q) != ("40 us", "4"))))
        self.assertEqual(lines[1], "channels from 1 to 2, where read_latency is 40 us and queue_depth is 4: " + times(iops, (("1", "40 us", "4"), ("2", "40 us", "4"))))
        # Many ends: the two widest, and the rest in one sentence.
        lines, iops = said("channels * queue_depth <= 5 and read_latency == 20 us", "--set", "sweep.axes.platform.device.flash.channels=1..4 step 1",
                           "--set", "sweep.axes.workload.queue_depth=1..5 step 1")
        ends = {"1": "5", "2": "2"}
        self.assertEqual(lines, [
            "channels from 1 to 4, where queue_depth is 1: " + times(iops, (("1", "20 us", "1"), ("4", "20 us", "1"))),
            "channels from 1 to 2, where queue_depth is 2: " + times(iops, (("1", "20 us", "2"), ("2", "20 us", "2")))] + [
            f"queue_depth from 1 to {q}, where channels is {c}: " + times(iops, ((c, "20 us", "1"), (c, "20 us", q))) for c, q in ends.items()])
        lines, iops = said("channels + queue_depth <= 6 and read_latency == 20 us", "--set", "sweep.axes.platform.device.flash.channels=1..4 step 1",
                           "--set", "sweep.axes.workload.queue_depth=1..5 step 1")
        self.assertEqual([line for line in lines if line.startswith("queue_depth")], [
            "queue_depth from 1 to 5, where channels is 1: " + times(iops, (("1", "20 us", "1"), ("1", "20 us", "5"))),
            "queue_depth from 1 to 4, where channels is 2: " + times(iops, (("2", "20 us", "1"), ("2", "20 us", "4"))),
            "queue_depth over 2 other ranges: " + times(iops, (("3", "20 us", "1"), ("3", "20 us", "3")), (("4", "20 us", "1"), ("4", "20 us", "2")))])

    def test_a_key_is_either_set_or_swept(self):
        self.write(100)
        for key in ("seed=9", "workload.queue_depth=4"):
            run = self.sweep("o", "--set", key)
            self.assertEqual(run.returncode, 2)
            self.assertIn("is an axis of the sweep", run.stderr)

    def test_numbers_beyond_those_of_sqlite(self):
        self.write(100)
        self.assertEqual(self.sweep("o", "--set", f"sweep.axes.seed=[{2**64 - 1}]").returncode, 0)
        self.assertEqual(str(self.table("o")[0]["seed"]), str(2**64 - 1))


if __name__ == "__main__":
    unittest.main()
