"""csdsim hit-rates. Usage: test_hit_rates.py CSDSIM SOURCE_DIR"""
import collections
import csv
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

CSDSIM, SOURCE = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
del sys.argv[1:3]
BLOCK = 512
KEYS = ["trace", "eviction", "admission", "capacity", "blocks", "block_hit_rate", "token_hit_rate", "stored_blocks"]


def csdsim(*args):
    return subprocess.run([CSDSIM, *map(str, args)], capture_output=True, text=True, timeout=300)


def chats(seed, count):
    """Prompts of chats, as (tokens, blocks): those of the turn before, then new ones; a fifth has no chat."""
    draw, chats, ids, prompts = random.Random(seed), collections.defaultdict(list), iter(range(10**9)), []
    for _ in range(count):
        fresh = [next(ids) for _ in range(draw.randint(1, 6))]
        blocks = fresh
        if draw.random() < 0.8:
            chat = int(200 * draw.random() ** 3)
            chats[chat] = blocks = (chats[chat] if len(chats[chat]) < 40 else []) + fresh
        prompts.append((len(blocks) * BLOCK - draw.randint(0, BLOCK - 1), list(blocks)))
    return prompts


def lru(prompts, capacity):
    """Hit blocks, hit tokens and stored blocks, by the rules: the leading run of known blocks hits, everything is used
    from the last block to the first, and a prompt with more blocks than the capacity is not stored."""
    cache, hit_blocks, hit_tokens, stored = collections.OrderedDict(), 0, 0, 0
    for tokens, blocks in prompts:
        hits = next((i for i, block in enumerate(blocks) if block not in cache), len(blocks))
        hit_blocks += hits
        hit_tokens += min(hits * BLOCK, tokens)
        for block in reversed(blocks):
            if block in cache:
                cache.move_to_end(block)
        if capacity is None or len(blocks) <= capacity:
            missing = [block for block in reversed(blocks) if block not in cache]
            stored += len(missing)
            while capacity is not None and len(cache) + len(missing) > capacity:
                del cache[next(block for block in cache if block not in blocks)]
            for block in [*missing, *reversed(blocks)]:
                cache[block] = True
                cache.move_to_end(block)
    return hit_blocks, hit_tokens, stored


class HitRates(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.directory.name)
        self.prompts = chats(1, 1500)
        self.trace = self.write("chats.jsonl", self.prompts)

    def tearDown(self):
        self.directory.cleanup()

    def write(self, name, prompts):
        lines = [json.dumps({"timestamp": 10 * i, "input_length": tokens, "output_length": 7, "hash_ids": blocks})
                 for i, (tokens, blocks) in enumerate(prompts)]
        (self.out / name).write_text("\n".join(lines) + "\n")
        return self.out / name

    def rows(self, *args):
        run = csdsim("hit-rates", *args, "--format", "json", "-q")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        return json.loads(run.stdout)

    def refused(self, *args, says):
        run = csdsim("hit-rates", *args)
        self.assertEqual(run.returncode, 2, run.stderr + run.stdout)
        self.assertEqual(run.stdout, "")
        for text in says:
            self.assertIn(text, run.stderr)

    def test_lru_equals_its_rules_at_every_capacity(self):
        rows = self.rows(self.trace)
        distinct = len({block for _, blocks in self.prompts for block in blocks})
        powers = [2 ** i for i in range(64) if 2 ** i < distinct]
        self.assertEqual([row["capacity"] for row in rows], [*powers, None])
        self.assertGreater(rows[-1]["block_hit_rate"], 0.3)
        for row in rows:
            self.assertEqual(list(row)[:8], KEYS)
            hit_blocks, hit_tokens, stored = lru(self.prompts, row["capacity"])
            blocks, tokens = sum(len(b) for _, b in self.prompts), sum(t for t, _ in self.prompts)
            self.assertEqual((row["hit_blocks"], row["hit_tokens"], row["stored_blocks"], row["blocks"], row["tokens"]),
                             (hit_blocks, hit_tokens, stored, blocks, tokens))
            self.assertAlmostEqual(row["block_hit_rate"], hit_blocks / blocks, places=12)
            self.assertAlmostEqual(row["token_hit_rate"], hit_tokens / tokens, places=12)
            self.assertEqual((row["eviction"], row["admission"], row["block_tokens"]), ("lru", "always", BLOCK))
        self.assertEqual(rows[-1]["distinct_blocks"], distinct)

    def test_every_combination_has_a_row_and_formats_agree(self):
        other = self.write("other.jsonl", chats(2, 300))
        args = [self.trace, other, "--eviction", "lru,arc", "--admission", "always,nth_sighting:n=3", "--capacity",
                "64,unlimited", "--block-tokens", "512,1024"]
        rows = self.rows(*args)
        self.assertEqual(len(rows), 32)
        self.assertEqual(len({tuple(row[key] for key in (*KEYS[:4], "block_tokens")) for row in rows}), 32)
        self.assertEqual({row["admission"] for row in rows}, {"always", "nth_sighting:n=3"})
        table = list(csv.DictReader(csdsim("hit-rates", *args, "--format", "csv").stdout.splitlines()))
        self.assertEqual([{key: "" if value is None else str(value) for key, value in row.items()} for row in rows], table)
        text = csdsim("hit-rates", *args).stdout
        self.assertEqual(text.count("unlimited"), 16)
        self.assertEqual(text.count("stored blocks"), 4)  # a table per trace and block size
        always, third = (next(row for row in rows if row["admission"] == name and row["capacity"] is None)
                         for name in ("always", "nth_sighting:n=3"))
        sightings = collections.Counter(block for _, blocks in self.prompts for block in blocks)
        self.assertEqual(third["stored_blocks"], sum(count >= 3 for count in sightings.values()))
        self.assertLess(third["hit_blocks"], always["hit_blocks"])

    def test_a_larger_block_holds_whole_blocks_only(self):
        [row] = self.rows(self.trace, "--block-tokens", 2 * BLOCK, "--capacity", "unlimited")
        # The last block of a prompt may be partly filled, and no larger block contains it then.
        self.assertTrue(any(len(blocks) % 2 == 0 and tokens % BLOCK for tokens, blocks in self.prompts))
        pairs = [(tokens, [blocks[i + 1] for i in range(0, tokens // BLOCK - 1, 2)]) for tokens, blocks in self.prompts]
        self.assertEqual(row["blocks"], sum(len(blocks) for _, blocks in pairs))
        known, hit_blocks, hit_tokens = set(), 0, 0
        for tokens, blocks in pairs:
            hits = next((i for i, block in enumerate(blocks) if block not in known), len(blocks))
            hit_blocks, hit_tokens = hit_blocks + hits, hit_tokens + min(hits * 2 * BLOCK, tokens)
            known.update(blocks)
        self.assertEqual((row["hit_blocks"], row["hit_tokens"]), (hit_blocks, hit_tokens))

    def test_a_picture_of_the_curves(self):
        picture = self.out / "curve.svg"
        run = csdsim("hit-rates", self.trace, "--eviction", "lru,fifo", "--plot", picture)
        self.assertEqual(run.returncode, 0, run.stderr)
        for text in ("capacity in blocks of 512 tokens", "tokens that hit (%)", "lru", "fifo"):
            self.assertIn(text, picture.read_text())
        self.refused(self.trace, "--plot", self.out / "curve.bmp", says=["curve.bmp", ".png, .svg or .pdf"])

    def test_mistakes_are_named(self):
        for args, says in [
                (["--eviction", "lruu"], ["unknown eviction policy 'lruu'", "lru", "s3fifo"]),
                (["--admission", "sometimes"], ["unknown admission policy 'sometimes'", "nth_sighting"]),
                (["--admission", "nth_sighting:m=3"], ["has no setting 'm'"]),
                (["--admission", "nth_sighting:n=0"], ["setting n"]),
                (["--admission", "nth_sighting:n=2:n=3"], ["n is given twice"]),
                (["--eviction", "lru:n"], ["'lru:n'"]),
                (["--eviction", self.out / "none.so"], ["none.so does not exist"]),
                (["--eviction", self.trace], ["chats.jsonl cannot be loaded"]),
                (["--capacity", "0"], ["--capacity 0", "unlimited"]),
                (["--capacity", "many"], ["--capacity many", "unlimited"]),
                (["--capacity", "-5"], ["--capacity -5", "unlimited"]),
                (["--block-tokens", "700"], ["chats.jsonl", "700", "512, 1024"]),
                (["--block-tokens", "0"], ["chats.jsonl", "512, 1024"]),
                (["--block-tokens", "1048576"], ["no prompt has a whole block of 1048576 tokens"]),
                (["--format", "xml"], ["table, json or csv"])]:
            self.refused(self.trace, *args, says=says)
        self.refused(self.out / "nothing.jsonl", says=["nothing.jsonl"])
        (self.out / "azure.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,374,44\n")
        self.refused(self.out / "azure.csv", says=["azure.csv: its requests have lengths only, no KV blocks"])

    def test_help_completion_and_lists(self):
        text = csdsim("hit-rates", "--help").stdout
        self.assertIn("csdsim hit-rates trace.jsonl --eviction lru,arc,s3fifo", text)
        completion = csdsim("completion", "bash").stdout
        for words in ("hit-rates", "lru fifo lfu arc s3fifo", "always nth_sighting frequency"):
            self.assertIn(words, completion)
        self.assertIn("  s3fifo ", csdsim("list", "evictions").stdout)
        self.assertIn("  nth_sighting ", csdsim("list", "admissions").stdout)


if __name__ == "__main__":
    unittest.main()
