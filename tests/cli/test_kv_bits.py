"""csdsim eval --kv-bits. Usage: test_kv_bits.py CSDSIM SOURCE_DIR"""
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


class KvBits(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def evaluated(self, *args):
        return csdsim("eval", "--model", MODEL, "--text", MODEL / "sample.txt", "--prefill", 128, "--decode", 6,
                      "--windows", 2, "--no-recall", "--out", self.out, *args)

    def test_rows_of_each_format_and_a_picture(self):
        run = self.evaluated("--kv-bits", "16,8,4", "--kv-group", "32,64")
        self.assertEqual(run.returncode, 0, run.stderr)
        rows = json.loads((self.out / "result.json").read_text())["rows"]
        self.assertEqual([(r["method"], r["kv_bits"], r["kv_group"]) for r in rows],
                         [("dense", 16, None), ("dense", 8, 32), ("dense", 8, 64), ("dense", 4, 32), ("dense", 4, 64)])
        self.assertEqual([round(r["traffic_mean"] * 16, 4) for r in rows], [16, 8.5, 8.25, 4.5, 4.25])
        self.assertEqual(rows[0]["greedy_agreement"], 1)
        self.assertIn("dense, 4-bit K and V", (self.out / "eval.html").read_text())

    def test_perplexity_in_the_drive(self):
        run = self.evaluated("--kv-bits", "16,4", "--kv-group", "32", "--attention", "drive")
        self.assertEqual(run.returncode, 0, run.stderr)
        drive = json.loads((self.out / "result.json").read_text())["rows"]
        run = self.evaluated("--kv-bits", "16,4", "--kv-group", "32")
        host = json.loads((self.out / "result.json").read_text())["rows"]
        self.assertEqual([r["attention"] for r in drive], ["drive", "drive"])
        self.assertEqual([r["perplexity"] for r in drive], [r["perplexity"] for r in host])
        self.assertNotEqual(drive[0]["perplexity"], drive[1]["perplexity"])

    def test_sparf_in_the_drive(self):
        rows = {}
        for attention in ("drive", "host"):
            run = self.evaluated("--kv-bits", "16,8,4", "--kv-group", "32", "--method", "sparf", "--ratio", "1/4",
                                 "--attention", attention)
            self.assertEqual(run.returncode, 0, run.stderr)
            rows[attention] = json.loads((self.out / "result.json").read_text())["rows"]
        self.assertEqual([r["perplexity"] for r in rows["drive"]], [r["perplexity"] for r in rows["host"]])
        self.assertEqual(len({r["perplexity"] for r in rows["drive"]}), 3)
        sixteen, _, four = rows["host"]
        # Rows of 64 elements have 36 bytes in place of 128. 16 components have 8 bytes and one or two scales, where their
        # part of a row would be 9 bytes.
        rows_alone = sixteen["traffic_mean"] * 36 / 128
        self.assertGreaterEqual(four["traffic_mean"], rows_alone + 1 / 256 - 1e-9)
        self.assertLessEqual(four["traffic_mean"], rows_alone + 3 / 256 + 1e-9)

    def test_refused(self):
        for args, message in ((("--kv-bits", "5"), "--kv-bits"), (("--kv-group", "32"), "K and V of 16 bits have no scale"),
                              (("--kv-bits", "4", "--kv-group", "48"), "do not divide heads of 64"),
                              (("--kv-bits", "4", "--predictor", "oracle"), "--kv-bits is of attention methods")):
            run = self.evaluated(*args)
            self.assertEqual(run.returncode, 2, run.stderr)
            self.assertIn(message, run.stderr)


if __name__ == "__main__":
    unittest.main()
