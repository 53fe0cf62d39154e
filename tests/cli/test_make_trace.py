"""csdsim make-trace, and the examples that it made. Usage: test_make_trace.py CSDSIM SOURCE_DIR"""
import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:]


def csdsim(*args):
    return subprocess.run([CSDSIM, *args], capture_output=True, text=True, timeout=60)


class MakeTrace(unittest.TestCase):
    def test_examples_are_what_their_commands_make(self):
        folder = SOURCE / "examples/traces"
        commands = re.findall(r"^csdsim (make-trace .*) -o examples/traces/(\S+)$", (folder / "README.md").read_text(), re.M)
        self.assertEqual(len(commands), 3)
        self.assertEqual({name for _, name in commands}, {path.name for path in folder.iterdir()} - {"README.md"})
        for command, name in commands:
            with self.subTest(name), tempfile.TemporaryDirectory() as out:
                made = pathlib.Path(out) / name
                run = csdsim(*shlex.split(command), "-o", str(made))
                self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))
                self.assertEqual(made.read_bytes(), (folder / name).read_bytes())
                heading = 1 if name.endswith(".csv") else 0
                self.assertEqual(len(made.read_text().splitlines()), 300 + heading)

    def test_options_reach_the_trace(self):
        rows = [json.loads(line) for line in csdsim(
            "make-trace", "closed-loop", "--requests", "20", "--clients", "4", "--block-tokens", "8", "--prefix-tokens", "16",
            "--input", "5", "--output", "3", "--delay", "2 s").stdout.splitlines()]
        self.assertEqual(len(rows), 20)
        self.assertEqual({row["session_id"] for row in rows[:4]}, {"0", "1", "2", "3"})
        self.assertTrue(all(row["timestamp"] == 0 for row in rows[:4]))
        self.assertTrue(all("delay" in row and "timestamp" not in row for row in rows[4:]))
        self.assertTrue(all(row["hash_ids"][:2] == [0, 1] for row in rows))
        self.assertTrue(all(len(row["hash_ids"]) == -(-row["input_length"] // 8) for row in rows))
        one, other = (csdsim("make-trace", "agents", "--seed", seed, "--format", "agentic").stdout for seed in "12")
        self.assertNotEqual(one, other)
        self.assertEqual(json.loads(one.splitlines()[0])["schema"], "dynamo.agentic_mooncake")

    def test_mistakes_are_named(self):
        for args, said in ((["chatz"], "there is no kind 'chatz' (did you mean chats?)"),
                           (["chats", "--format", "azur"], "there is no trace format 'azur' (did you mean azure?)"),
                           (["chats", "--format", "weka"], "are read, but not written; written are"),
                           (["chats", "--turns", "0.5"], "at least one request per session"),
                           (["chats", "--turns", "1e300"], "at most 100,000 requests per session"),
                           (["poisson", "--input", "40000"], "a quarter of the tokens that a request may have: 32768"),
                           (["poisson", "--requests", "0"], "--requests: a number above 0 is needed\n"),
                           (["chats", "--gap", "3"], "make-trace: --gap: "),
                           (["closed-loop", "--format", "azure"], "azure: request 9 has no arrival")):
            with self.subTest(args):
                run = csdsim("make-trace", *args)
                self.assertEqual((run.returncode, run.stdout), (2, ""))
                self.assertIn(said, run.stderr)


if __name__ == "__main__":
    unittest.main()
