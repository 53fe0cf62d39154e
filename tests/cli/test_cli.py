"""The command line as people use it: exit status, messages, files, identical results. Usage: test_cli.py CSDSIM SOURCE_DIR"""
import csv
import json
import os
import pathlib
import resource
import shutil
import sqlite3
import struct
import subprocess
import sys
import tempfile
import unittest

from sanitized import reserves_address_space

CSDSIM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
del sys.argv[1:]
SMALL = ["--set", "workload.requests=2000"]
FEW_SAMPLES = ["--set", "simulation.sampling={layers: 2, steps: 2}"]
MODEL = str(SOURCE / "models/opt-6m")
LIMITED = not reserves_address_space(CSDSIM)


def csdsim(*args, cwd=SOURCE, memory=None):
    """With `memory`, the bytes of address space that the run may have."""
    limit = memory and LIMITED and (lambda: resource.setrlimit(resource.RLIMIT_AS, (memory, memory)))
    return subprocess.run([CSDSIM, *map(str, args)], cwd=cwd, capture_output=True, text=True, timeout=300,
                          preexec_fn=limit or None)


class CommandLine(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def result(self, *args):
        run = csdsim(*args, "--out", self.out)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads((self.out / "result.json").read_text())

    def refused(self, *args, says=(), memory=None):
        run = csdsim(*args, memory=memory)
        self.assertEqual(run.returncode, 2, run.stderr + run.stdout)
        self.assertNotIn("internal error", run.stderr)
        for text in says:
            self.assertIn(text, run.stderr + run.stdout)

    def test_help_and_version(self):
        for command in [[], ["run"], ["sweep"], ["generate"], ["eval"], ["pools"], ["hit-rates"], ["check"], ["list"], ["describe"], ["reproduce"], ["roofline"]]:
            run = csdsim(*command, "--help")
            self.assertEqual(run.returncode, 0)
            self.assertIn("Usage", run.stdout)
        self.assertIn("csdsim 0.", csdsim("--version").stdout)
        self.assertEqual(csdsim("list", "systems").returncode, 0)

    def test_sensitivity_of_plain_blocks_has_no_gpu(self):
        run = csdsim("run", "scenarios/block_read.yaml", *SMALL, "--sensitivity", "-q")
        self.assertEqual(run.returncode, 0, run.stderr)
        table = run.stdout.split("sensitivity\n")[1]
        self.assertRegex(table, r"flash_arrays +\d")
        for absent in ("null", "gpu", "critical path", "\nhost "):
            self.assertNotIn(absent, table)

    def test_requests_are_counted_as_requests(self):
        blocks = self.result("run", "scenarios/block_read.yaml", *SMALL)["metrics"]
        self.assertEqual(blocks["requests_issued"], 2000)
        generation = self.result("run", "scenarios/quickstart.yaml")["metrics"]
        prompts = (SOURCE / "scenarios/quickstart_prompts.txt").read_text().splitlines()
        self.assertEqual((generation["requests_issued"], generation["requests_completed"]), (len(prompts), len(prompts)))
        self.assertGreater(generation["commands_issued"], 100)
        self.assertEqual(generation["commands_issued"], generation["commands_completed"])

    def test_same_scenario_and_seed_twice_gives_the_same_bytes(self):
        for args in (["run", "scenarios/block_read.yaml", *SMALL],
                     ["run", "scenarios/quickstart.yaml", "--set", "workload.output_tokens=8"],
                     ["run", "scenarios/channels.yaml", "--set", "model.preset=opt-1.3b", "--set", "workload.batch=4"]):
            first, second = self.result(*args), self.result(*args)
            self.assertGreater(first.pop("wall")["wall_s"], 0)
            second.pop("wall")
            self.assertEqual(json.dumps(first), json.dumps(second))

    def test_all_scenarios_of_the_project_are_valid(self):
        papers = [p for p in (SOURCE / "scenarios/papers").glob("*.yaml") if not p.name.endswith(".reproduction.yaml")]
        self.assertTrue(papers)
        run = csdsim("check", *sorted((SOURCE / "scenarios").glob("*.yaml")), *papers)
        self.assertEqual(run.returncode, 0, run.stderr)

    def test_quickstart_is_checked_against_the_host(self):
        result = self.result("run", "scenarios/quickstart.yaml")
        host = result["comparison"]["host"]
        self.assertEqual(host["tokens_equal"], host["tokens_compared"])
        self.assertTrue(host["attention_outputs_identical"])
        self.assertTrue(host["same_method"])
        self.assertFalse(result["comparison"]["instinfer-sparf"]["same_method"])
        self.assertEqual(result["stats"]["integrity_errors"], 0)
        self.assertEqual(result["metrics"]["commands_issued"], result["metrics"]["commands_completed"])

    def test_block_read_agrees_with_the_published_point(self):
        metrics = self.result("run", "scenarios/block_read.yaml")["metrics"]
        self.assertAlmostEqual(metrics["iops"] / 446152.6, 1, delta=0.005)
        self.assertAlmostEqual(metrics["latency_mean_ns"] / 71707, 1, delta=0.005)

    def test_bandwidth_bound_of_dense_decode(self):
        """OPT-13B: never above channels x bandwidth / (819,200 B x mean flushed tokens), and at 85 % of it or more."""
        for channels in (4, 8):
            metrics = self.result("run", "scenarios/channels.yaml", "--set", "system.kind=instinfer-dense", "--set",
                                  f"platform.device.flash.channels={channels}", *FEW_SAMPLES)["metrics"]
            # Decode step s attends over 1025 + s tokens, of which full groups of 16 are in flash.
            flushed = sum((1025 + s) // 16 * 16 for s in range(1023)) / 1023
            bound = channels * 1.4e9 / (819_200 * flushed)
            self.assertLessEqual(metrics["decode_tokens_per_s"], bound)
            self.assertGreaterEqual(metrics["decode_tokens_per_s"], 0.85 * bound)

    def test_roofline(self):
        run = csdsim("roofline", "scenarios/papers/instinfer.yaml", "--out", self.out)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("Attention in the drives, everything else on the GPU", run.stdout)
        document = json.loads((self.out / "roofline.json").read_text())
        self.assertEqual(list(document["machines"]), ["gpu", "host", "drives"])
        page = (self.out / "roofline.html").read_text()
        self.assertTrue(all(f'"name":"{name}"' in page for name in [*document["machines"], *document["operators"]]))
        rows = list(csv.DictReader(csdsim("roofline", "scenarios/papers/instinfer.yaml", "--format", "csv").stdout.splitlines()))
        self.assertEqual([row["operator"] for row in rows], list(document["operators"]))
        self.assertEqual(float(rows[1]["drives_s"]), document["operators"]["attention"]["seconds"]["drives"])
        self.refused("roofline", "scenarios/block_read.yaml", says=["block_read.yaml", "needs a generation"])
        self.refused("roofline", "scenarios/serving.yaml", says=["serving.yaml", "needs a generation"])

    def test_formats_of_runs_and_lists(self):
        for scenario, metric in (("scenarios/block_read.yaml", "iops"), ("scenarios/quickstart.yaml", "decode_tokens_per_s")):
            small = ["run", scenario, "-q", *(["--set", "workload.requests=200"] if metric == "iops" else ["--set", "workload.output_tokens=2"])]
            document = json.loads(csdsim(*small, "--format", "json", "--out", self.out).stdout)
            self.assertEqual(document["metrics"], json.loads((self.out / "result.json").read_text())["metrics"])
            rows = list(csv.DictReader(csdsim(*small, "--format", "csv", "--out", self.out).stdout.splitlines()))
            self.assertEqual([row["name"] for row in rows], [document["name"]])
            self.assertEqual(float(rows[0][metric]), document["metrics"][metric])
        listed = json.loads(csdsim("list", "--format", "json").stdout)
        self.assertEqual(list(listed)[:3], ["devices", "models", "systems"])
        self.assertTrue(all(item["name"] and item["doc"] for items in listed.values() for item in items))
        self.assertEqual(list(json.loads(csdsim("list", "papers", "--format", "json").stdout)), ["papers"])
        page = self.out / "page.html"
        self.assertEqual(csdsim("report", self.out, "-o", page).stdout, f"{page}\n")

    def test_prefill_is_bound_by_programming(self):
        prefill = self.result("run", "scenarios/channels.yaml", *FEW_SAMPLES)["breakdown"]["prefill"]
        self.assertEqual(prefill["bound_by"], "flash_arrays")
        self.assertAlmostEqual(prefill["flash_program_bytes_per_s"] / (256 * 4096 / 600e-6), 1, delta=0.02)

    def test_generate(self):
        tokens = self.out / "tokens.txt"
        tokens.write_text("1371 288 1061 386")
        ask = ["generate", "--model", MODEL, "--tokens", tokens, "--max-new-tokens", 12, "--seed", 3, "--temperature", 1]
        drive, host = self.result(*ask), self.result(*ask, "--attention", "host")
        self.assertEqual(len(drive["tokens"]), 12)
        self.assertEqual(drive["tokens"], host["tokens"])
        self.assertIsInstance(drive["text"], str)
        self.assertGreater(drive["metrics"]["decode_tokens_per_s"], 0)

    def test_generate_draws_from_the_likeliest(self):
        ask = ["generate", "--model", MODEL, "--prompt", "static int", "--max-new-tokens", 12, "--attention", "host"]
        greedy = self.result(*ask)["tokens"]
        free = self.result(*ask, "--temperature", 3)["tokens"]
        self.assertNotEqual(free, greedy)
        self.assertEqual(self.result(*ask, "--temperature", 3, "--top-k", 1)["tokens"], greedy)
        self.assertEqual(self.result(*ask, "--temperature", 3, "--top-p", 0.0001)["tokens"], greedy)
        cut = self.result(*ask, "--temperature", 3, "--top-k", 40, "--top-p", 0.9)["tokens"]
        self.assertNotIn(cut, [greedy, free])
        self.refused(*ask, "--top-k", 5, says=["top_k", "temperature 0"])
        self.refused(*ask, "--top-p", 0.5, says=["top_p", "temperature 0"])
        self.refused(*ask, "--temperature", 1, "--top-p", 1.5, says=["top_p"])
        self.refused(*ask, "--temperature", 1, "--top-k", 0, says=["top_k"])
        self.refused(*ask, "--seed", -1, says=["--seed", "whole number"])

    def evaluated(self, *args):
        return self.result("eval", "--model", MODEL, "--text", MODEL + "/sample.txt", "--prefill", 128, "--decode", 6,
                           "--windows", 2, *args)

    def test_eval_writes_rows_csv_and_a_picture(self):
        result = self.evaluated("--method", "dense", "--method", "sparq", "--method", "h2o", "--ratio", "1/4", "--ratio", "0.5",
                                "--distance", 64)
        rows = result["rows"]
        self.assertEqual([(r["method"], r["ratio"]) for r in rows],
                         [("dense", None), ("sparq", "1/4"), ("sparq", "1/2"), ("h2o", "1/4"), ("h2o", "1/2")])
        for row in rows:
            self.assertEqual(row["tokens_scored"], 10)
            self.assertGreater(row["perplexity_stderr"], 0)
            self.assertGreater(row["perplexity"], 1)
            self.assertTrue(0 < row["alpha_mean"] <= 1)
            self.assertEqual([p["distance"] for p in row["recall"]], [64])
        self.assertEqual(rows[0]["perplexity"], result["metrics"]["dense_perplexity"])
        with open(self.out / "eval.csv") as file:
            table = list(csv.DictReader(file))
        self.assertEqual([float(r["perplexity"]) for r in table], [r["perplexity"] for r in rows])
        self.assertIn('"name":"sparq"', (self.out / "eval.html").read_text())
        equal = self.evaluated("--ratio-mode", "traffic", "--ratio", "1/4", "--no-recall")["rows"]
        self.assertEqual([row["method"] for row in equal if row["method"].startswith("int")], ["int4", "int4-max", "int4-ahead", "int4-max-ahead", "int4-per-head", "int4-per-head-ahead"])
        for row in equal:  # InfiniGen's first layers fetch everything
            if row["method"] not in ("dense", "infinigen"):
                self.assertAlmostEqual(row["traffic_mean"], 0.25, delta=0.02, msg=row["method"])
        again = self.evaluated("--method", "dense,sparq", "h2o", "--ratio", "1/4", "0.5", "--distance", 64)
        result.pop("wall"), again.pop("wall")
        self.assertEqual(json.dumps(result), json.dumps(again))

    def test_eval_in_the_drive_equals_the_host(self):
        budget = ["--method", "sparf", "--r", 16, "--k", 40, "--local", 10]
        drive = self.evaluated(*budget, "--attention", "drive")["rows"]
        host = self.evaluated(*budget, "--no-recall")["rows"]
        self.assertEqual([row["method"] for row in self.evaluated("--attention", "drive", "--ratio", "1/4")["rows"]],
                         ["dense", "sparf"])
        self.assertEqual(drive[0].pop("attention"), "drive")
        self.assertEqual(host[0].pop("attention"), "host")
        self.assertEqual(drive, host)

    def test_drives_that_divide_tokens_equal_the_host_but_for_rounding(self):
        divided = ["--set", "system.shard=token", "--set", "platform.device.count=5"]  # four KV heads
        perplexity = [self.evaluated("--method", "dense", "--no-recall", *where)["rows"][0]["perplexity"]
                      for where in ([], ["--attention", "drive", *divided])]
        self.assertNotEqual(*perplexity)
        self.assertAlmostEqual(*perplexity, delta=2e-3 * perplexity[0])
        # Here the host attends part by part, too.
        run = self.result("run", "scenarios/quickstart.yaml", "--set", "system.kind=instinfer-dense", *divided, "--set",
                          "workload.output_tokens=8", "--set", "simulation.compare=[host]")
        self.assertTrue(run["comparison"]["host"]["attention_outputs_identical"])
        self.assertEqual(run["comparison"]["host"]["tokens_equal"], run["comparison"]["host"]["tokens_compared"])

    def test_eval_records_what_timing_runs_replay(self):
        file = self.out / "selection.json"
        self.evaluated("--method", "sparf", "--ratio", "1/8", "--no-recall", "--record", file, "--record-every", 1)
        ask = ["run", "scenarios/channels.yaml", "--set", "model.preset=opt-1.3b", "--set", "workload.batch=2"]
        recorded = ["--set", f"simulation.selection={{kind: recorded, file: {file}}}"]
        clustered = ["--set", "simulation.selection={kind: clustered, token_page_fraction: 1}"]
        self.assertLess(self.result(*ask, *recorded)["metrics"]["bytes_flash_channel"],
                        self.result(*ask, *clustered)["metrics"]["bytes_flash_channel"])
        self.refused(*ask, *recorded, "--set", "system.ratio=1/2", says=["recorded at"])
        self.refused(*ask, "--set", "simulation.selection={kind: recorded}", says=["needs the file"])
        for text in ("{}", "[1", '{"csdsim_selection": 1, "head_dim": 64, "records": [[0, 0, 0, 9, [1], [9]]]}'):
            file.write_text(text)
            self.refused(*ask, *recorded, says=["selection.json"])

    def test_eval_names_mistakes(self):
        ask = ["eval", "--model", MODEL, "--text", MODEL + "/sample.txt", "--windows", 1]
        self.refused(*ask, "--method", "sparg", says=["sparq"])
        self.refused(*ask, "--method", "sparq", "--heavy", 4, says=["--heavy"])
        self.refused(*ask, "--method", "h2o", "--heavy", 4, says=["come together"])
        self.refused(*ask, "--method", "h2o", "--attention", "drive", says=["dense, sparf"])
        self.refused(*ask, "--method", "dense", "--ratio", "1/2", says=["--ratio"])
        self.refused(*ask, "--ratio", "x", says=["x"])
        self.refused(*ask, "--prefill", 100000, says=["the text has"])
        self.refused(*ask, "--distance", 5, says=["distance 5"])
        self.refused(*ask, "--record", self.out / "x", says=["one setting"])
        self.refused(*ask, "--set", "seed=1", says=["--attention drive"])
        self.refused("eval", "--model", MODEL, says=["--text"])

    def test_points_of_a_sweep_that_fail_have_a_row_with_the_reason(self):
        scenario = self.out / "s.yaml"
        text = (SOURCE / "scenarios/block_read.yaml").read_text()
        scenario.write_text(text + "sweep: {axes: {workload.lose_completion: [none, 7]}}\n")
        run = csdsim("sweep", scenario, *SMALL, "--out", self.out / "o")
        self.assertEqual(run.returncode, 1)
        self.assertIn("issued", run.stderr)
        self.assertIn("failed", run.stdout)
        with open(self.out / "o/results.csv") as file:
            good, bad = csv.DictReader(file)
        self.assertEqual(good["error"], "")
        self.assertGreater(float(good["iops"]), 0)
        self.assertEqual(bad["iops"], "")
        self.assertIn("issued", bad["error"])
        with sqlite3.connect(self.out / "o/results.sqlite") as db:
            self.assertEqual(db.execute("SELECT count(error) FROM results").fetchone(), (1,))
        again = csdsim("sweep", scenario, *SMALL, "--out", self.out / "o", "--resume")
        self.assertEqual(again.stderr.count("kept"), 1, again.stderr)

    def test_sweep_resumes_and_writes_rows(self):
        scenario = self.out / "s.yaml"
        text = (SOURCE / "scenarios/block_read.yaml").read_text()
        scenario.write_text(text + "sweep: {axes: {platform.device.flash.channels: [2, 4], workload.queue_depth: [1, 8]}}\n")
        run = csdsim("sweep", scenario, *SMALL, "-j", 2, "--out", self.out / "o")
        self.assertEqual(run.returncode, 0, run.stderr)
        with sqlite3.connect(self.out / "o/results.sqlite") as db:
            rows = db.execute('SELECT "platform.device.flash.channels", "workload.queue_depth", iops FROM results').fetchall()
        self.assertEqual([row[:2] for row in rows], [(2, 1), (2, 8), (4, 1), (4, 8)])
        self.assertGreater(rows[3][2], rows[2][2])
        with open(self.out / "o/results.csv") as file:
            self.assertEqual(len(list(csv.DictReader(file))), 4)
        again = csdsim("sweep", scenario, *SMALL, "-j", 1, "--out", self.out / "o", "--resume")
        self.assertEqual(again.stderr.count("kept"), 4, again.stderr)
        self.assertEqual(csdsim("sweep", scenario, "--set", "workload.requests=2001", "--out", self.out / "o",
                                "--resume").stderr.count("kept"), 0)

    def test_trace_is_json(self):
        trace = self.out / "t.json"
        self.result("run", "scenarios/quickstart.yaml", "--set", "workload.output_tokens=4", "--trace", trace)
        self.assertGreater(len(json.loads(trace.read_text())["traceEvents"]), 50)

    def test_a_lost_completion_fails_the_run(self):
        for scenario, requests in (("scenarios/block_read.yaml", 2000), ("scenarios/trace_msr.yaml", 600)):
            run = csdsim("run", scenario, *(SMALL if requests == 2000 else []), "--set", "workload.lose_completion=7")
            self.assertEqual(run.returncode, 1, run.stderr)
            self.assertIn(f"{requests} requests were issued and {requests - 1} completed", run.stderr)

    def test_a_malformed_trace_is_located_and_exits_2(self):
        trace = self.out / "bad.csv"
        trace.write_text("1,host,0,Read,0,4096,1\n2,host,0,Reed,0,4096,1\n")
        self.refused("run", "scenarios/trace_msr.yaml", "--set", f"workload.file={trace}",
                     says=["bad.csv:2:10: error: Type: 'Reed' is neither Read nor Write"])

    def test_mistakes_are_located_and_exit_2(self):
        bad = self.out / "bad.yaml"
        bad.write_text("csdsim: 1\nname: x\nmodel: {preset: opt-13c}\nplatform: {device: {flash: {read_latency: 50}}}\n")
        self.refused("run", bad, says=["bad.yaml:3:17: error", "opt-13b", "bad.yaml:4:", "no unit"])
        self.refused("run", self.out / "missing.yaml", says=["missing.yaml"])
        self.refused("run", "scenarios/block_read.yaml", "--set", "workload.queue_dept=1", says=["did you mean queue_depth"])
        self.refused("run", "scenarios/block_read.yaml", "--set", "simulation.data=carried", says=["timing"])
        self.refused("sweep", "scenarios/block_read.yaml", says=["no sweep"])
        self.refused("generate", "--model", MODEL, says=["--prompt"])
        self.refused("generate", "--model", self.out, "--prompt", "x", says=["config.json"])
        self.refused("generate", "--model", MODEL, "--prompt", "x", "--r", "4", says=["sparf"])
        self.refused("generate", "--model", MODEL, "--prompt", "x" * 4000, "--max-new-tokens", "2048", says=["position"])
        self.refused("describe", "flesh", says=["flash"])
        self.refused("list", "systemz", says=["systems"])
        self.refused("nothing")
        self.refused("run")
        tokens = self.out / "t.txt"
        tokens.write_text("5 99999")
        self.refused("generate", "--model", MODEL, "--tokens", tokens, says=["99999", "vocabulary"])
        tokens.write_text("5 x")
        self.refused("generate", "--model", MODEL, "--tokens", tokens, says=["'x' is not a token id"])

    def test_broken_checkpoints(self):
        model = self.out / "model"
        model.mkdir()
        for name in ("config.json", "model.safetensors", "tokenizer.model"):
            os.symlink(SOURCE / "models/opt-6m" / name, model / name)
        ask = ["generate", "--model", model, "--prompt", "x"]
        self.assertEqual(csdsim(*ask, "--max-new-tokens", 1).returncode, 0)
        (model / "tokenizer.model").unlink()
        self.refused(*ask, says=["tokenizer.model"])
        os.symlink(SOURCE / "models/opt-6m/tokenizer.model", model / "tokenizer.model")
        (model / "model.safetensors").unlink()
        (model / "model.safetensors").write_bytes((SOURCE / "models/opt-6m/model.safetensors").read_bytes()[:1_000_000])
        self.refused(*ask, says=["model.safetensors"])

    def test_broken_safetensors_are_refused_by_name_with_little_memory(self):
        golden, model, ids = SOURCE / "tests/data/golden", self.out / "model", self.out / "ids.txt"
        ids.write_text("1 2 3 4 5 6 7")
        ask = ["generate", "--model", model, "--tokens", ids, "--max-new-tokens", 2, "--attention", "host"]
        shutil.copytree(golden / "opt", model)
        file = model / "model.safetensors"
        whole = file.read_bytes()
        length = struct.unpack("<Q", whole[:8])[0]
        text, data = whole[8:8 + length].decode(), whole[8 + length:]
        name, other = [n for n in json.loads(text) if n != "__metadata__"][:2]

        def broken(*says, header=text, bytes_after=data, claimed=None):
            header = header.encode()
            file.write_bytes(struct.pack("<Q", len(header) if claimed is None else claimed) + header + bytes_after)
            self.refused(*ask, says=[str(file), *says], memory=2 << 30)

        def edited(tensor, **fields):
            header = json.loads(text)
            header[tensor].update(fields)
            return json.dumps(header)

        begin, end = json.loads(text)[other]["data_offsets"]
        broken("truncated", bytes_after=data[:-100])
        broken("truncated", claimed=len(whole))
        broken("header claims", claimed=1 << 62)
        broken(other, "overlap", header=edited(other, data_offsets=[begin - 4, end - 4]))
        broken(name, "dtype I32", header=edited(name, dtype="I32"))
        broken(name, "unknown dtype", header=edited(name, dtype="F7"))
        broken(name, "too many bytes", header=edited(name, shape=[1 << 40, 1 << 40]))
        broken(f"'{name}' appears twice", header=text[:text.rindex("}")] + f', "{name}": {{}}}}')
        file.write_bytes(whole)
        for field, value in (("num_hidden_layers", 1_000_000), ("vocab_size", 16_000_000), ("max_position_embeddings", 16_000_000),
                             ("hidden_size", 64), ("ffn_dim", None)):
            config = json.loads((golden / "opt/config.json").read_text())
            config[field] = value
            (model / "config.json").write_text(json.dumps(config))
            self.refused(*ask, says=[str(model)], memory=2 << 30)
        shutil.rmtree(model)
        shutil.copytree(golden / "llama3", model)
        (model / "model-00002-of-00002.safetensors").unlink()
        self.refused(*ask, says=["model-00002-of-00002.safetensors", "does not exist"])
        ids.write_text("5 " * 1100)
        shutil.copy(golden / "llama3/model-00002-of-00002.safetensors", model)
        self.refused(*ask, says=["1024"])

    def test_families_of_models(self):
        """Grouped queries through the drive and on the host, token ids without a tokenizer, byte-level text."""
        golden = SOURCE / "tests/data/golden"
        ids = self.out / "ids.txt"
        ids.write_text("1 2 3 4 5 6 7")
        for model in ("llama", "llama3", "qwen2", "opt"):
            ask = ["generate", "--model", golden / model, "--tokens", ids, "--max-new-tokens", 24]
            drive, host = self.result(*ask), self.result(*ask, "--attention", "host")
            self.assertEqual(len(drive["tokens"]), 24)
            self.assertEqual(drive["tokens"], host["tokens"])
            self.assertEqual(drive["stats"]["attention_digest"], host["stats"]["attention_digest"])
            self.assertEqual("text" in drive, model != "llama")  # which has no tokenizer
        shown = csdsim("generate", "--model", golden / "llama", "--tokens", ids, "--max-new-tokens", 3)
        self.assertEqual(len(shown.stdout.split()), 3)
        self.assertIn("No text", shown.stderr)
        self.refused("generate", "--model", golden / "llama", "--prompt", "x", says=["there is no tokenizer", "token ids"])
        text = self.result("generate", "--model", golden / "qwen2", "--prompt", "<|im_start|>the kernel", "--max-new-tokens", 4)
        self.assertIn("text", text)
        ids.write_text("512")
        self.refused("generate", "--model", golden / "qwen2", "--tokens", ids, says=["512", "vocabulary"])
        self.refused("generate", "--model", golden / "qwen2", "--prompt", "x", "--max-new-tokens", 2000, says=["1024 positions"])
        self.refused("run", "scenarios/quickstart.yaml", "--set", f"model.path={golden / 'llama'}", "--set", "model.kv_heads=4",
                     says=["model.kv_heads: 4 disagrees with the checkpoint, which has 2"])

    def test_config_json_is_read_in_one_place(self):
        """What a decoder refuses, a timing run refuses, too; all problems at once."""
        (self.out / "config.json").write_text('{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4}')
        scenario = self.out / "s.yaml"
        scenario.write_text("csdsim: 1\nmodel: {path: .}\nworkload: {kind: generation}\n")
        self.refused("check", scenario, says=["s.yaml:2:15: error: model.path: ", "num_hidden_layers: is missing",
                                              "intermediate_size: is missing"])
        (self.out / "config.json").write_text('{"model_type": "mamba"}')
        self.refused("check", scenario, says=["unknown architecture", "opt, llama, qwen2"])

    def test_a_drive_that_is_too_small_says_so(self):
        self.refused("run", "scenarios/channels.yaml", "--set", "platform.device.flash.blocks_per_plane=16", says=["KV cache"])
        self.refused("run", "scenarios/channels.yaml", "--set", "platform.device.dram.capacity=1 MiB",
                     says=["platform.device.dram.capacity: the tails and maps of 64 sequences"])

    def test_parameter_reference_is_current(self):
        self.assertEqual(csdsim("describe", "--markdown").stdout, (SOURCE / "docs/parameters.md").read_text(),
                         "run: csdsim describe --markdown > docs/parameters.md")


unittest.main(verbosity=2)
