"""csdsim eval --record of important tokens, and csdsim pools. Usage: test_pools.py CSDSIM SOURCE_DIR"""
import csv
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:3]
MODEL = SOURCE / "models/opt-6m"


def csdsim(*args):
    return subprocess.run([CSDSIM, *map(str, args)], cwd=SOURCE, capture_output=True, text=True, timeout=300)


class Pools(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)
        self.file = self.out / "tokens.json"

    def tearDown(self):
        self.directory.cleanup()

    def ask(self, *args):
        return ["eval", "--model", MODEL, "--text", MODEL / "sample.txt", "--prefill", 128, "--windows", 2, "--no-recall", *args]

    def record(self, *args):
        run = csdsim(*self.ask(*args), "--record", self.file, "--out", self.out)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads((self.out / "result.json").read_text())["rows"]

    def pools(self, *args):
        run = csdsim("pools", self.file, *args, "--format", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)

    def refused(self, *args, says):
        run = csdsim(*args)
        self.assertEqual(run.returncode, 2, run.stderr + run.stdout)
        self.assertIn(says, run.stderr)

    def test_what_recorded_tokens_move(self):
        rows = self.record("--decode", 20, "--method", "int8", "--ratio", "1/5")
        self.assertTrue(0.8 < rows[0]["top_k_recall"] <= 1, rows)
        recording = json.loads(self.file.read_text())
        self.assertEqual((recording["csdsim_tokens"], recording["method"], recording["prefill"]), (1, "int8", 128))
        self.assertEqual(len(recording["windows"][0][0]), 1)  # one list serves all heads
        pools = self.pools("--hot", "2/5,4/5", "--pinned", "1/10")["pools"]
        self.assertEqual([row["policy"] for row in pools], ["naive", "naive", "hit-table", "hit-table"])
        for row in pools:
            self.assertAlmostEqual(row["moved"], row["promoted"] + row["demoted"])
            self.assertAlmostEqual(row["important"], 0.2, places=2)
        self.assertGreater(pools[0]["cold_important"], pools[1]["cold_important"])
        self.assertGreater(pools[0]["moved"], pools[2]["moved"])
        recorded, model = self.pools("--locality")["locality"]
        self.assertEqual((recorded["tokens"], model["tokens"]), ("recorded", "model"))
        for key in ("recent", "overlap_1", "overlap_8"):
            self.assertAlmostEqual(recorded[key], model[key], delta=0.08)
        table = csdsim("pools", self.file, "--format", "csv").stdout
        self.assertEqual([row["policy"] for row in csv.DictReader(table.splitlines())], ["naive", "hit-table"])

        self.refused("pools", self.file, "--policy", "lru", says="exists: naive, hit-table")
        self.refused("pools", self.file, "--policy", "naive", "--locality", says="--locality")
        self.refused("pools", self.file, "--hot", "1/10", says="too small")
        self.refused("pools", self.file, "--hot", "3/2", says="above 1")
        self.file.write_text(self.file.read_text().replace('"prefill":128', '"prefill":7'))
        self.refused("pools", self.file, says="tokens.json: windows[0][0][0][0]")

    def test_a_list_per_head_is_recorded_by_head(self):
        self.record("--decode", 3, "--method", "h2o", "--ratio", "1/4")
        self.assertEqual(len(json.loads(self.file.read_text())["windows"][0][0]), 4)
        self.refused("pools", self.file, "--locality", says="at least 9 steps")

    def test_what_cannot_be_recorded(self):
        record = ["--decode", 3, "--record", self.file]
        self.refused(*self.ask(*record, "--method", "dense"), says="attends to all tokens")
        self.refused(*self.ask(*record, "--method", "int8", "--ratio", "1/5,1/4"), says="one setting")
        self.refused(*self.ask(*record, "--method", "int8", "--ratio", "1/5", "--record-every", 2), says="consecutive steps")
        self.refused(*self.ask("--decode", 3, "--record-every", 2), says="--record FILE")


if __name__ == "__main__":
    unittest.main()
