"""Checkpoints whose files are not what they should be, and contexts that just fit. Usage: test_checkpoint_files.py CSDSIM SOURCE_DIR"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:3]
NAMES = ("config.json", "model.safetensors", "tokenizer.model")


class CheckpointFiles(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)
        self.model = self.out / "model"
        self.model.mkdir()
        for name in NAMES:
            self.link(name)

    def tearDown(self):
        self.directory.cleanup()

    def link(self, name):
        (self.model / name).unlink(missing_ok=True)
        os.symlink(SOURCE / "models/opt-6m" / name, self.model / name)

    def generate(self, *args):
        return subprocess.run([CSDSIM, "generate", *map(str, args)], capture_output=True, text=True, timeout=60)

    def refused(self, *says, ask=None):
        run = self.generate(*(ask or ["--model", self.model, "--prompt", "x", "--max-new-tokens", 1]))
        self.assertEqual(run.returncode, 2, run.stderr + run.stdout)
        self.assertNotIn("internal error", run.stderr)
        for text in says:
            self.assertIn(text, run.stderr)

    def test_a_git_lfs_pointer(self):
        for name in NAMES:
            (self.model / name).unlink()
            (self.model / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
            self.refused(name, "git-lfs pointer", "git lfs pull")
            self.link(name)

    def test_a_pickled_checkpoint(self):
        (self.model / "model.safetensors").unlink()
        (self.model / "pytorch_model.bin").touch()
        self.refused("no weights", "pytorch_model.bin", "safe_serialization")

    def test_a_fifo_does_not_hang(self):
        for name in NAMES:
            (self.model / name).unlink()
            os.mkfifo(self.model / name)
            self.refused(name, "FIFO")
            self.link(name)

    def test_a_loop_of_symbolic_links(self):
        for name in NAMES:
            (self.model / name).unlink()
            os.symlink(self.model / name, self.model / name)
            self.refused(name, "symbolic links")
            self.link(name)

    def test_the_last_token_needs_no_position(self):
        golden, tokens = SOURCE / "tests/data/golden/opt", self.out / "ids.txt"
        tokens.write_text("5")
        positions = json.loads((golden / "config.json").read_text())["max_position_embeddings"]
        ask = ["--model", golden, "--tokens", tokens, "--attention", "host", "--out", self.out, "--max-new-tokens"]
        run = self.generate(*ask, positions)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(len(json.loads((self.out / "result.json").read_text())["tokens"]), positions)
        self.refused(f"{positions} positions", ask=[*ask, positions + 1])


if __name__ == "__main__":
    unittest.main()
