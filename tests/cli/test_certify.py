"""csdsim certify. Usage: test_certify.py CSDSIM SOURCE_DIR"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
del sys.argv[1:]
# A 64th of the drive that stands for a scenario.
SMALL = ["--set", "platform.device.flash.pages_per_block=32"]


def csdsim(*args):
    return subprocess.run([CSDSIM, "certify", *map(str, args)], cwd=SOURCE, capture_output=True, text=True, timeout=600)


class Certify(unittest.TestCase):
    def test_an_object_size_and_a_rate_are_enough(self):
        with tempfile.TemporaryDirectory() as out:
            made = csdsim("--object", "4MiB", "--writes", "2TB/day", *SMALL, "--format", "json", "--out", out)
            self.assertEqual(made.returncode, 0, made.stderr)
            certificate = json.loads(made.stdout)
            self.assertEqual(certificate, json.loads((pathlib.Path(out) / "certificate.json").read_text()))
        self.assertEqual(certificate["bytes_per_day"]["new"], 2e12)
        self.assertEqual(certificate["drive_lifetime_years"]["seeds"], 3)
        self.assertEqual([row["change"] for row in certificate["changes"]],
                         ["a quarter less data", "10 % more flash, the same capacity"])
        self.assertIn("[1/5] seed 1", made.stderr)

    def test_the_table_states_what_json_states(self):
        args = ["--object", "4MiB", *SMALL, "--only", "--seeds", "1", "-q"]
        table, stated = csdsim(*args), json.loads(csdsim(*args, "--format", "json").stdout)
        self.assertEqual(table.returncode, 0, table.stderr)
        self.assertEqual(table.stderr, "")
        self.assertIn(f"{stated['drive_lifetime_years']['mean']:.4g}", table.stdout)
        self.assertIn(f"{stated['write_amplification']['late']:.4g}", table.stdout)
        self.assertEqual(stated["changes"], [])

    def test_a_finished_run_is_certified(self):
        with tempfile.TemporaryDirectory() as out:
            small = ["--set", "platform.device.flash.pages_per_block=16"]
            subprocess.run([CSDSIM, "run", "scenarios/endurance/store.yaml", *small, "--out", out, "-q"], cwd=SOURCE,
                           capture_output=True, check=True, timeout=600)
            args = ["--seeds", 1, "--only", "-q", "--format", "json", "--writes", "1TB/day"]
            of_run = csdsim(out, *args, "--out", out)
            self.assertEqual(of_run.returncode, 0, of_run.stderr)
            self.assertEqual(of_run.stdout, csdsim("scenarios/endurance/store.yaml", *small, *args).stdout)
            result = json.loads((pathlib.Path(out) / "result.json").read_text())
            stated = json.loads(of_run.stdout)
            self.assertEqual(stated["write_amplification"]["whole_run"], result["metrics"]["write_amplification"])
            self.assertEqual(stated["samples"], result["breakdown"]["samples"])
            page = (pathlib.Path(out) / "certificate.html").read_text()
            self.assertIn("How long does the drive live?", page)
            self.assertIn("capacities written", page)
            report = subprocess.run([CSDSIM, "report", out], capture_output=True, text=True, timeout=600)
            self.assertEqual(report.returncode, 0, report.stderr)
            self.assertIn("capacities written", (pathlib.Path(out) / "report.html").read_text())

    def test_a_serving_run_is_certified_as_its_scenario(self):
        with tempfile.TemporaryDirectory() as out:
            small = ["--set", "workload.generate.requests=30"]
            subprocess.run([CSDSIM, "run", "scenarios/serving/second_sighting.yaml", *small, "--out", out, "-q"],
                           cwd=SOURCE, capture_output=True, check=True, timeout=600)
            args = ["--seeds", 1, "--only", "--format", "json"]
            of_run = csdsim(out, *args)
            self.assertEqual(of_run.returncode, 0, of_run.stderr)
            self.assertNotIn("serving", of_run.stderr)  # not run again
            of_scenario = csdsim("scenarios/serving/second_sighting.yaml", *small, *args)
            self.assertIn("serving", of_scenario.stderr)
            self.assertEqual(of_run.stdout, of_scenario.stdout)
            # A result has all values of its drive: a preset in their place would change nothing.
            other = csdsim(out, *args, "--set", "platform.device.preset=samsung-pm9d3a-7.68tb")
            self.assertEqual(other.returncode, 2)
            self.assertIn("give the scenario file to certify another one", other.stderr)

    def test_mistakes_are_named(self):
        with tempfile.TemporaryDirectory() as empty:
            refused = csdsim(empty)
            self.assertEqual(refused.returncode, 2)
            self.assertIn("holds no result.json", refused.stderr)
            (pathlib.Path(empty) / "result.json").write_text('{"metrics": {}}')
            self.assertIn("does not say what was run", csdsim(empty).stderr)
        for args, why in [([], "--object"), (["--object", "4MiB", "--writes", "2TB"], "2TB/day"),
                          (["--object", "4MiB", "--writes", "0/day"], "--writes"), (["--object", "4 cats"], "--object"),
                          (["scenarios/block_read.yaml", "-q"], "kind objects"),
                          (["scenarios/endurance/store.yaml", "--object", "1MiB"], "--object"),
                          (["scenarios/endurance/store.yaml", "--format", "csv"], "--format")]:
            refused = csdsim(*args)
            self.assertEqual(refused.returncode, 2, args)
            self.assertIn(why, refused.stderr)


if __name__ == "__main__":
    unittest.main()
