"""Sweeps under mpirun. Usage: test_ranks.py CSDSIM MPIRUN"""
import csv
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

CSDSIM, MPIRUN = sys.argv[1:3]
del sys.argv[1:]
SCENARIO = """csdsim: 1
platform:
  device:
    flash: {channels: 4, dies_per_channel: 4, planes_per_die: 1, blocks_per_plane: 64, pages_per_block: 64,
            page_size: 4 KiB, read_latency: 50 us, program_latency: 600 us, erase_latency: 3 ms,
            channel_bandwidth: 1.4 GB/s}
    link: {generation: 3, lanes: 4}
    ftl: {mapping: {kind: page}, over_provisioning: 0.07}
workload: {kind: block_io, pattern: random_read, request_size: 4 KiB, queue_depth: 4, requests: 2000, working_set: 0.5}
sweep: {axes: {seed: [1, 2, 3, 4], workload.queue_depth: [1, 8]}}
"""
OF_THE_HOST = ("wall_s", "page_ops_per_wall_s", "peak_rss_bytes")


class Ranks(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)
        self.scenario = self.out / "s.yaml"
        self.scenario.write_text(SCENARIO)

    def tearDown(self):
        self.directory.cleanup()

    def command(self, folder, *more, ranks=0):
        launcher = [MPIRUN, "-np", str(ranks), "--oversubscribe", "--allow-run-as-root"] if ranks else []
        return [*launcher, CSDSIM, "sweep", str(self.scenario), "--out", str(self.out / folder), *map(str, more)]

    def sweep(self, folder, *more, ranks=0):
        environment = {**os.environ, "OMPI_MCA_plm_rsh_agent": "false"}  # all ranks are here
        return subprocess.run(self.command(folder, *more, ranks=ranks), capture_output=True, text=True, timeout=120,
                              env=environment)

    def rows(self, folder):
        with open(self.out / folder / "results.csv", encoding="utf-8") as table:
            return [{k: v for k, v in row.items() if k not in OF_THE_HOST} for row in csv.DictReader(table)]

    def test_rows_are_the_same_whatever_the_way(self):
        self.assertEqual(self.sweep("j1").returncode, 0)
        alone = self.rows("j1")
        self.assertEqual(len(alone), 8)
        self.assertEqual(self.sweep("j2", "-j", 2).returncode, 0)
        self.assertEqual(self.rows("j2"), alone)
        run = self.sweep("ranks", ranks=3)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(self.rows("ranks"), alone)
        self.assertEqual(run.stderr.count("[8/8]"), 1, run.stderr)  # one rank tells
        parts = [f"part{i}" for i in (1, 2, 3)]
        for i, part in enumerate(parts, 1):
            self.assertEqual(self.sweep(part, "--shard", f"{i}/3").returncode, 0)
        merged = subprocess.run([CSDSIM, "merge", *(str(self.out / part) for part in parts), "--out", str(self.out / "m")],
                                capture_output=True, text=True, timeout=60)
        self.assertEqual(merged.returncode, 0, merged.stderr)
        self.assertEqual(self.rows("m"), alone)
        # Every file of a point is where a sweep without ranks has it.
        files = lambda folder: sorted(str(p.relative_to(self.out / folder)) for p in (self.out / folder).rglob("*"))
        self.assertEqual(files("ranks"), files("j1"))

    def test_a_sweep_of_ranks_is_resumed_and_a_failed_point_has_its_reason(self):
        self.assertEqual(self.sweep("o").returncode, 0)
        run = self.sweep("o", "--resume", "--set", "sweep.axes.workload.queue_depth=[1, 2, 8]", ranks=2)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stderr.count(": kept"), 8)
        run = self.sweep("f", "--set", "workload.lose_completion=5", "--set", "sweep.axes.seed=[1, 2]", ranks=2)
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertIn("requests were issued and", self.rows("f")[0]["error"])

    def test_errors_are_told_once_and_end_all_ranks(self):
        for folder, more, message in (("e", ["--set", "platform.device.flash.channels=0"], "channels"),
                                      ("e", ["-j", "2"], "start more ranks instead"), ("/dev/null", [], "/dev/null")):
            run = self.sweep(folder, *more, ranks=3)
            self.assertNotEqual(run.returncode, 0)
            self.assertEqual(sum(message in line for line in run.stderr.splitlines()), 1, run.stderr)

    def test_ranks_that_read_other_files_are_refused(self):
        other = self.out / "t.yaml"
        other.write_text(SCENARIO.replace("requests: 2000", "requests: 2001"))
        sweep = [CSDSIM, "sweep", str(self.scenario), "--out", str(self.out / "o")]
        run = subprocess.run([MPIRUN, "--oversubscribe", "--allow-run-as-root", "-np", "1", *sweep, ":", "-np", "1",
                              CSDSIM, "sweep", str(other), "--out", str(self.out / "o")],
                             capture_output=True, text=True, timeout=120)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("rank 1 has read other files than rank 0", run.stderr)

    def test_points_end_when_the_launcher_is_killed(self):
        self.scenario.write_text(SCENARIO.replace("requests: 2000", "requests: 200000000"))
        run = subprocess.Popen(self.command("k", ranks=2), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(200):
            if (self.out / "k" / "results.sqlite").exists():
                break
            time.sleep(0.05)
        time.sleep(0.3)
        run.kill()
        run.wait()
        mine = str(self.out).encode()
        for _ in range(100):
            left = [p for p in pathlib.Path("/proc").iterdir() if p.name.isdigit() and self.runs(p, mine)]
            if not left:
                return
            time.sleep(0.1)
        self.fail(f"still running: {left}")

    @staticmethod
    def runs(process, mine):
        try:
            return mine in (process / "cmdline").read_bytes() and ") Z" not in (process / "stat").read_text()
        except OSError:
            return False


if __name__ == "__main__":
    unittest.main()
