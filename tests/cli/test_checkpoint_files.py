"""Checkpoints whose files are not what they should be, and contexts that just fit. Usage: test_checkpoint_files.py CSDSIM SOURCE_DIR"""
import copy
import json
import os
import pathlib
import random
import resource
import shutil
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

    def test_attention_on_the_host_needs_no_platform(self):
        # A drive without a place for a page of rows, a GPU without memory, and host memory for nothing.
        broken = ["--set", "platform.gpu.memory=1 MiB", "--set", "platform.host.memory=1 MiB", "--set", "platform.device.flash.blocks_per_plane=8"]
        ask = ["--model", self.model, "--prompt", "static int", "--max-new-tokens", 3, "--seed", 7, *broken]
        self.refused("platform", ask=ask)
        run = self.generate(*ask, "--attention", "host", "--out", self.out)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn("platform", json.loads((self.out / "result.json").read_text())["scenario"])

    def test_a_negative_seed(self):
        self.refused("--seed", ask=["--model", self.model, "--prompt", "x", "--seed", -1])


class CorruptCheckpoints(unittest.TestCase):
    """100 checkpoints with one mistake each end with exit status 2, a located message, one second of CPU time and 100 MB."""

    SEED, GOLDEN = 20, SOURCE / "tests/data/golden"

    def setUp(self):
        self.random = random.Random(self.SEED)
        self.directory = tempfile.TemporaryDirectory()
        self.model = pathlib.Path(self.directory.name) / "model"
        self.checked, self.largest = 0, 0

    def tearDown(self):
        self.directory.cleanup()

    def fresh(self, name):
        shutil.rmtree(self.model, ignore_errors=True)
        shutil.copytree(self.GOLDEN / name, self.model)

    def check(self, what, *says):
        def limit():
            resource.setrlimit(resource.RLIMIT_CPU, (1, 2))

        ask = [CSDSIM, "generate", "--model", self.model, "--prompt", "a 12 b", "--max-new-tokens", "3", "--attention", "host"]
        with open(self.model / "stderr", "w+") as err, subprocess.Popen(ask, stdout=subprocess.DEVNULL, stderr=err, preexec_fn=limit) as child:
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            err.seek(0)
            message = err.read()
        with self.subTest(what, seed=self.SEED):
            self.assertEqual(child.returncode, 2, message)
            self.assertNotIn("internal error", message)
            for text in says:
                self.assertIn(text, message)
            self.assertLess(usage.ru_maxrss, 100 * 1024)
        self.checked += 1

    def edit(self, name, change):
        path = self.model / name
        document = json.loads(path.read_text())
        change(document)
        path.write_text(json.dumps(document))

    def edit_header(self, change):
        path = self.model / "model.safetensors"
        data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        header = json.loads(data[8:8 + length])
        change(header, self.random.choice([k for k in header if k != "__metadata__"]))
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length:])

    def truncated(self, name, count):
        for _ in range(count):
            self.fresh("mistral")
            path = self.model / name
            data = path.read_bytes().rstrip()
            at = self.random.randrange(len(data))
            path.write_bytes(data[:at])
            self.check(f"{name} of {at} bytes", name)

    def test_one_hundred(self):
        self.truncated("model.safetensors", 16)
        self.truncated("config.json", 8)
        self.truncated("tokenizer.json", 8)
        for length in (0, 1, 2**32, 2**63, 2**64 - 1, 99_999_999):
            self.fresh("mistral")
            path = self.model / "model.safetensors"
            path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
            self.check(f"a header of {length} bytes", "model.safetensors")

        def offsets(header, name, i, by):
            header[name]["data_offsets"][i] += by

        headers = {
            "no dtype": lambda h, n: h[n].pop("dtype"), "dtype I8": lambda h, n: h[n].update(dtype="I8"),
            "dtype F32": lambda h, n: h[n].update(dtype="F32"), "dtype 7": lambda h, n: h[n].update(dtype=7),
            "no shape": lambda h, n: h[n].pop("shape"), "longer": lambda h, n: h[n]["shape"].append(2),
            "negative": lambda h, n: h[n].update(shape=[-1, 2]), "huge": lambda h, n: h[n].update(shape=[2**40, 2**40]),
            "begins late": lambda h, n: offsets(h, n, 0, 2), "ends late": lambda h, n: offsets(h, n, 1, 2),
            "far away": lambda h, n: offsets(h, n, 1, 2**62), "gone": lambda h, n: h.pop(n), "a list": lambda h, n: h.update({n: []}),
            "renamed": lambda h, n: h.update({n + "x": h.pop(n)}), "integers": lambda h, n: h[n].update(dtype="I16"),
        }
        for what, change in headers.items():
            self.fresh("mistral")
            self.edit_header(change)
            self.check(f"tensor {what}", "model.safetensors")

        fields = ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size", "head_dim"]
        for field in fields:
            for value in (0, -3, "many", 2**40, [4]):
                self.fresh("mistral")
                self.edit("config.json", lambda c, f=field, v=value: c.update({f: v}))
                # head_dim: 0 is as if it were absent, as for Mistral in transformers 4: then the tensors have another shape.
                self.check(f"{field}: {value}", "config.json", "shape" if (field, value) == ("head_dim", 0) else field)
        for change in ({"hidden_size": 64}, {"num_hidden_layers": 3}, {"num_hidden_layers": 1}, {"num_key_value_heads": 4},
                       {"vocab_size": 511}, {"head_dim": 40}, {"model_type": "gpt5"}, {"hidden_act": "gelu"}):
            self.fresh("mistral")
            self.edit("config.json", lambda c, x=change: c.update(x))
            self.check(str(change), str(self.model))

        def vocabulary(t, value):
            t["model"]["vocab"][self.random.choice(list(t["model"]["vocab"]))] = value

        tokenizers = [lambda t: vocabulary(t, -1), lambda t: vocabulary(t, 2**31), lambda t: vocabulary(t, "x"),
                      lambda t: t["model"].update(merges=[["q", "zzz"]]), lambda t: t.update(pre_tokenizer=None),
                      lambda t: t.update(normalizer={"type": "Lowercase"}), lambda t: t.update(added_tokens=[{"id": 1}])]
        for number, change in enumerate(tokenizers):
            self.fresh("mistral")
            self.edit("tokenizer.json", change)
            self.check(f"tokenizer {number}", "tokenizer.json")
        for change in ({"a": 1}, {"model.norm.weight": "none.safetensors"}, {"model.norm.weight": "../x"}):
            self.fresh("llama3")
            self.edit("model.safetensors.index.json", lambda i, x=change: i["weight_map"].update(x))
            self.check(f"index {change}", "index.json")
        self.assertGreaterEqual(self.checked, 100)

    def test_weights_that_are_not_numbers(self):
        for value in (b"\xc0\x7f", b"\x80\x7f"):  # NaN and infinity in bf16
            self.fresh("mistral")
            path = self.model / "model.safetensors"
            data = bytearray(path.read_bytes())
            length = int.from_bytes(data[:8], "little")
            begin, end = json.loads(data[8:8 + length])["model.layers.1.self_attn.k_proj.weight"]["data_offsets"]
            data[8 + length + begin:8 + length + end] = value * ((end - begin) // 2)
            path.write_bytes(data)
            self.check(value, "layer 1: K of token 0")


if __name__ == "__main__":
    unittest.main()
