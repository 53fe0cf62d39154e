"""csdsim datasheet, and the peaks that csdsim check prints. Usage: test_datasheet.py CSDSIM SOURCE_DIR"""
import csv
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
del sys.argv[1:]
DRIVE = "scenarios/my_ssd.yaml"


def csdsim(*args):
    return subprocess.run([CSDSIM, *map(str, args)], cwd=SOURCE, capture_output=True, text=True, timeout=600)


class Datasheet(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.made = csdsim("datasheet", DRIVE, "--format", "json")
        assert cls.made.returncode == 0, cls.made.stderr
        cls.sheet = json.loads(cls.made.stdout)

    def test_what_a_drive_easily_leaves_out_is_noted(self):
        self.assertIn("there is no write buffer", self.made.stderr)
        run = csdsim("datasheet", "nosuch.yaml")
        self.assertEqual((run.returncode, run.stderr), (2, "nosuch.yaml: no such file\n"))

    def test_every_figure_was_measured_and_none_is_above_its_peak(self):
        self.assertEqual(len(self.sheet["rates"]), 8)
        for row in self.sheet["rates"]:
            self.assertIsNone(row["skipped"], row)
            self.assertLessEqual(row["value"], row["peak"] * 1.001, row)
            self.assertGreater(row["value"], 0)
            self.assertLessEqual(row["busy"]["share"], 1.001)
        # 16 planes read in 50 us and carry a page of 4 KiB over 4 channels: 320,000 a second at most.
        deep = self.sheet["rates"][2]
        self.assertAlmostEqual(deep["peak"], 16 / 50e-6)
        self.assertGreater(deep["value"], 0.5 * deep["peak"])
        self.assertEqual(deep["peak_bound_by"], "flash_arrays")

    def test_the_rate_at_depth_one_is_that_of_csdsim_run(self):
        run = csdsim("run", "-q", DRIVE, "--format", "json", "--set", "workload.queue_depth=1", "--set", "workload.requests=2000",
                     "--set", "workload.working_set=1")
        row = self.sheet["rates"][0]
        self.assertEqual(row["value"], json.loads(run.stdout)["metrics"]["iops"])
        self.assertEqual(row["bound_by"], "depth")

    def test_steady_writes_are_amplified_and_wear_the_drive(self):
        by_name = {row["figure"]: row for row in self.sheet["rates"]}
        steady = by_name["random write, 4 KiB, steady, depth 256"]
        self.assertGreater(steady["write_amplification"], 3)  # a tenth of the flash is spare
        written = {row["figure"]: row["bytes_written"] for row in self.sheet["endurance"]["writes"]}
        worn = self.sheet["flash_bytes"] * self.sheet["endurance"]["rated_cycles"]
        self.assertAlmostEqual(written["random writes"] * steady["write_amplification"] / worn, 1, 9)
        self.assertAlmostEqual(written["sequential writes"] / worn, 1, 1)
        self.assertTrue(self.sheet["endurance"]["rated"].startswith("3000 program/erase cycles (assumed: common for 3D TLC"))

    def test_the_cycles_of_presets_give_the_endurance_of_their_data_sheets(self):
        for preset, sequential, random, within in (("micron-9550-max-6.4tb", 74_200e12, 35_040e12, 0.08),
                                                   ("samsung-pm9d3a-7.68tb", None, 14_016e12, 0.02)):
            made = csdsim("datasheet", preset, "-q", "--format", "json")
            self.assertEqual(made.returncode, 0, made.stderr)
            sheet = json.loads(made.stdout)
            self.assertEqual([row["skipped"] for row in sheet["rates"]], [None] * 8, preset)
            written = {row["figure"]: row["bytes_written"] for row in sheet["endurance"]["writes"]}
            self.assertLess(abs(written["random writes"] / random - 1), within, preset)
            if sequential:
                self.assertLess(abs(written["sequential writes"] / sequential - 1), 0.001)
            self.assertIn(f"(preset {preset}, calibrated: ", sheet["endurance"]["rated"])

    def test_latencies_grow_with_load_and_percentile(self):
        latencies = self.sheet["latencies"]
        self.assertEqual([row["of"] for row in latencies], ["read"] * 2 + ["write"] * 2 + ["read", "write"] * 2)
        for row in latencies:
            self.assertLessEqual(row["latency_p50_ns"], row["latency_p99_ns"])
            self.assertLess(row["latency_p99_ns"], row["latency_p9999_ns"])
        self.assertLess(latencies[0]["latency_p99_ns"], latencies[1]["latency_p99_ns"])
        self.assertAlmostEqual(latencies[0]["iops"] / self.sheet["rates"][2]["value"], 0.5)
        # Of the mix, reads and writes have their parts of the rate.
        for row, part in zip(latencies[4:], (0.5 * 0.7, 0.5 * 0.3, 0.8 * 0.7, 0.8 * 0.3)):
            self.assertAlmostEqual(row["iops"] / self.sheet["rates"][7]["value"], part)

    def test_progress_names_each_measurement_and_quiet_none(self):
        self.assertIn("[1/14] random read, 4 KiB, depth 1\n", self.made.stderr)
        self.assertRegex(self.made.stderr, r"\[14/14\] .* \(about \d+ s left\)\n")

    def test_a_file_with_a_drive_only(self):
        with tempfile.TemporaryDirectory() as folder:
            drive = pathlib.Path(folder) / "drive.yaml"
            drive.write_text("csdsim: 1\nplatform: {device: {preset: samsung-980-pro-2tb}}\n")
            made = csdsim("datasheet", drive, "-q", "--set", "platform.device.flash.channels=0")
            self.assertEqual(made.returncode, 2)
            self.assertNotIn("workload", made.stderr)
            self.assertNotIn("model", made.stderr)
            run = csdsim("run", drive)
            self.assertEqual(run.returncode, 2)
            self.assertIn("a file with a drive only runs with workload: {kind: block_io}", run.stderr)
            self.assertEqual(csdsim("check", drive, "--set", "workload.kind=block_io").returncode, 0)

    def test_csv_has_a_line_per_figure(self):
        run = csdsim("datasheet", "-q", DRIVE, "--format", "csv")
        self.assertEqual(run.stderr, "")
        rows = list(csv.DictReader(io.StringIO(run.stdout)))
        self.assertEqual(rows[0], {"figure": "capacity", "value": str(self.sheet["capacity_bytes"]), "unit": "B", "peak": "",
                                   "bound_by": "", "skipped": ""})
        values = {row["figure"]: row["value"] for row in rows}
        for row in self.sheet["rates"]:
            self.assertEqual(float(values[row["figure"]]), row["value"])

    def test_attention_of_a_model_where_the_drive_has_an_engine(self):
        text = csdsim("datasheet", "-q", "--model", "opt-1.3b", "instcsd-zynq7045", "--set",
                      "platform.device.nvme.queue_depth=16", "--format", "json").stdout
        sheet = json.loads(text)
        dense, _, sparse, _ = sheet["attention"]["rows"]
        self.assertGreater(sparse["value"], dense["value"])
        # Keys and values of 2,048 tokens, all that OPT has positions for, cross 8 channels of 1.4 GB/s for each token.
        peak = 8 * 1.4e9 / (4 * 24 * 2048 * 2048)
        self.assertLess(dense["peak"], peak)  # commands take a part of the channels' time
        self.assertLess(dense["value"], dense["peak"])
        self.assertGreater(dense["value"], 0.7 * dense["peak"])
        # What the queues do not hold is a row with its reason.
        skipped = [row["figure"] for row in sheet["rates"] if row["skipped"]]
        self.assertEqual(len(skipped), 3, sheet["rates"])
        self.assertIn("256 requests do not fit into 4 queues", sheet["rates"][2]["skipped"])

    def test_mistakes(self):
        run = csdsim("datasheet", "micron-9550-max")
        self.assertEqual(run.returncode, 2)
        self.assertIn("is neither a drive nor a scenario file (did you mean micron-9550-max-6.4tb?)", run.stderr)
        run = csdsim("datasheet", DRIVE, "--model", "llama-3-8")
        self.assertIn("--model: there is no model 'llama-3-8' (did you mean llama-3-8b?)", run.stderr)

    def test_check_prints_capacity_and_peaks(self):
        run = csdsim("check", DRIVE)
        self.assertIn("scenarios/my_ssd.yaml: ok\n  drive: 3.850 GB exported, of 4.295 GB of flash (10.4 % of it spare); "
                      "peaks: 320.0 k IOPS of 4 KiB reads, ", run.stdout)
        # Its scenario states no time of the controller.
        self.assertIn("nvme.pipeline_time: the controller takes no time per command", run.stderr)
        for key in ("firmware_time=1 us", "pipeline_time=0 us"):
            self.assertNotIn("the controller takes no time", csdsim("check", DRIVE, "--set", f"platform.device.nvme.{key}").stderr)

    def test_words_of_a_data_sheet_lead_to_keys(self):
        flash = "platform.device.flash."
        for key, value, says in (
                ("channels", 8, f"unknown key 'channels' (did you mean {flash}channels?)"),
                ("flash.channels", 8, f"unknown key 'flash' (did you mean {flash}channels?)"),
                ("flash.chanels", 8, f"unknown key 'flash' (did you mean {flash}channels?)"),
                ("platform.device.over_provisioning", 0.1,
                 "unknown key 'over_provisioning' in platform.device (did you mean platform.device.ftl.over_provisioning?)"),
                (flash + "cell", "tlc", f"(did you mean {flash}page_types.cell or {flash}reliability.cell?)"),
                (flash + "tlc", "true", f"('tlc' is a value of {flash}page_types.cell and {flash}reliability.cell)"),
                ("bandwidth", "1 GB/s", "(csdsim describe bandwidth shows "),
                ("platform.device.ftl.over_provisioning", 7, "7 is out of range: 0 to 0.9, a share (did you mean 7 %?)"),
                ("sweep.axes.channels", "[4, 8]", f"unknown path 'channels' (did you mean {flash}channels?)")):
            run = csdsim("check", DRIVE, "--set", f"{key}={value}")
            self.assertEqual(run.returncode, 2, run.stdout)
            self.assertIn(says, run.stderr)
        self.assertIn("('tlc' is a value of ", csdsim("describe", "tlc").stderr)
        self.assertIn("(did you mean platform.device.flash.channels?)", csdsim("describe", "flash.chanels").stderr)
        for short in ("flash.channels", "device.flash.channels"):
            self.assertIn("\nplatform.device.flash.channels ", csdsim("describe", short).stdout)
        self.assertTrue(csdsim("describe", "device.flash").stdout.startswith("platform.device.flash: "))
        bits = csdsim("check", DRIVE, "--set", f"{flash}channel_bandwidth=1.4 Gb/s")
        self.assertEqual(bits.returncode, 0)
        self.assertIn(f"{flash}channel_bandwidth: 1.4 Gb/s counts bits: it is 175 MB/s", bits.stderr)


if __name__ == "__main__":
    unittest.main()
