#!/usr/bin/env python3
"""Checks that every header of the libraries compiles alone: it includes whatever it needs.

Most of the time for that goes into the same headers again and again. So headers are checked in chains, each of which
is one translation unit: a header follows one that it includes itself, directly or through our headers. And some sets of
headers of other libraries are precompiled; a chain is checked with the largest set of which its first header includes
every member. Either way a header sees nothing that it would not see alone. A header that has passed is checked again
when it, a header of ours that it includes, or the command changes.

Usage: scripts/check_headers.py COMPILE_COMMANDS UNIT    UNIT: the entry of COMPILE_COMMANDS whose options are used
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["base", "contracts", "simulation", "nfc", "ftl", "attention_engine", "nvme_if", "host_runtime", "csd_model", "platform",
           "scenario", "report", "experiment", "launch", "app"]

# Sets that many headers include the whole of; each costs a second or two. Found by intersecting what headers include.
_TEXT = {"string", "vector"}
_VALUES = {"array", "compare", "cstdint", "functional", "limits", "string_view", "vector"}
_CORE = _VALUES | {"memory", "optional", "span", "string"}
_CONFIG = _CORE | {"filesystem", "map", "numeric", "stdexcept", "tuple", "type_traits", "utility", "variant"}
_JSON = {"nlohmann/json.hpp", "string"}
_SYSTEMC = {"compare", "cstdint", "limits", "string", "systemc"}
_MODULE = _SYSTEMC | {"algorithm", "array", "functional", "memory", "stdexcept", "string_view", "tlm", "unordered_map", "vector"}
_DRIVE = _MODULE | _CONFIG | _JSON | {"tlm_utils/simple_initiator_socket.h", "tlm_utils/simple_target_socket.h"}
SMALLEST_GROUP = 4  # precompiling a set for fewer headers costs more than it saves
SETS = [_TEXT, _VALUES, _CORE, _CONFIG, _JSON, _SYSTEMC, _MODULE, _DRIVE]


def includes_of(path):
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', path.read_text(), re.MULTILINE)


def closure(header):
    """(our headers, others') that `header` includes, directly or through ours; the first with itself."""
    ours, others, queue = {header}, set(), [header]
    while queue:
        for name in includes_of(queue.pop()):
            path = ROOT / name
            if name.split("/")[0] in FOLDERS and path.exists():
                if path not in ours:
                    ours.add(path)
                    queue.append(path)
            else:
                others.add(name)
    return ours, others


def compiler_command(compile_commands, unit):
    """The command that compiles `unit`, without its input and output."""
    entry = next(e for e in json.loads(pathlib.Path(compile_commands).read_text()) if e["file"] == unit)
    words = shlex.split(entry["command"])
    words = words[next((i for i, word in enumerate(words) if "ccache" not in word), 0):]
    output = words.index("-o")
    return [word for i, word in enumerate(words) if i not in (output, output + 1) and word not in ("-c", unit)]


def chains(closures):
    """The headers in as few chains as possible: {header: its closure of our headers} -> lists of headers, in each of
    which a header includes the one before it. A minimum path cover, by augmenting paths."""
    follower = {}  # header -> the next one in its chain

    def follow_some_header(header, seen):
        for before in sorted(closures[header] - {header}, key=lambda h: (-len(closures.get(h, ())), h)):
            if before not in closures or before in seen:
                continue
            seen.add(before)
            if before not in follower or follow_some_header(follower[before], seen):
                follower[before] = header
                return True
        return False

    for header in sorted(closures, key=lambda h: (len(closures[h]), h)):
        follow_some_header(header, set())
    result = []
    for header in sorted(closures.keys() - set(follower.values())):
        result.append([header])
        while result[-1][-1] in follower:
            result[-1].append(follower[result[-1][-1]])
    return result


class Checker:
    def __init__(self, command, folder, state):
        self.command, self.folder, self.state = command, folder, state
        version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout
        self.basis = repr((command, version))

    def digest(self, ours):
        text = "".join(f"{path}\n{path.read_text()}" for path in sorted(ours))
        return hashlib.sha256((self.basis + text).encode()).hexdigest()

    def precompile(self, index):
        stem = self.folder / f"set{index}.h"
        stem.write_text("".join(f"#include <{name}>\n" for name in sorted(SETS[index])))
        subprocess.run([*self.command, "-x", "c++-header", str(stem), "-o", f"{stem}.gch"], check=True)
        return stem

    def compile(self, headers, prelude):
        """What the compiler says of a chain; empty where it compiles."""
        command = [*self.command, *(["-include", str(prelude)] if prelude else []), "-fsyntax-only", "-x", "c++", "-"]
        text = "".join(f'#include "{header.relative_to(ROOT)}"\n' for header in headers)
        run = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT)
        return "" if run.returncode == 0 else run.stderr or f"{headers[-1]}: the compiler ended with {run.returncode}\n"

    def run(self, headers):
        """The number of headers that had to be checked, and texts of the compiler for those that do not compile alone."""
        closures = {header: closure(header) for header in headers}
        digests = {header: self.digest(ours) for header, (ours, _) in closures.items()}
        stale = {header: closures[header][0] for header in headers if self.state.get(str(header)) != digests[header]}
        jobs = []  # (headers, the number of a set or None)
        for chain in chains(stale):
            fitting = [i for i, members in enumerate(SETS) if members <= closures[chain[0]][1]]
            jobs.append((chain, max(fitting, key=lambda i: len(SETS[i]), default=None)))
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            sets = [i for i in range(len(SETS)) if sum(best == i for _, best in jobs) >= SMALLEST_GROUP]
            preludes = dict(zip(sets, pool.map(self.precompile, sets)))
            texts = list(pool.map(lambda job: self.compile(job[0], preludes.get(job[1])), jobs))
        self.state.update({str(header): digests[header] for (chain, _), text in zip(jobs, texts) if not text for header in chain})
        return len(stale), [text for text in texts if text]


def main():
    compile_commands, unit = sys.argv[1:]
    command = compiler_command(compile_commands, unit)
    headers = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.h"))]
    if not any("cuda" in word for word in command):
        headers = [p for p in headers if "host_runtime/cuda/" not in p.as_posix()]
    # The headers of cuDNN's frontend are optional, and only the CUDA module sees them.
    headers = [p for p in headers if p.name != "cudnn_graph.h"]
    state_file = pathlib.Path(compile_commands).parent / "header_check.json"
    state = json.loads(state_file.read_text()) if state_file.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        checked, failures = Checker(command, pathlib.Path(folder), state).run(headers)
    state_file.write_text(json.dumps(state))
    sys.stderr.write("".join(failures))
    print(f"header check: {checked} of {len(headers)} headers compiled alone, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
