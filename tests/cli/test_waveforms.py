"""csdsim run --vcd. Usage: test_waveforms.py CSDSIM SOURCE_DIR"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:3]
AT = ["--set", "platform.device.fidelity=at"]
TOKENS = ["--set", "workload.output_tokens=3"]
READS = ["--set", "workload.requests=50", "--set", "workload.queue_depth=4"]


def csdsim(*args):
    return subprocess.run([CSDSIM, *map(str, args)], cwd=SOURCE, capture_output=True, text=True, timeout=300)


class Waveforms(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.file = pathlib.Path(self.directory.name) / "w.vcd"

    def tearDown(self):
        self.directory.cleanup()

    def result(self, scenario, *args):
        run = csdsim("run", f"scenarios/{scenario}.yaml", *args, "--format", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)  # SystemC prints nothing in between

    def test_a_run_with_waveforms_has_the_result_of_a_run_with_fidelity_fast(self):
        for scenario, brief, names in (
                ("quickstart", TOKENS, ("argtopk", "kernels", "waiting", "buffer_bytes", "firmware_cores")),
                ("block_read", READS, ("bus_state", "page_buffers", "queue", "busy"))):
            waves, fast = self.result(scenario, *brief, *AT, "--vcd", self.file), self.result(scenario, *brief)
            self.assertEqual(waves["metrics"], fast["metrics"])
            self.assertEqual(waves["breakdown"], fast["breakdown"])
            text = self.file.read_text()
            for name in names:
                self.assertTrue(name in text, name)
            times = [int(line[1:]) for line in text.splitlines() if line.startswith("#")]
            self.assertGreater(len(times), 50)
            self.assertEqual(times, sorted(times))

    def refused(self, says, *args):
        run = csdsim("run", *args)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn(says, run.stderr)

    def test_what_cannot_be_written_is_refused(self):
        quickstart = "scenarios/quickstart.yaml"
        self.refused("platform.device.fidelity: at", quickstart, *TOKENS, "--vcd", self.file)
        self.refused("ends in .vcd", quickstart, *TOKENS, *AT, "--vcd", self.file.with_suffix(".txt"))
        self.refused("cannot be written", quickstart, *TOKENS, *AT, "--vcd", self.file.parent / "none" / "w.vcd")
        self.refused("--vcd: takes one scenario", quickstart, "scenarios/block_read.yaml", *AT, "--vcd", self.file)
        self.refused("the run reads this file", quickstart, *TOKENS, *AT, "--vcd", SOURCE / quickstart)
        self.refused("no drive", "scenarios/ftl_policies.yaml", "--vcd", self.file)


if __name__ == "__main__":
    unittest.main()
