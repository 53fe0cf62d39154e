"""Checkpoints, traces and scenarios as people have them: each kind of report was filed against some program of this field, and has a file
of that kind here. Usage: test_reported_files.py CSDSIM SOURCE_DIR"""
import base64
import copy
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:]
GOLDEN = SOURCE / "tests/data/golden"
DRIVE = """csdsim: 1
name: small-drive
platform:
  device:
    flash: {channels: 2, dies_per_channel: 2, planes_per_die: 1, blocks_per_plane: 64, pages_per_block: 64,
            page_size: 4 KiB, read_latency: 50 us, program_latency: 600 us, erase_latency: 3 ms, channel_bandwidth: 1.4 GB/s}
    link: {generation: 3, lanes: 4}
    ftl: {mapping: {kind: page}, over_provisioning: 0.07}
"""
REPLAY = DRIVE + "workload: {kind: trace, format: fio, file: log, timing: {kind: recorded, speed: 1}}\n"


def bytes_of_byte_level(text):
    """The bytes that a token of a byte-level vocabulary stands for."""
    plain = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    other = [b for b in range(256) if b not in plain]
    table = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(other)}
    return bytes(table[c] for c in text)


class Files(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def csdsim(self, *args, status=0):
        run = subprocess.run([CSDSIM, *map(str, args)], capture_output=True, text=True, timeout=300, cwd=self.out)
        self.assertEqual(run.returncode, status, run.stderr + run.stdout)
        return run

    def model(self, name, **config):
        shutil.rmtree(self.out / "m", ignore_errors=True)
        shutil.copytree(GOLDEN / name, self.out / "m")
        if config:
            path = self.out / "m/config.json"
            path.write_text(json.dumps({**json.loads(path.read_text()), **config}))
        return self.out / "m"

    def generate(self, *args, tokens=6):
        self.csdsim("generate", "--model", "m", "--attention", "host", "--max-new-tokens", tokens, "--out", "o", *args)
        return json.loads((self.out / "o/result.json").read_text())


class Checkpoints(Files):
    def test_scaled_rotary_positions(self):
        golden = {case["name"]: case for case in json.loads((GOLDEN / "rotary.json").read_text())["cases"]}
        for name in ("llama3, theta inside rope_scaling", "YaRN without original positions", "Qwen2.5: YaRN beyond max_position_embeddings",
                     "dynamic beyond max_position_embeddings"):
            case = golden[name]
            model = self.model("llama3")
            config = json.loads((model / "config.json").read_text())
            del config["rope_parameters"]
            (model / "config.json").write_text(json.dumps({**config, **case["config"]}))
            (self.out / "i.txt").write_text(" ".join(str(i * 37 % 500 + 2) for i in range(case["prompt_tokens"])))
            with self.subTest(name):
                self.assertEqual(self.generate("--tokens", "i.txt", tokens=8)["tokens"], case["tokens"])

    def test_dynamic_positions_in_a_drive_equal_those_on_the_host(self):
        self.model("llama3", max_position_embeddings=16, rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": 1e4})
        (self.out / "i.txt").write_text("1 2 3 4 5 6 7 8 9 10")
        host = self.generate("--tokens", "i.txt", tokens=12)["tokens"]
        self.csdsim("generate", "--model", "m", "--tokens", "i.txt", "--max-new-tokens", 12, "--out", "o")
        self.assertEqual(json.loads((self.out / "o/result.json").read_text())["tokens"], host)

    def test_a_tiktoken_file_under_the_name_of_sentencepiece(self):
        model = self.model("llama3")
        alone = self.generate("--prompt", "hello world")
        vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
        lines = [base64.b64encode(bytes_of_byte_level(t)).decode() + f" {i}" for t, i in vocabulary.items()]
        for end in ("\n", "\r\n"):
            (model / "tokenizer.model").write_bytes(end.join(lines + [""]).encode())
            both = self.csdsim("generate", "--model", "m", "--prompt", "hello world", "--attention", "host", "--max-new-tokens", 6, "--out", "o")
            self.assertNotIn("tokenizer.model", both.stderr)
            result = json.loads((self.out / "o/result.json").read_text())
            self.assertEqual((result["prompt_tokens"], result["tokens"]), (alone["prompt_tokens"], alone["tokens"]))
            self.assertEqual(result["tokenizer"], "tokenizer.json")
        (model / "tokenizer.model").write_text("\n".join([lines[0][:-1] + "7"] + lines[1:]))
        differs = self.csdsim("generate", "--model", "m", "--prompt", "hello", "--attention", "host", "--max-new-tokens", 1)
        self.assertIn("tokenizer.model: note: is not read: tokenizer.json counts, as in transformers, and differs: token 7", differs.stderr)

    def test_tokens_beyond_the_vocabulary_matter_only_when_a_text_has_them(self):
        model = self.model("qwen2")
        without = self.generate("--prompt", "hello world")
        vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
        for place in ("tokenizer.json", "added_tokens.json"):
            model = self.model("qwen2")
            if place == "tokenizer.json":
                tokenizer = json.loads((model / place).read_text())
                tokenizer["added_tokens"].append({"id": vocabulary, "content": "<extra>", "single_word": False, "lstrip": False, "rstrip": False,
                                                  "normalized": False, "special": True})
                (model / place).write_text(json.dumps(tokenizer))
            else:
                (model / place).write_text(json.dumps({"<extra>": vocabulary}))
            with self.subTest(place):
                self.assertEqual(self.generate("--prompt", "hello world")["tokens"], without["tokens"])
                run = self.csdsim("generate", "--model", "m", "--prompt", "hello<extra>", "--attention", "host", status=2)
                self.assertIn(f"token id {vocabulary}", run.stderr)

    def test_paths_that_are_no_checkpoint(self):
        (self.out / "gguf").mkdir()
        for name in ("model-00001-of-00002.gguf", "model-00002-of-00002.gguf"):
            (self.out / "gguf" / name).write_bytes(b"GGUF")
        for path, what in (("gguf", "model-00001-of-00002.gguf is a GGUF file"), ("gguf/model-00001-of-00002.gguf", "is a GGUF file"),
                           ("maker/model-8b", "hf download maker/model-8b --local-dir")):
            with self.subTest(path):
                self.assertIn(what, self.csdsim("generate", "--model", path, "--prompt", "x", status=2).stderr)


class UnreadKeys(Files):
    """A key that nothing reads is refused in every JSON of a checkpoint, at every level."""

    KEY = "csdsim_does_not_know"
    ADDED = {"content": "<|new|>", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    FILES = {
        "generation_config.json": {"eos_token_id": [2, 3], "do_sample": True, "temperature": 0.6, "transformers_version": "4.40.0"},
        "tokenizer_config.json": {"added_tokens_decoder": {"512": ADDED}, "bos_token": {"__type": "AddedToken", **ADDED}, "eos_token": "<|new|>",
                                  "chat_template": "{{ x }}", "model_max_length": 1000, "tokenizer_class": "PreTrainedTokenizerFast",
                                  "extra_special_tokens": {"image": ADDED}},
        "special_tokens_map.json": {"pad_token": ADDED, "additional_special_tokens": [ADDED]},
        "added_tokens.json": {"<|new|>": 512},
    }
    # Maps from names to values, in which every key has a meaning: a token, a tensor, a text of whoever wrote the file.
    MAPS = ("/model/vocab", "/weight_map", "/__metadata__", "/extra_special_tokens", "/post_processor/processors/1/special_tokens")

    def objects(self, document, path=""):
        if isinstance(document, dict) and path not in self.MAPS:
            yield path
        items = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
        for key, value in items:
            yield from self.objects(value, f"{path}/{key}")

    def refused(self, path, where):
        run = self.csdsim("generate", "--model", "m", "--prompt", "x", "--attention", "host", "--max-new-tokens", 1, status=2)
        self.assertIn(path.name, run.stderr, where)
        self.assertIn(self.KEY, run.stderr, where)

    def insert(self, document, where):
        document = copy.deepcopy(document)
        inside = document
        for part in where.split("/")[1:]:
            inside = inside[int(part) if isinstance(inside, list) else part]
        inside[self.KEY] = "x"
        return document

    def test_all_files_at_all_levels(self):
        checked = 0
        for name in ("llama3", "mistral", "yarn"):
            model = self.model(name)
            tokenizer = model / "tokenizer.json"
            if tokenizer.exists():
                document = json.loads(tokenizer.read_text())
                template = [{"SpecialToken": {"id": "<|new|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
                document["post_processor"] = {"type": "Sequence", "processors": [
                    {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
                    {"type": "TemplateProcessing", "single": template, "pair": template,
                     "special_tokens": {"<|new|>": {"id": "<|new|>", "ids": [512], "tokens": ["<|new|>"]}}}]}
                document["truncation"] = {"direction": "Right", "max_length": 9, "strategy": "LongestFirst", "stride": 0}
                tokenizer.write_text(json.dumps(document))
            else:
                shutil.copy(GOLDEN / "qwen2/tokenizer.json", tokenizer)
            for file, content in self.FILES.items():
                (model / file).write_text(json.dumps(content))
            self.generate("--prompt", "x", tokens=1)
            for path in sorted(model.glob("*.json")):
                if path.name in ("golden.json", "tokens.json"):
                    continue
                text = path.read_text()
                for where in self.objects(json.loads(text)):
                    path.write_text(json.dumps(self.insert(json.loads(text), where)))
                    with self.subTest(name, file=path.name, where=where):
                        self.refused(path, where)
                    checked += 1
                path.write_text(text)
            path = sorted(model.glob("model*.safetensors"))[0]
            data = path.read_bytes()
            length = int.from_bytes(data[:8], "little")
            header = json.loads(data[8:8 + length])
            for where in list(self.objects(header))[:4]:
                other = json.dumps(self.insert(header, where)).encode()
                path.write_bytes(len(other).to_bytes(8, "little") + other + data[8 + length:])
                with self.subTest(name, file=path.name, where=where):
                    self.refused(path, where)
                checked += 1
        self.assertGreater(checked, 60)


class Traces(Files):
    def replay(self, log, *args, status=0):
        (self.out / "s.yaml").write_text(REPLAY)
        (self.out / "log").write_text(log)
        run = self.csdsim("run", "s.yaml", "--out", "o", *args, status=status)
        return json.loads((self.out / "o/result.json").read_text()) if status == 0 else run.stderr

    def test_a_share_of_writes(self):
        latency = {"lat_ns": {"mean": 60000.0}, "clat_ns": {"mean": 59000.0}}
        job = {"jobname": "m", "groupid": 0, "error": 0, "job options": {"rw": "randrw", "rwmixwrite": "10", "bs": "4k", "iodepth": "4"},
               "read": {"total_ios": 900, "iops": 9000.0, **latency}, "write": {"total_ios": 100, "iops": 1000.0, **latency}}
        (self.out / "s.yaml").write_text(DRIVE + "workload: {kind: block_io, working_set: 0.5}\n")
        (self.out / "fio.json").write_text(json.dumps({"global options": {"ioengine": "libaio", "direct": "1"}, "jobs": [job]}))
        self.csdsim("calibrate", "s.yaml", "--fio", "fio.json", "--requests", 100, "--fix", "flash.dies_per_channel", "--out", "o")
        self.assertIn('"read_fraction":"0.9"', (self.out / "o/calibrated.yaml").read_text())

    def test_a_part_of_a_block_keeps_its_data_when_it_is_trimmed(self):
        head = "fio version 3 iolog\n0 f add\n0 f open\n0 f write 0 4096\n"
        read = "90000 f read 0 4096\n"
        latency = {name: self.replay(head + trim + read)["metrics"]["read_latency_mean_ns"]
                   for name, trim in (("none", ""), ("part", "50000 f trim 512 1024\n"), ("whole", "50000 f trim 0 4096\n"),
                                      ("parts", "50000 f trim 0 1024\n60000 f trim 1024 3072\n"))}
        self.assertEqual(latency["part"], latency["none"])
        self.assertEqual(latency["parts"], latency["whole"])
        self.assertLess(latency["whole"], latency["none"] / 10)

    def test_files_of_a_log_have_their_own_addresses(self):
        log = ("fio version 3 iolog\n0 a add\n0 a open\n0 b add\n0 b open\n0 a write 0 4096\n"
               "50000 b trim 0 4096\n90000 a read 0 4096\n")
        apart = self.replay(log)["metrics"]["read_latency_mean_ns"]
        shared = self.replay(log, "--set", "workload.streams=shared")["metrics"]["read_latency_mean_ns"]
        self.assertGreater(apart, 50000)
        self.assertLess(shared, 5000)

    def test_wait_of_version_2_is_a_time_in_milliseconds_after_the_start(self):
        log = "fio version 2 iolog\nf add\nf open\n" + "".join(f"f wait 400 0\nf read {i * 4096} 4096\n" for i in range(3)) + "f close\n"
        self.assertAlmostEqual(self.replay(log)["metrics"]["simulated_s"], 0.4, delta=0.001)
        # A pause in front of the first request counts; a wait that has passed does nothing.
        later = log.replace("f close\n", "f wait 100 0\nf read 0 4096\nf wait 1000 0\nf read 0 4096\nf close\n")
        self.assertAlmostEqual(self.replay(later)["metrics"]["simulated_s"], 1.0, delta=0.001)
        # Requests that are not measured, and what comes before them, do not count.
        warm = self.replay(later, "--set", "workload.warmup_requests=3")
        self.assertAlmostEqual(warm["metrics"]["simulated_s"], 0.6, delta=0.001)

    def test_a_log_of_several_jobs_and_a_torn_line(self):
        one = "fio version 3 iolog\n0 f add\n0 f open\n5 f read 0 4096\n"
        self.assertRegex(self.replay(one + one, status=2), r"log:5:1: error: a second header: the log of several jobs")
        # Two jobs that write one log at the same time tear each other's lines.
        self.assertRegex(self.replay(one + "9 f read 8192 40fio version 3 iolog\n", status=2), r"log:5:\d+: error: .*found 8 words; a torn line")
        self.assertRegex(self.replay(one + "9 f re", status=2), r"log:5:5: error: 're' is no action on a file")
        self.assertRegex(self.replay(one + "9 f read 8192", status=2), r"log:5:10: error: .*a torn line")


class Scenarios(Files):
    def check(self, text, status=0):
        (self.out / "s.yaml").write_text(text, encoding="utf-8")
        return self.csdsim("check", "s.yaml", status=status).stderr

    def test_signs_that_look_alike_in_quantities(self):
        text = DRIVE + "workload: {kind: block_io}\n"
        for sign in ("\u00b5s", "\u03bcs"):  # the micro sign, and the Greek letter
            for blank in ("", " ", "\u00a0", "\u202f"):
                self.check(text.replace("50 us", f"50{blank}{sign}"))
        for wrong, named in (("\uff15\uff10 us", "U+FF15"), ("\u221250 us", "U+2212"), ("50 \uff55s", "U+FF55")):
            with self.subTest(named):
                self.assertIn(named, self.check(text.replace("50 us", wrong), status=2))

    def test_tabs_are_called_tabs(self):
        for text in ("csdsim: 1\nplatform:\n\tdevice: {}\n", "csdsim: 1\nplatform: {\n\tdevice: {}}\n\tname: x\n"):
            self.assertRegex(self.check(text, status=2), r"s\.yaml:\d+:\d+: error: .*tab")

    def test_bytes_that_are_no_utf8(self):
        text = DRIVE + "workload: {kind: block_io}\n"
        for data, named in ((text.encode("utf-16"), "UTF-16"), (text.encode("utf-16-le"), "s.yaml:1:2: error: the file is UTF-16 text; save it as UTF-8"),
                            (text.replace("small-drive", "dr\u00efve").encode("latin-1"), "s.yaml:2:9: error: byte 0xEF")):
            (self.out / "s.yaml").write_bytes(data)
            with self.subTest(named):
                self.assertIn(named, self.csdsim("check", "s.yaml", status=2).stderr)

    def test_keys_with_signs_that_nobody_sees(self):
        text = DRIVE + "workload: {kind: block_io}\n"
        for sign, code in (("\u200d", "U+200D"), ("\u00ad", "U+00AD"), ("\ufeff", "U+FEFF")):
            with self.subTest(code):
                self.assertIn(code, self.check(text.replace("read_latency", "read" + sign + "_latency"), status=2))
        self.assertIn("line 2 is 'name\uff1a<U+FF1A> small-drive'", self.check(text.replace("name:", "name\uff1a"), status=2))
        self.assertIn("carriage return", self.check(text.replace("\n", "\r"), status=2))
        self.assertIn("U+0435", self.check(text.replace("read_latency", "r\u0435ad_latency"), status=2))  # a Cyrillic e


if __name__ == "__main__":
    unittest.main()
