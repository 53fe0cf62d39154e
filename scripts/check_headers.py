#!/usr/bin/env python3
"""Checks that every header of the libraries compiles alone, as the first and only include of a translation unit.

Most of the time for that goes into the same headers of other libraries again and again. So some sets of those are
precompiled, and a header is checked with the largest set of which it includes every member itself, directly or through
our headers: it sees nothing that it would not see alone. A header that has passed is checked again when it, a header
of ours that it includes, or the command changes.

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
FOLDERS = ["base", "simulation", "nfc", "ftl", "attention_engine", "nvme_if", "host_runtime", "csd_model", "platform",
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

    def compile(self, header, prelude):
        """What the compiler says of the header; empty where it compiles."""
        command = [*self.command, *(["-include", str(prelude)] if prelude else []), "-fsyntax-only", "-x", "c++", "-"]
        run = subprocess.run(command, input=f'#include "{header.relative_to(ROOT)}"\n', capture_output=True, text=True, cwd=ROOT)
        return "" if run.returncode == 0 else run.stderr or f"{header}: the compiler ended with {run.returncode}\n"

    def run(self, headers):
        """Texts of the compiler for the headers that do not compile alone."""
        stale, wanted = [], set()
        for header in headers:
            ours, others = closure(header)
            digest = self.digest(ours)
            if self.state.get(str(header)) != digest:
                fitting = [i for i, members in enumerate(SETS) if members <= others]
                best = max(fitting, key=lambda i: len(SETS[i]), default=None)
                stale.append((header, digest, best))
                wanted.add(best)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            sets = sorted(i for i in wanted - {None} if sum(best == i for *_, best in stale) >= SMALLEST_GROUP)
            preludes = dict(zip(sets, pool.map(self.precompile, sets)))
            texts = list(pool.map(lambda job: self.compile(job[0], preludes.get(job[2])), stale))
        self.state.update({str(header): digest for (header, digest, _), text in zip(stale, texts) if not text})
        return len(stale), [text for text in texts if text]


def main():
    compile_commands, unit = sys.argv[1:]
    command = compiler_command(compile_commands, unit)
    headers = [p for folder in FOLDERS for p in sorted((ROOT / folder).rglob("*.h"))]
    if not any("cuda" in word for word in command):
        headers = [p for p in headers if "host_runtime/cuda/" not in p.as_posix()]
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
