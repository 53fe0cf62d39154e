"""A drive from points that fio measured: the points of a hidden drive are those of the simulator. Usage: test_calibrate.py CSDSIM SOURCE_DIR"""
import csv
import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import unittest

CSDSIM = sys.argv[1]
del sys.argv[1:]
DRIVE = """csdsim: 1
name: mine
platform:
  device:
    flash: {channels: 4, dies_per_channel: %d, planes_per_die: 1, blocks_per_plane: 64, pages_per_block: 64, page_size: 4 KiB,
            read_latency: %s, program_latency: %s, erase_latency: 3 ms, channel_bandwidth: %s}
    nvme: {firmware_time: %s, pipeline_time: %s, queues: 1, queue_depth: 256}
    link: {generation: 3, lanes: 4}
    ftl: {mapping: {kind: page}, over_provisioning: 0.07}
workload: {kind: block_io, working_set: 0.5}
"""
GUESS = DRIVE % (2, "50 us", "600 us", "1.4 GB/s", "0 ps", "0 ps")
HIDDEN = DRIVE % (4, "63 us", "420 us", "800 MB/s", "1.7 us", "9 us")
# rw of fio, block size, requests in flight
MEASURED = [("randread", "4k", 1), ("randread", "4k", 8), ("randread", "4k", 128), ("read", "64k", 1), ("read", "64k", 16),
            ("randwrite", "4k", 1), ("randwrite", "4k", 32)]
PREDICTED = [("randread", "4k", 4), ("randread", "4k", 32), ("randread", "16k", 2), ("read", "32k", 8), ("randwrite", "16k", 4)]
PATTERNS = {"randread": "random_read", "randwrite": "random_write", "read": "sequential_read", "write": "sequential_write"}


class Calibrate(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def csdsim(self, *arguments, status=0):
        run = subprocess.run([CSDSIM, *map(str, arguments)], capture_output=True, text=True, timeout=280)
        self.assertEqual(run.returncode, status, run.stderr + run.stdout)
        return run

    def on_terminal(self, *arguments):
        """What a run writes to stderr if that is a terminal, which shows progress ten times per second."""
        leader, follower = pty.openpty()
        run = subprocess.Popen([CSDSIM, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=follower)
        os.close(follower)
        said = b""
        try:
            while part := os.read(leader, 4096):
                said += part
        except OSError:  # the run has ended
            pass
        os.close(leader)
        self.assertEqual(run.wait(280), 0, said.decode())
        return said.decode()

    def file(self, name, text):
        path = self.out / name
        path.write_text(text)
        return path

    def figures(self, drive, points, name):
        """Rate and mean latency of each point on a drive."""
        axes = {"pattern": [PATTERNS[rw] for rw, _, _ in points], "request_size": [f"{bs[:-1]} KiB" for _, bs, _ in points],
                "queue_depth": [depth for _, _, depth in points]}
        scenario = self.file(f"{name}.yaml", drive + "sweep: {zip: {%s}}\n" % ", ".join(
            f"workload.{key}: {json.dumps(values)}" for key, values in axes.items()))
        self.csdsim("sweep", scenario, "--out", self.out / name, "--set", "workload.requests=2000",
                    "--set", "workload.warmup_requests=300", "-j", 2, "-q")
        rows = csv.DictReader((self.out / name / "results.csv").read_text().splitlines())
        # The rate of a long run: that of a short one suffers from its end.
        latencies = [float(row["latency_mean_ns"]) for row in rows]
        return [(depth / (latency * 1e-9), latency) for latency, (_, _, depth) in zip(latencies, points)]

    def fio(self, points, figures):
        """What fio would have written."""
        def direction(iops, latency, used):
            return {"total_ios": 1000 if used else 0, "iops": iops if used else 0.0, "lat_ns": {"mean": latency if used else 0.0}}
        jobs = [{"jobname": f"{rw}-{bs}-{depth}", "groupid": i, "error": 0,
                 "job options": {"rw": rw, "bs": bs, "iodepth": str(depth)},
                 "read": direction(iops, latency, "read" in rw), "write": direction(iops, latency, "write" in rw)}
                for i, ((rw, bs, depth), (iops, latency)) in enumerate(zip(points, figures))]
        document = {"fio version": "fio-3.33", "global options": {"ioengine": "libaio", "direct": "1"}, "jobs": jobs}
        return self.file("fio.json", json.dumps(document))

    def test_a_hidden_drive_is_predicted_within_five_percent(self):
        points = self.fio(MEASURED, self.figures(HIDDEN, MEASURED, "hidden"))
        said = self.on_terminal("calibrate", self.file("guess.yaml", GUESS), "--fio", points, "--out", self.out / "c", "-j", 2,
                                "--fit", "flash.dies_per_channel=2,4", "--requests", 500)
        self.assertIn("simulations of all points", said)
        document = json.loads((self.out / "c/calibration.json").read_text())
        self.assertEqual(len(document["points"]), len(MEASURED))
        self.assertLess(document["error"], 0.02)
        # The preset is a drive like any other; it gives points that nobody measured.
        calibrated = """csdsim: 1
presets: [c/drive.yaml]
platform: {device: {preset: mine-calibrated}}
workload: {kind: block_io, working_set: 0.5}
"""
        truth = self.figures(HIDDEN, PREDICTED, "truth")
        for point, found, hidden in zip(PREDICTED, self.figures(calibrated, PREDICTED, "found"), truth):
            for value, of in zip(found, hidden):
                self.assertLess(abs(value / of - 1), 0.05, point)
        guessed = self.figures(GUESS, PREDICTED, "guessed")
        self.assertTrue(any(abs(value / of - 1) > 0.2 for a, b in zip(guessed, truth) for value, of in zip(a, b)))
        # The points run as they are, and give what was said.
        self.csdsim("sweep", self.out / "c/calibrated.yaml", "--out", self.out / "again", "-q")
        rows = csv.DictReader((self.out / "again/results.csv").read_text().splitlines())
        for row, point in zip(rows, document["points"]):
            self.assertAlmostEqual(float(row["latency_mean_ns"]) / point["simulated_latency_ns"], 1, 6)

    def test_what_no_point_shows_is_said(self):
        # One read at a time: neither the dies nor the firmware and the rest of the controller show apart.
        points = self.fio(MEASURED[:1], self.figures(HIDDEN, MEASURED[:1], "hidden"))
        arguments = ("calibrate", self.file("guess.yaml", GUESS), "--fio", points, "--out", self.out / "c", "-q",
                     "--requests", 300, "--fit", "flash.dies_per_channel=2,4", "--fix", "nvme.firmware_time",
                     "--fix", "flash.channel_bandwidth")
        first = self.csdsim(*arguments).stdout
        self.assertEqual(self.csdsim(*arguments).stdout, first)
        found = {p["parameter"]: p for p in json.loads((self.out / "c/calibration.json").read_text())["parameters"]}
        self.assertEqual(set(found), {"flash.read_latency", "nvme.pipeline_time", "flash.dies_per_channel"})
        self.assertIn("no point reacts", found["flash.dies_per_channel"]["determined"])
        self.assertIn("are not determined apart", first)

    def test_mistakes_are_named(self):
        guess = self.file("guess.yaml", GUESS)
        fio = self.fio([("randread", "4k", 1)], [(10000, 90e3)])
        base = ("calibrate", guess, "--fio", fio, "--out", self.out / "c", "-q")
        for more, message in ((("--fit", "flash.read_latencie=1 us..2 us"), "did you mean flash.read_latency"),
                              (("--fit", "flash.read_latency=5 us"), None),
                              (("--fit", "flash.read_latency=9 us..2 us"), "leaves no choice"),
                              (("--fit", "flash.read_latency=0 us..2 us"), "is no value above 0"),
                              (("--fit", "flash.read_latency"), "expected KEY=LOW..HIGH"),
                              (("--fit", "flash.channels=64,256"), "channels"),
                              (("--fit", "flash.cache.busy_time=1 us..2 us"), "has no effect in this scenario"),
                              (("--fio", self.out / "none.json"), "no such file"),
                              (("--fio", guess), "is no JSON")):
            run = subprocess.run([CSDSIM, *map(str, base), *map(str, more), "--requests", "100", "--fix", "nvme.firmware_time",
                                  "--fix", "nvme.pipeline_time", "--fix", "flash.channel_bandwidth",
                                  "--fix", "flash.dies_per_channel"], capture_output=True, text=True, timeout=60)
            self.assertEqual(run.returncode, 2 if message else 0, run.stderr)
            if message:
                self.assertIn(message, run.stderr)
        other = self.file("g.yaml", GUESS.replace("block_io, working_set: 0.5", "trace, format: msr, file: t.csv"))
        self.file("t.csv", "1000,host,0,Read,0,4096,0\n")
        self.assertIn("workload: {kind: block_io}", self.csdsim("calibrate", other, "--fio", fio, status=2).stderr)


if __name__ == "__main__":
    unittest.main()
