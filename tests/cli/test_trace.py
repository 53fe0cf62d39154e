"""Traces of every kind of run: their form, as Perfetto reads it, and what is in them. Usage: test_trace.py CSDSIM SOURCE_DIR"""
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = sys.argv[1], pathlib.Path(sys.argv[2])
del sys.argv[1:]
DEVICE = """
  device:
    flash: {channels: 2, dies_per_channel: 2, planes_per_die: 2, blocks_per_plane: 64, pages_per_block: 32}
    dram: {capacity: 64 MiB}"""
BLOCKS = "csdsim: 1\nplatform:" + DEVICE + """
    ftl: {mapping: {kind: page}}
workload: {kind: block_io, pattern: random_mixed, queue_depth: 8, requests: 400, working_set: 0.9}
"""
GENERATION = """csdsim: 1
model: {layers: 2, heads: 4, kv_heads: 4, head_dim: 64, hidden_size: 256, ffn_size: 512, vocab_size: 1000, max_positions: 2048}
platform:
  gpu: {preset: a6000}
  host: {preset: xeon-5320}""" + DEVICE + """
system: {kind: instinfer-sparf, ratio: 1/8}
workload: {kind: generation, batch: 4, input_tokens: 200, output_tokens: 5, mini_batches: 2}
"""


class Trace:
    """The events of a file, checked as Perfetto would import them."""

    def __init__(self, test, path, limit=200_000_000):
        test.assertLessEqual(path.stat().st_size, limit)
        document = json.loads(path.read_text())
        self.other, self.test = document["otherData"], test
        self.processes, self.threads = {}, {}
        self.slices, self.counters, self.flows = collections.defaultdict(list), collections.defaultdict(list), collections.defaultdict(list)
        begins, self.commands = {}, []
        for e in document["traceEvents"]:
            kind = e["ph"]
            if kind == "M":
                if e["name"] == "process_name":
                    self.processes[e["pid"]] = e["args"]["name"]
                if e["name"] == "thread_name":
                    self.threads[e["pid"], e["tid"]] = e["args"]["name"]
                continue
            test.assertIn(e["pid"], self.processes)
            test.assertGreaterEqual(e["ts"], 0)
            if kind == "X":
                test.assertGreaterEqual(e["dur"], 0)
                test.assertIn((e["pid"], e["tid"]), self.threads)
                self.slices[e["pid"], e["tid"]].append(e)
            elif kind == "C":
                test.assertGreaterEqual(e["args"]["value"], 0)
                self.counters[self.processes[e["pid"]], e["name"]].append((e["ts"], e["args"]["value"]))
            elif kind == "b":
                begins[e["pid"], e["cat"], e["id2"]["local"]] = e
            elif kind == "e":
                begin = begins.pop((e["pid"], e["cat"], e["id2"]["local"]))
                test.assertLessEqual(begin["ts"], e["ts"])
                test.assertEqual(begin["name"], e["name"])
                self.commands.append({**begin, "end": e["ts"]})
            elif kind in "stf":
                self.flows[e["id"]].append(e)
            else:
                test.fail(f"an event of the kind {kind}")
        test.assertFalse(begins, "commands without an end")
        for track, slices in self.slices.items():
            self.check_nesting(track, slices)

    def check_nesting(self, track, slices):
        """Slices of a track are disjoint or nest; Perfetto drops others."""
        slices.sort(key=lambda e: (e["ts"], -e["dur"]))
        end = 0
        for e in slices:
            if e["dur"] == 0:  # within another one, or between two
                continue
            # Sums of decimals: a thousandth of a picosecond is rounding.
            self.test.assertGreaterEqual(e["ts"], end - 1e-9, f"{self.processes[track[0]]}, {self.threads[track]}: {e}")
            end = max(end, e["ts"] + e["dur"])

    def on(self, process, thread):
        """All slices of the tracks that match."""
        return [e for track, slices in self.slices.items() for e in slices
                if re.fullmatch(process, self.processes[track[0]]) and re.fullmatch(thread, self.threads[track])]

    def names(self):
        return {e["name"] for slices in self.slices.values() for e in slices} | {c["name"] for c in self.commands}

    def check_flows(self, most_missing=0):
        """Arrows begin once and end once, in order, each in a slice of its track."""
        whole = 0
        for flow in self.flows.values():
            flow.sort(key=lambda e: e["ts"])
            for e in flow:
                self.test.assertTrue(any(s["ts"] <= e["ts"] < s["ts"] + s["dur"] for s in self.slices[e["pid"], e["tid"]]), e)
            whole += [e["ph"] for e in flow] == ["s", *["t"] * (len(flow) - 2), "f"]
        self.test.assertGreaterEqual(whole, len(self.flows) - most_missing)
        return whole


class Traces(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)

    def tearDown(self):
        self.directory.cleanup()

    def run_(self, scenario, *more, status=0):
        path = scenario
        if "\n" in scenario:
            path = self.out / "s.yaml"
            path.write_text(scenario)
        run = subprocess.run([CSDSIM, "run", path, "--trace", self.out / "t.json", "--out", self.out / "o", *more],
                             capture_output=True, text=True, timeout=300, cwd=SOURCE)
        self.assertEqual(run.returncode, status, run.stderr)
        return run

    def trace(self, scenario, *more):
        run = self.run_(scenario, "-q", *more)
        result = json.loads((self.out / "o/result.json").read_text())
        return Trace(self, self.out / "t.json"), result

    def assert_near(self, found, stated, what):
        self.assertGreater(stated, 0, what)
        self.assertAlmostEqual(found / stated, 1, 6, what)

    def check_drive(self, trace, statistics, drive=0):
        """Times and bytes of the trace are those of the drive's statistics."""
        flash, total = statistics["flash"], 0
        for name, channel in flash.items():
            if not name.startswith("channel_"):
                continue
            slices = trace.on(f"drive {drive} flash", name.replace("_", " "))
            for key, names in (("command", " command"), ("data_out", " data out"), ("data_in", " data in")):
                stated = channel.get(key, 0)
                stated = stated["value"] if isinstance(stated, dict) else stated
                found = sum(e["dur"] for e in slices if e["name"].endswith(names))
                if stated or found:
                    self.assert_near(found * 1e-6, stated, f"{name} {key}")
                total += found
        self.assertGreater(total, 0)

    def test_block_commands(self):
        trace, result = self.trace(BLOCKS)
        self.assertEqual(len(trace.commands), 400)
        self.assertEqual({c["name"] for c in trace.commands}, {"read", "write"})
        self.check_drive(trace, result["stats"]["drives"][0])
        for part in ("link to host", "link to drive"):
            self.assertTrue(trace.on("drive 0", part), part)
            self.assertTrue(trace.counters["drive 0", part + " B/s"], part)
        depth = trace.counters["drive 0", "NVMe queue 1 commands"]
        self.assertGreater(max(v for _, v in depth), 0)
        self.assertEqual(depth[-1][1], 0)
        arrays = trace.on("drive 0 flash", r"channel \d die \d plane \d")
        self.assertEqual({e["name"] for e in arrays} & {"host read", "host program"}, {"host read", "host program"})
        # A page that is sensed leaves over the channel right afterwards or later.
        self.assertEqual(len([e for e in arrays if e["name"] == "host read"]),
                         len([e for e in trace.on("drive 0 flash", r"channel \d") if e["name"] == "host data out"]))

    def test_flash_with_everything_switched_on(self):
        features = (", plane_mode: multi_plane, cache: {program: false}, suspend: {latency: 5 us}, status_time: 1 us, ecc_bandwidth: 2 GB/s, "
                    "page_buffers: 4")
        trace, result = self.trace(BLOCKS.replace("pages_per_block: 32", "pages_per_block: 32" + features), "--set", "workload.requests=2000")
        self.assertTrue(trace.on("drive 0 flash", r"decoder \d"))
        self.assertTrue([e for e in trace.on("drive 0 flash", r"channel \d") if e["name"] == "status"])
        self.assertTrue([e for e in trace.on("drive 0 flash", r"channel \d") if e["name"] == "suspend"])
        buffers = trace.counters["drive 0 flash", "channel 0 page buffers in use"]
        self.assertLessEqual(max(v for _, v in buffers), 4)

    def test_both_models_of_the_flash_tell_the_same(self):
        features = (", plane_mode: multi_plane, suspend: {kinds: program_erase, latency: 5 us}, status_time: 1 us, ecc_bandwidth: 2 GB/s, "
                    "page_buffers: 4")
        blocks = BLOCKS.replace("pages_per_block: 32", "pages_per_block: 32" + features)
        for base, *more in ((BLOCKS,), (blocks,), (GENERATION, "--set", "workload.output_tokens=3")):
            told = []
            for fidelity in ("fast", "at"):
                trace, _ = self.trace(base, *more, "--set", f"platform.device.fidelity={fidelity}")
                slices = sorted((trace.threads[track], e["name"], e["ts"], e["dur"], str(e.get("args")))
                                for track, events in trace.slices.items() if trace.processes[track[0]] == "drive 0 flash" for e in events)
                levels = {name: dict(values) for (process, name), values in trace.counters.items()  # the last one of each time
                          if process == "drive 0 flash" and "buffers" in name}
                told.append((slices, levels))
            self.assertGreater(len(told[0][0]), 500)
            self.assertEqual(told[0][0], told[1][0])
            self.assertEqual(told[0][1], told[1][1])

    def test_a_generation_from_the_host_to_the_dies(self):
        trace, result = self.trace(GENERATION, "--set", "platform.host.io_overhead=2 us", "--set", "platform.device.nvme.firmware_time=1 us",
                                   "--set", "platform.device.ftl.lookup_time=100 ns")
        self.check_drive(trace, result["stats"]["drives"][0])
        for process, thread in (("gpu", "operations"), ("host", r"core \d+"), ("drive 0", "KV operations.*"), ("drive 0", "engine kernels.*"),
                                ("drive 0", "engine argtopk.*"), ("drive 0", "firmware.*"), ("drive 0", "link to host"),
                                ("drive 0 flash", r"channel \d"), ("drive 0 flash", r"filter \d"), ("drive 0 flash", r"channel \d die \d plane \d")):
            self.assertTrue(trace.on(process, thread), f"{process}, {thread}")
        kernels = result["stats"]["drives"][0]["engine"]["kernel_busy"]
        kernels = kernels["value"] if isinstance(kernels, dict) else kernels
        self.assert_near(sum(e["dur"] for e in trace.on("drive 0", "engine kernels.*")) * 1e-6, kernels, "kernels")
        # One attend per layer, mini-batch and step, with its place as arguments.
        attends = [e["args"] for e in trace.on("drive 0", "KV operations.*") if e["name"] == "attend"]
        self.assertEqual(sorted((a["step"], a["layer"], a["mini_batch"]) for a in attends),
                         sorted((s, str(l), m) for s in range(4) for l in range(2) for m in range(2)))
        # Names are those of kinds of work, so that equal ones can be added up.
        self.assertFalse([n for n in trace.names() if re.search(r"\d", n) and n != "logit-0"])
        # An arrow for each token: of every mini-batch, from the prefill to the last step.
        self.assertEqual(trace.check_flows(), 2 * 5)
        self.assertTrue(all(any(trace.processes[e["pid"]] == "drive 0" for e in flow) for i, flow in trace.flows.items() if i & 0xFFFFFFFF))

    def test_every_system(self):
        listed = subprocess.run([CSDSIM, "list", "systems"], capture_output=True, text=True, check=True).stdout
        systems = re.findall(r"^  ([a-z0-9-]+) ", listed, re.M)
        self.assertGreater(len(systems), 12)
        for system in systems:
            with self.subTest(system):
                more = [v for s in SETTINGS.get(system, ()) for v in ("--set", s)]
                trace, _ = self.trace(GENERATION.replace("{kind: instinfer-sparf, ratio: 1/8}", f"{{kind: {system}}}"), *more)
                self.assertTrue(trace.on("gpu|host", "operations"))
                self.assertGreaterEqual(trace.check_flows(), 5)

    def test_traces_policies_and_papers(self):
        trace, _ = self.trace("scenarios/trace_msr.yaml", "--set", "workload.requests=200")
        self.assertGreaterEqual(len(trace.commands), 200)
        trace, result = self.trace("tests/ftl_conformance/small_study.yaml")
        self.assertTrue(trace.on("instinfer, tail token_index, embedding group auto", r"channel \d"))
        self.assertGreaterEqual(len({p for p in trace.processes.values()}), result["metrics"]["policies"])
        trace, _ = self.trace("scenarios/papers/instinfer.yaml", "--set", "workload.batch=2", "--set", "workload.input_tokens=64",
                              "--set", "workload.output_tokens=4", "--set", "model.layers=4")
        self.assertEqual(trace.check_flows(), 4)

    def test_the_limit_is_kept_and_the_whole_run_is_there(self):
        limit = 400_000
        self.run_(GENERATION, "-q")
        whole = Trace(self, self.out / "t.json")
        run = self.run_(GENERATION, "--trace-limit", "400 kB")
        trace = Trace(self, self.out / "t.json", limit)
        self.assertGreater(trace.other["dropped_events"], 0)
        self.assertIn("--trace-limit", run.stderr)
        # Pages are left out, operations are not.
        operations = lambda t: [e["name"] for e in t.on("gpu|drive 0", ".*operations.*")]
        self.assertEqual(sorted(operations(trace)), sorted(operations(whole)))
        self.assertLess(len(trace.on("drive 0 flash", ".*")), len(whole.on("drive 0 flash", ".*")))
        self.assertEqual(whole.other["dropped_events"], 0)

    def test_mistakes(self):
        for more, says in ((("--trace-limit", "5"), "--trace-limit"), (("--trace-limit", "1 kB"), "no room for events")):
            run = self.run_(BLOCKS, *more, status=2)
            self.assertIn(says, run.stderr)


# What a system needs beside its kind.
SETTINGS = {"llm-in-a-flash": ("workload.mini_batches=1", "workload.batch=1")}

if __name__ == "__main__":
    unittest.main()
