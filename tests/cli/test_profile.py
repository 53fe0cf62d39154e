"""csdsim profile-gpu from a model. Usage: test_profile.py CSDSIM SOURCE_DIR"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:3]
SCENARIO = SOURCE / "scenarios/papers/kvpr.yaml"
SHORT = ["--set", "workload.input_tokens=256", "--set", "workload.output_tokens=4", "--set", "model.layers=4"]


def csdsim(*args):
    return subprocess.run([CSDSIM, *map(str, args)], cwd=SOURCE, capture_output=True, text=True, timeout=300)


class Profile(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def profile(self, *args):
        run = csdsim("profile-gpu", "--out", self.out / "gpu.yaml", *args)
        self.assertEqual(run.returncode, 0, run.stderr)
        return (self.out / "gpu.yaml").read_text()

    def run_with(self, preset):
        """A run of SCENARIO with a preset of the file in the place of its GPU; without, of SCENARIO."""
        path = SCENARIO
        if preset:
            text = re.sub(r"  gpu:\n(    .*\n)*", f"  gpu: {{preset: {preset}}}\n", SCENARIO.read_text(), count=1)
            path = self.out / "own.yaml"
            path.write_text(text.replace("csdsim: 1\n", "csdsim: 1\npresets: [gpu.yaml]\n", 1))
        run = csdsim("run", path, *SHORT, "--out", self.out)
        self.assertEqual(run.returncode, 0, run.stderr)
        result = json.loads((self.out / "result.json").read_text())
        return result["metrics"]["tpot_s"], int(result["stats"]["recomputed_tokens"].split()[0])

    def test_the_preset_gives_the_times_and_splits_of_the_model(self):
        text = self.profile("--scenario", SCENARIO)
        for value in ("bandwidth: {v: 24.60 GB/s, src: assumed, cite: 'csdsim profile-gpu, from the model of kvpr.yaml",
                      "rows: {v: [16, 64, 128, 256, 512, 1024, 4096, 16384, 65536], src: assumed", "memory: {v: 40960 MiB"):
            self.assertIn(value, text)
        tpot, split = self.run_with(None)
        own_tpot, own_split = self.run_with("a100-modelled")
        self.assertAlmostEqual(own_tpot / tpot, 1, delta=0.005)
        self.assertLessEqual(abs(own_split - split), 1)
        self.assertGreater(split, 0)

    def test_the_split_follows_the_rates_of_the_file(self):
        text = self.profile("--scenario", SCENARIO, "--name", "mine", "--set", "platform.gpu.memory_bandwidth=100 GB/s")
        self.assertEqual(re.findall(r"^  (mine\S*):$", text, re.M), ["mine"])
        whole = self.run_with("mine")[1]
        # Slower products of so many rows move the split, whatever the others are.
        rates = re.search(r"rates: \{v: \[(.*?)\]", text).group(1)
        slower = ", ".join(f"{int(rate.split()[0]) // 4} MFLOPS" for rate in rates.split(", "))
        (self.out / "gpu.yaml").write_text(text.replace(rates, slower))
        self.assertLess(self.run_with("mine")[1], whole)
        (self.out / "gpu.yaml").write_text(text.replace("65536]", "16384]"))
        run = csdsim("check", self.out / "own.yaml")
        self.assertEqual(run.returncode, 2)
        self.assertIn("platform.gpu.gemm_by_rows: 16384 rows come after 16384, give them in rising order", run.stderr)
        (self.out / "gpu.yaml").write_text(text.replace("24.60 GB/s", "2.46 GB/s"))
        self.assertGreater(self.run_with("mine")[1], whole)

    def test_overrides_and_what_is_refused(self):
        self.assertIn("bandwidth: {v: 5.00 GB/s", self.profile("--scenario", SCENARIO, "--set",
                                                                "platform.gpu.link.bandwidth=5 GB/s"))
        for args, message in ((("--set", "a=b"), "--set belongs to --scenario"),
                              (("--scenario", SCENARIO, "--set", "platform.gpu.timing=measured"), "measures its GPU"),
                              (("--scenario", "none.yaml"), "none.yaml")):
            run = csdsim("profile-gpu", "--out", self.out / "x.yaml", *args)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(message, run.stderr)
            self.assertFalse((self.out / "x.yaml").exists())


if __name__ == "__main__":
    unittest.main()
