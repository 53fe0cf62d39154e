"""What generate and eval state of their tokens beside which they are. Usage: test_generated_tokens.py CSDSIM SOURCE_DIR"""
import csv
import json
import math
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:3]
GOLDEN = SOURCE / "tests/data/golden"


def read_safetensors(path):
    """Tensors of fp32 by name: shape and values."""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 8 == 0
    tensors = {}
    for name, entry in json.loads(data[8:8 + length]).items():
        begin, end = (8 + length + at for at in entry["data_offsets"])
        assert entry["dtype"] == "F32"
        tensors[name] = entry["shape"], struct.unpack(f"<{(end - begin) // 4}f", data[begin:end])
    return tensors


def log_softmax(row):
    largest = max(row)
    total = math.log(math.fsum(math.exp(x - largest) for x in row)) + largest
    return [x - total for x in row]


class GeneratedTokens(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)
        self.ids = self.out / "ids.txt"

    def tearDown(self):
        self.directory.cleanup()

    def run_csdsim(self, *args, status=0):
        run = subprocess.run([CSDSIM, *map(str, args)], capture_output=True, text=True, timeout=120)
        self.assertEqual(run.returncode, status, run.stderr + run.stdout)
        return run

    def generate(self, *args):
        self.printed = self.run_csdsim("generate", "--out", self.out, *args).stdout
        return json.loads((self.out / "result.json").read_text())

    def test_prompt_ids(self):
        result = self.generate("--model", SOURCE / "models/opt-6m", "--prompt", "<s>static int", "--max-new-tokens", 2, "--attention", "host")
        self.assertEqual(result["prompt_tokens"][0], 1)
        self.assertEqual(len(result["tokens"]), 2)

    def test_logprobs_and_logits_are_those_of_the_choice(self):
        golden = json.loads((GOLDEN / "llama/golden.json").read_text())["tokens"]
        self.ids.write_text(" ".join(map(str, golden[:24])))
        logits = self.out / "x.safetensors"
        for attention in ("host", "drive"):
            result = self.generate("--model", GOLDEN / "llama", "--tokens", self.ids, "--max-new-tokens", 6, "--attention", attention,
                                   "--logprobs", 3, "--logits", logits)
            self.assertEqual(result["prompt_tokens"], golden[:24])
            self.assertEqual(result["tokens"], golden[24:30])
            (shape, values), = read_safetensors(logits).values()
            self.assertEqual(shape, [6, 512])
            for step, entry in enumerate(result["logprobs"]):
                expected = log_softmax(values[512 * step:512 * (step + 1)])
                best = sorted(range(512), key=lambda i: -expected[i])[:3]
                self.assertEqual(entry["token"], result["tokens"][step])
                self.assertAlmostEqual(entry["logprob"], expected[entry["token"]], places=5)
                self.assertEqual([i for i, _ in entry["top"]], best)
                for i, logprob in entry["top"]:
                    self.assertAlmostEqual(logprob, expected[i], places=5)

    def test_logits_are_those_of_transformers(self):
        golden = json.loads((GOLDEN / "llama/golden.json").read_text())
        at = golden["positions"].index(23)  # the last token of the prompt
        self.ids.write_text(" ".join(map(str, golden["tokens"][:24])))
        self.generate("--model", GOLDEN / "llama", "--tokens", self.ids, "--max-new-tokens", 1, "--attention", "host", "--logits",
                      self.out / "x")
        found = read_safetensors(self.out / "x")["logits.0"][1]
        data = (GOLDEN / "llama/logits.safetensors").read_bytes()
        length = int.from_bytes(data[:8], "little")
        begin = json.loads(data[8:8 + length])["logits_f32"]["data_offsets"][0] + 8 + length + at * 512 * 4
        expected = struct.unpack("<512f", data[begin:begin + 2048])
        self.assertLess(max(abs(a - b) for a, b in zip(found, expected)), 1e-2 * golden["max_abs_logit"])

    def test_a_batch_of_prompts(self):
        prompts = ["5 6 7", "8", "9 10 11 12"]
        alone = []
        for prompt in prompts:
            self.ids.write_text(prompt)
            alone.append(self.generate("--model", GOLDEN / "llama", "--tokens", self.ids, "--max-new-tokens", 4)["tokens"])
        self.ids.write_bytes(b"5 6 7\r8\r")
        run = subprocess.run([CSDSIM, "generate", "--model", GOLDEN / "llama", "--tokens", self.ids], capture_output=True, text=True)
        self.assertEqual(run.returncode, 2)
        self.assertIn(f"{self.ids}:1:6: error: a carriage return inside a line", run.stderr)
        self.ids.write_text("\n".join(prompts[:2]) + "\n\n" + prompts[2] + "\n")
        for attention in ("host", "drive"):
            result = self.generate("--model", GOLDEN / "llama", "--tokens", self.ids, "--max-new-tokens", 4, "--attention", attention,
                                   "--logprobs", 0)
            self.assertEqual(result["tokens"], alone)
            self.assertEqual(result["prompt_tokens"], [[int(i) for i in p.split()] for p in prompts])
            self.assertEqual([[e["token"] for e in of] for of in result["logprobs"]], alone)
            self.assertEqual(self.printed.splitlines(), [" ".join(map(str, tokens)) for tokens in alone])

    def test_stop_at_eos(self):
        model = self.out / "model"
        shutil.copytree(GOLDEN / "llama", model)
        self.ids.write_text("5 6 7\n9")
        ask = ["--model", model, "--tokens", self.ids, "--max-new-tokens", 8, "--attention", "host"]
        whole = self.generate(*ask)["tokens"]
        run = self.run_csdsim("generate", *ask, "--stop-at-eos", status=2)
        self.assertIn("eos_token_id", run.stderr)
        end = whole[0][3]
        (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [end, 511]}))
        result = self.generate(*ask, "--stop-at-eos", "--logprobs", 1, "--logits", self.out / "x")
        cut = [tokens[:tokens.index(end) + 1] if end in tokens else tokens for tokens in whole]
        self.assertEqual(result["tokens"], cut)
        self.assertLess(len(cut[0]), 8)
        self.assertEqual([len(of) for of in result["logprobs"]], [len(tokens) for tokens in cut])
        self.assertEqual(read_safetensors(self.out / "x")["logits.0"][0], [len(cut[0]), 512])
        self.assertEqual(result["stats"]["ended_texts"], sum(end in tokens for tokens in whole))

    def test_likelihood_of_every_token(self):
        model, nll = SOURCE / "models/opt-6m", self.out / "nll.csv"
        self.run_csdsim("eval", "--model", model, "--text", model / "sample.txt", "--prefill", 32, "--decode", 9, "--windows", 3, "--method",
                        "dense", "--method", "sparq", "--ratio", "1/4", "--no-recall", "--nll", nll, "--out", self.out, "-q")
        rows = list(csv.DictReader(nll.read_text().splitlines()))
        self.assertEqual(len(rows), 2 * 3 * 8)
        for row in json.loads((self.out / "result.json").read_text())["rows"]:
            values = [float(r["nll"]) for r in rows if r["method"] == row["method"]]
            self.assertAlmostEqual(math.exp(sum(values) / len(values)) / row["perplexity"], 1, places=9)
        self.assertEqual({int(r["position"]) for r in rows}, set(range(33, 41)))

    def test_what_is_refused(self):
        self.ids.write_text("5")
        ask = ["generate", "--model", GOLDEN / "llama", "--tokens", self.ids, "--max-new-tokens", 1, "--attention", "host"]
        self.assertIn("--out", self.run_csdsim(*ask, "--logprobs", 2, status=2).stderr)
        self.assertIn("vocabulary of 512", self.run_csdsim(*ask, "--logprobs", 513, "--out", self.out, status=2).stderr)
        self.assertIn("cannot be written", self.run_csdsim(*ask, "--logits", self.out / "none/x", status=2).stderr)
        self.ids.write_text("\n  \n")
        self.assertIn("holds no token id", self.run_csdsim(*ask, status=2).stderr)


if __name__ == "__main__":
    unittest.main()
