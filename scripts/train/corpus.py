"""Plain text files as one array of token ids, and training windows drawn from it."""
import gzip
import hashlib
import pathlib

import numpy as np

SUFFIXES = (".rst", ".txt", ".yaml", ".pod", ".md")


def documents(roots):
    """Contents of the text files under `roots`, in the order of their contents' hashes; equal files once."""
    found = {}
    for root in map(pathlib.Path, roots):
        for path in sorted(root.rglob("*")) if root.is_dir() else [root]:
            name = path.name.removesuffix(".gz")
            if not path.is_file() or not name.endswith(SUFFIXES) or "translations" in path.parts:
                continue
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            found[hashlib.sha256(data).hexdigest()] = data.decode("utf-8", errors="replace")
    return [found[key] for key in sorted(found)]


def long_lines(text):
    return {line.strip() for line in text.splitlines() if len(line.strip()) >= 30}


def without(texts, held_out):
    """Drops the documents that the held-out text was taken from: those that share 20 lines or half of their lines."""
    known = long_lines(held_out)
    kept = []
    for text in texts:
        lines = long_lines(text)
        shared = len(lines & known)
        if shared < 20 and 2 * shared <= len(lines):
            kept.append(text)
    return kept


def tokenise(texts, tokenizer):
    return np.concatenate([np.asarray(tokenizer.encode(text), dtype=np.uint16) for text in texts])


def windows(tokens, count, length, copies, rng):
    """`count` windows of `length` tokens from random places.

    In a share `copies` of them spans of 16 to 96 tokens, one in 256 tokens, are repeated later in the window at a
    distance that is uniform over what the window allows: what the model cannot guess locally it can look up.
    """
    starts = rng.integers(0, len(tokens) - length, count)
    batch = np.stack([tokens[start:start + length] for start in starts]).astype(np.int64)
    for row in batch[:round(copies * count)]:
        for _ in range(max(1, length // 256)):
            span = int(rng.integers(16, 97))
            source = int(rng.integers(0, length - 2 * span))
            target = int(rng.integers(source + span, length - span + 1))
            row[target:target + span] = row[source:source + span].copy()
    return batch
