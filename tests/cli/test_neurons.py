"""csdsim eval with predicted neurons, on the checkpoints of the project. Usage: test_neurons.py CSDSIM SOURCE_DIR"""
import csv
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:3]
OPT, LLAMA = SOURCE / "models/opt-6m", SOURCE / "models/llama-gqa-6m"
PREDICTOR = OPT / "predictor.safetensors"


def csdsim(*args):
    return subprocess.run([CSDSIM, *map(str, args)], cwd=SOURCE, capture_output=True, text=True, timeout=300)


class Neurons(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def ask(self, model, *args):
        return ["eval", "--model", model, "--text", OPT / "sample.txt", "--prefill", 128, "--decode", 12, "--windows", 2, *args]

    def evaluated(self, model, *args):
        run = csdsim(*self.ask(model, *args), "--out", self.out)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads((self.out / "result.json").read_text())

    def refused(self, model, *args, says):
        run = csdsim(*self.ask(model, *args))
        self.assertEqual(run.returncode, 2, run.stderr + run.stdout)
        for text in says:
            self.assertIn(text, run.stderr)

    def test_thresholds_and_ranks_of_the_trained_predictor(self):
        result = self.evaluated(OPT, "--predictor", PREDICTOR, "--threshold", "0.1,0.5,0.9", "--rank", "16,64")
        rows = result["rows"]
        self.assertEqual([(r["rank"], r["threshold"]) for r in rows], [(r, t) for r in (16, 64) for t in (0.1, 0.5, 0.9)])
        for first, second in zip(rows, rows[1:]):
            if first["rank"] == second["rank"]:
                self.assertGreater(first["predicted_share"], second["predicted_share"])
                self.assertLess(first["false_negatives"], second["false_negatives"])
        half = rows[4]
        self.assertLess(half["false_negatives"], rows[1]["false_negatives"])
        self.assertLess(half["predicted_per_firing"], 2)
        self.assertLess(abs(half["vs_dense"]), 0.02)
        self.assertEqual(half["active_share"], half["predicted_share"])
        self.assertEqual(len(half["layers"]), 6)
        with open(self.out / "eval.csv") as file:
            table = list(csv.DictReader(file))
        self.assertEqual([float(row["perplexity"]) for row in table], [row["perplexity"] for row in rows])
        self.assertIn("rank 64", (self.out / "eval.html").read_text())

    def test_ranks_by_layer(self):
        row = self.evaluated(OPT, "--predictor", PREDICTOR, "--rank", "16,16:16:16:16:64:64,64")["rows"]
        self.assertEqual([r["rank"] for r in row], [16, [16, 16, 16, 16, 64, 64], 64])
        # The first layer sees the same inputs; its share of neurons is that of its own rank.
        self.assertEqual(row[0]["layers"][0], row[1]["layers"][0])
        self.assertNotEqual(row[0]["layers"][0], row[2]["layers"][0])
        self.assertLess(row[1]["layers"][5]["false_negatives"], row[0]["layers"][5]["false_negatives"])
        self.assertIn("rank 16:16:16:16:64:64", (self.out / "eval.html").read_text())
        self.assertIn("16:16:16:16:64:64", (self.out / "eval.csv").read_text())
        self.refused(OPT, "--predictor", PREDICTOR, "--rank", "16:64", says=["2 ranks for 6 layers"])
        self.refused(OPT, "--predictor", PREDICTOR, "--rank", "16:x", says=["--rank 16:x"])

    def test_a_scenario_with_the_predictor_of_another_checkpoint_is_refused_by_check(self):
        other = self.out / "other"
        shutil.copytree(OPT, other)
        weights = bytearray((other / "model.safetensors").read_bytes())
        weights[-1] ^= 1
        (other / "model.safetensors").write_bytes(weights)
        scenario = self.out / "s.yaml"
        scenario.write_text("csdsim: 1\nmodel: {path: %s}\nsystem: {kind: llm-in-a-flash, predictor: trained}\n"
                            "workload: {kind: generation, batch: 1, input_tokens: 8, output_tokens: 8}\n"
                            "simulation: {data: carried}\n" % other)
        run = csdsim("check", scenario)
        self.assertEqual(run.returncode, 2, run.stderr)
        self.assertIn("s.yaml:3:43: error: system.predictor: ", run.stderr + run.stdout)
        self.assertIn("another checkpoint", run.stderr + run.stdout)

    def test_the_price_of_few_bits(self):
        plain = self.evaluated(OPT, "--predictor", "oracle")
        self.assertNotIn("unquantised_perplexity", plain["metrics"])
        prices = []
        for bits, group in ((8, 64), (4, 16), (4, 256)):
            result = self.evaluated(OPT, "--predictor", "oracle", "--weight-bits", bits, "--weight-group", group)
            metrics, row = result["metrics"], result["rows"][0]
            self.assertEqual(metrics["unquantised_perplexity"], plain["metrics"]["dense_perplexity"])
            self.assertEqual(row["perplexity"], metrics["dense_perplexity"])  # the oracle knows what fires
            self.assertEqual(row["vs_unquantised"], metrics["dense_vs_unquantised"])
            prices.append(abs(row["vs_unquantised"]))
        self.assertGreater(prices[0], 0)
        self.assertLess(prices[0], 0.005)
        self.assertLess(prices[0], prices[1])
        self.assertLess(prices[1], prices[2])
        self.refused(OPT, "--predictor", "oracle", "--weight-bits", 5, says=["--weight-bits"])
        self.refused(OPT, "--predictor", "oracle", "--weight-group", 5, says=["16 bits"])
        self.refused(OPT, "--weight-bits", 4, says=["--predictor"])

    def test_the_oracle_and_its_window(self):
        one = self.evaluated(OPT, "--predictor", "oracle")
        self.assertEqual(one["rows"][0]["perplexity"], one["metrics"]["dense_perplexity"])
        self.assertEqual(one["rows"][0]["false_negatives"], 0)
        five = self.evaluated(OPT, "--predictor", "oracle", "--window", 5)
        self.assertEqual(five["rows"][0]["perplexity"], one["metrics"]["dense_perplexity"])
        self.assertGreater(five["rows"][0]["active_share"], one["rows"][0]["active_share"])
        self.assertEqual(five["rows"][0]["predicted_share"], one["rows"][0]["predicted_share"])

    def test_a_recording_holds_what_was_counted(self):
        file = self.out / "neurons.json"
        for predictor in ([], ["--predictor", PREDICTOR, "--threshold", "0.5"]):
            row = self.evaluated(OPT, *predictor, "--record-neurons", file)["rows"][0]
            recorded = json.loads(file.read_text())
            self.assertEqual((recorded["neurons"], len(recorded["stretches"]), len(recorded["stretches"][0])), (1024, 2, 6))
            for layer, shares in enumerate(row["layers"]):
                tokens = [len(token) for stretch in recorded["stretches"] for token in stretch[layer]]
                self.assertEqual(len(tokens), 2 * 11)
                self.assertAlmostEqual(sum(tokens) / len(tokens) / 1024, shares["predicted_share"])
                self.assertAlmostEqual(recorded["active_within"]["layers"][layer][0], shares["predicted_share"])
            self.assertLess(recorded["locality"]["mean"]["worst_error"], 0.2)

    def test_fatrelu_makes_the_gated_network_sparse(self):
        self.refused(LLAMA, "--predictor", "oracle", says=["all neurons", "--fatrelu"])
        low = self.evaluated(LLAMA, "--predictor", "oracle", "--fatrelu", "0.2")
        high = self.evaluated(LLAMA, "--predictor", "oracle", "--fatrelu", 1)
        silu = self.evaluated(LLAMA, "--method", "dense", "--no-recall")
        for run in (low, high):
            self.assertEqual(run["rows"][0]["perplexity"], run["metrics"]["dense_perplexity"])
        self.assertGreater(low["rows"][0]["firing_share"], high["rows"][0]["firing_share"])
        same = self.evaluated(LLAMA, "--method", "dense", "--no-recall", "--fatrelu", 1)
        # The two evaluations add up the same logarithms in different orders.
        dense = high["metrics"]["dense_perplexity"]
        self.assertAlmostEqual(same["metrics"]["dense_perplexity"], dense, delta=1e-12 * dense)
        self.assertNotEqual(same["metrics"]["dense_perplexity"], silu["metrics"]["dense_perplexity"])
        self.refused(OPT, "--predictor", "oracle", "--fatrelu", "0.5", says=["opt has ReLU"])
        trained = ["--predictor", LLAMA / "predictor.safetensors", "--threshold", "0.5"]
        row = self.evaluated(LLAMA, *trained, "--fatrelu", "0.7")["rows"][0]
        self.assertLess(abs(row["vs_dense"]), 0.1)  # of 22 tokens: see docs/llm_in_a_flash.md for many
        self.assertLess(row["predicted_per_firing"], 2)
        self.refused(LLAMA, *trained, "--fatrelu", "0.5", says=["trained with FATReLU 0.7"])

    def test_generate_with_fatrelu(self):
        def tokens(*args):
            run = csdsim("generate", "--model", LLAMA, "--prompt", "The kernel", "--max-new-tokens", 8, *args, "--out", self.out)
            self.assertEqual(run.returncode, 0, run.stderr)
            return json.loads((self.out / "result.json").read_text())["tokens"]
        self.assertNotEqual(tokens(), tokens("--fatrelu", 3))
        run = csdsim("generate", "--model", OPT, "--prompt", "The kernel", "--fatrelu", 1)
        self.assertEqual(run.returncode, 2)
        self.assertIn("model.fatrelu", run.stderr)

    def test_mistakes(self):
        self.refused(OPT, "--predictor", "nowhere.safetensors", says=["nowhere.safetensors"])
        self.refused(OPT, "--predictor", PREDICTOR, "--rank", 65, says=["rank 65", "1 to the 64"])
        self.refused(OPT, "--predictor", PREDICTOR, "--rank", 0, says=["rank 0"])
        for threshold in ("0", "1", "1.5"):
            self.refused(OPT, "--predictor", PREDICTOR, "--threshold", threshold, says=["between 0 and 1"])
        self.refused(OPT, "--predictor", PREDICTOR, "--threshold", "x", says=["x"])
        self.refused(OPT, "--predictor", "oracle", "--threshold", "0.5", says=["oracle"])
        self.refused(OPT, "--predictor", "oracle", "--window", 0, says=["window of 0"])
        self.refused(OPT, "--predictor", "oracle", "--method", "sparq", says=["--method"])
        self.refused(OPT, "--predictor", PREDICTOR, "--threshold", "0.5,0.6", "--record-neurons", self.out / "x", says=["one setting"])
        self.refused(OPT, "--threshold", "0.5", says=["--predictor"])
        other = self.out / "other"
        shutil.copytree(OPT, other)
        data = bytearray((other / "model.safetensors").read_bytes())
        data[-1] ^= 1
        (other / "model.safetensors").write_bytes(data)
        self.refused(other, "--predictor", PREDICTOR, says=["belongs to another checkpoint", "CRC-32"])
        broken = self.out / "broken.safetensors"
        broken.write_bytes(PREDICTOR.read_bytes()[:-2])
        self.refused(OPT, "--predictor", broken, says=["broken.safetensors"])
        self.refused(LLAMA, "--predictor", PREDICTOR, "--fatrelu", 1, says=["another checkpoint"])


if __name__ == "__main__":
    unittest.main()
