"""csdsim reproduce as people use it, on a made-up paper that runs in a second. Usage: test_reproduce.py CSDSIM SOURCE_DIR"""
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


def csdsim(*args, cwd=SOURCE):
    return subprocess.run([CSDSIM, *map(str, args)], cwd=cwd, capture_output=True, text=True, timeout=300)


class Reproduce(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def test_reproduce_compares_a_paper_with_its_points(self):
        tiny = SOURCE / "tests/reproduction/papers/tiny.reproduction.yaml"
        run = csdsim("reproduce", tiny, "--out", self.out / "a", "-j", 2)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("[2/2]", run.stderr)  # points with equal configurations run once
        self.assertIn("Contradictions in the paper:\n- The gain is stated twice.", run.stdout)
        self.assertIn("Rows that do not agree with the paper:\n- tiny.cache: ", run.stdout)
        document = json.loads((self.out / "a/reproduction.json").read_text())
        self.assertEqual(document["constants"][0]["value"], "50 us")
        rows = {row["id"]: row for row in document["rows"]}
        for row in rows.values():
            self.assertLessEqual({"id", "metric", "unit", "stated", "simulated", "error"}, set(row))
        gain = rows["tiny.gain"]
        self.assertAlmostEqual(gain["error"], gain["simulated"] / 2 - 1)
        self.assertEqual([rows["tiny." + name]["verdict"] for name in ("gain", "cache", "same", "trend", "fits", "drops")],
                         ["within", "outside", "as stated", "differs", "within", "as stated"])
        self.assertEqual(rows["tiny.cache"]["simulated"], 8 * 67 * 2 * 2 * 256 * 2 / 1024)
        self.assertAlmostEqual(rows["tiny.dsp"]["simulated"], 85.33, delta=0.01)
        self.assertIn("platform.gpu.memory", document["points"]["too_large"]["error"])
        self.assertFalse(document["points"]["sizes"]["simulated"])
        # Sizes of a run are those that were planned: K and V of 2 x (64 + 4 - 1) tokens, 2 layers of 4 x 64 halves.
        self.assertEqual(document["points"]["two"]["metrics"]["kv_cache_bytes"], 2 * 67 * 2 * 2 * 256 * 2)
        self.assertEqual(document["points"]["two"]["metrics"]["weight_bytes"],
                         document["points"]["sizes"]["metrics"]["weight_bytes"])
        with open(self.out / "a/reproduction.csv") as file:
            self.assertEqual(len(list(csv.DictReader(file))), len(rows))
        page = (self.out / "a/batch.html").read_text()
        self.assertTrue(all(f'"name":"{series["name"]}"' in page for series in document["curves"][0]["series"]))
        again = csdsim("reproduce", tiny, "--out", self.out / "b", "--format", "json", cwd=self.out)
        self.assertEqual(again.stdout, (self.out / "a/reproduction.json").read_text())
        self.assertEqual(again.stdout, (self.out / "b/reproduction.json").read_text())
        kept = csdsim("reproduce", tiny, "--out", self.out / "b", "--resume", "--format", "csv")
        self.assertIn("two: kept", kept.stderr)
        self.assertEqual(kept.stdout, (self.out / "a/reproduction.csv").read_text())

    def test_reproduce_runs_only_the_points_of_some_rows(self):
        tiny = SOURCE / "tests/reproduction/papers/tiny.reproduction.yaml"
        whole = csdsim("reproduce", tiny, "--out", self.out / "whole", "--format", "json")
        run = csdsim("reproduce", tiny, "--rows", "tiny.cache,tiny.dsp", "--rows", "tiny.dsp", "--out", self.out / "part",
                     "--format", "json")
        self.assertEqual(run.returncode, 0, run.stderr)
        part, whole = json.loads(run.stdout), json.loads(whole.stdout)
        self.assertEqual(part["rows"], [row for row in whole["rows"] if row["id"] in ("tiny.cache", "tiny.dsp")])
        self.assertEqual(list(part["points"]), ["one", "again", "sizes"])
        self.assertEqual(part["constants"], whole["constants"])
        self.assertFalse(part["points"]["again"]["simulated"])
        self.assertEqual((part["curves"], part["inconsistencies"]), ([], []))
        self.assertEqual([path.name for path in (self.out / "part/points").iterdir()], ["one"])
        self.assertFalse(list((self.out / "part").glob("*.html")))
        wrong = csdsim("reproduce", tiny, "--rows", "tiny.chache,tiny.gain", "--out", self.out / "wrong")
        self.assertEqual(wrong.returncode, 2)
        self.assertIn("--rows tiny.chache: error: tiny has no such row (did you mean tiny.cache?)", wrong.stderr)
        self.assertFalse((self.out / "wrong").exists())

    def test_reproduce_names_mistakes(self):
        paper = (SOURCE / "tests/reproduction/papers/tiny.reproduction.yaml").read_text()
        shutil.copy(SOURCE / "tests/reproduction/papers/tiny.yaml", self.out)

        def mistake(old, new, *says, status=2):
            self.assertIn(old, paper)
            (self.out / "x.reproduction.yaml").write_text(paper.replace(old, new))
            run = csdsim("reproduce", self.out / "x.reproduction.yaml", "--out", self.out / "x", "--overwrite")
            self.assertEqual(run.returncode, status, run.stderr)
            for text in says:
                self.assertIn(text, run.stderr + run.stdout)

        mistake("{workload.batch: 1}", "{workload.bach: 1}", "x.reproduction.yaml:11:3: error: point one: --set workload.bach=1: error:",
                "did you mean batch?")
        mistake("two.tokens_per_s /", "two.token_per_s /", "has no metric 'token_per_s' (did you mean tokens_per_s?)")
        mistake("expect_error: platform.gpu.memory", "expect_error: nothing", "error: point too_large: ", "platform.gpu.memory")
        # A failure that only a run finds: the rows that need the point have no value, the others have theirs.
        mistake("two: {overrides: {workload: {batch: 2}}}",
                "two: {overrides: {workload.kind: block_io, workload.requests: 100, workload.lose_completion: 7}}",
                "point two:", "issued", "tiny.gain: stated 2, simulated -. point two failed", "85.33", status=1)
        unknown = csdsim("reproduce", "instinfr")
        self.assertEqual(unknown.returncode, 2)
        self.assertIn("did you mean instinfer?", unknown.stderr)
        self.assertRegex(csdsim("list", "papers").stdout, r"\n  instinfer +InstInfer: In-Storage Attention")
        self.assertIn("papers:", csdsim("list").stdout)

    def test_a_third_kernel_does_not_fit_the_fpga(self):
        small = SOURCE / "tests/reproduction/papers/tiny.yaml"
        def fpga_of(kernels):
            run = csdsim("run", small, "--format", "json", "--set", f"platform.device.engine.kernels={kernels}", "--set",
                         "platform.device.flash.page_buffers=13")
            return json.loads(run.stdout)["resources"]

        self.assertTrue(fpga_of(2)["fits"])
        fpga = fpga_of(3)
        self.assertFalse(fpga["fits"])
        self.assertGreater(fpga["dsps"]["share"], 1.2)


if __name__ == "__main__":
    unittest.main()
