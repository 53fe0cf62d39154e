"""The same text file in the forms that editors and tools give it. Usage: test_text_files.py CSDSIM SOURCE_DIR"""
import itertools
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:]
SCENARIO = """csdsim: 1
name: forms
model: {layers: 1, heads: 2, kv_heads: 2, head_dim: 64, hidden_size: 128, ffn_size: 256, vocab_size: 100, max_positions: 512}
platform:
  gpu: {preset: a6000}
  host: {preset: xeon-5320}
  device: {preset: instcsd-zynq7045}
system: {kind: instinfer-dense}
workload: {kind: generation, batch: 2, requests: requests.csv}
"""
FILES = {"scenario.yaml": SCENARIO, "requests.csv": "arrival_s,input_tokens,output_tokens\n0,8,2\n0.5,9,2\n"}


def forms(text):
    """The text with and without a byte-order mark, CRLF, and the last newline."""
    for mark, crlf, last in itertools.product((b"", b"\xef\xbb\xbf"), (False, True), (True, False)):
        other = text if last else text.rstrip("\n")
        yield mark + (other.replace("\n", "\r\n") if crlf else other).encode()


class TextFiles(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def csdsim(self, *args):
        run = subprocess.run([CSDSIM, *map(str, args)], capture_output=True, text=True, timeout=120, cwd=self.out)
        self.assertEqual(run.returncode, 0, run.stderr + run.stdout)
        return run.stdout

    def test_scenarios_and_requests(self):
        for name, text in FILES.items():
            for other, content in FILES.items():
                (self.out / other).write_text(content)
            seen = set()
            for form in forms(text):
                (self.out / name).write_bytes(form)
                seen.add(self.csdsim("check", "scenario.yaml"))
            self.assertEqual(len(seen), 1, seen)

    def test_files_of_a_checkpoint_and_of_tokens(self):
        shutil.copytree(SOURCE / "tests/data/golden/qwen2", self.out / "model")
        (self.out / "ids.txt").write_text("1 2 3\n")
        ask = ("generate", "--model", "model", "--attention", "host", "-q", "--max-new-tokens", 3)
        for name in ("model/config.json", "model/tokenizer.json", "ids.txt"):
            path = self.out / name
            text, seen = path.read_text(), set()
            for form in forms(text):
                path.write_bytes(form)
                seen.add(self.csdsim(*ask, "--tokens", "ids.txt") + self.csdsim(*ask, "--prompt", "hello world"))
            self.assertEqual(len(seen), 1, (name, seen))
            path.write_text(text)


if __name__ == "__main__":
    unittest.main()
