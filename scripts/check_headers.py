#!/usr/bin/env python3
"""Checks that every header of the libraries compiles alone: it includes whatever it needs.

Most of the time for that goes into the same headers again and again. So headers are checked in chains, each of which
is one translation unit: a header follows one that it includes itself, directly or through our headers. And some headers
are precompiled as preludes; a header is checked with the largest prelude of which it includes every member. Either way
a header sees nothing that it would not see alone. A header that has passed is checked again when it, a header of ours
that it includes, or the command changes.

Where clang is installed it looks first: it reads a prelude in a fifth of the time that GCC takes, which instantiates the
templates of the prelude once more for each chain. What clang refuses is checked by the compiler of the build.

Usage: scripts/check_headers.py COMPILE_COMMANDS UNIT    UNIT: the entry of COMPILE_COMMANDS whose options are used
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ["base", "contracts", "simulation", "nfc", "ftl", "attention_engine", "nvme_if", "host_runtime", "csd_model", "platform",
           "scenario", "report", "experiment", "launch", "app"]

# What many headers include: sets of other libraries' headers, found by intersecting what headers include, and headers of
# ours. They stand in the order of the time that the compiler takes for them, 0.3 s to 4 s.
_TEXT = {"string", "vector"}
_VALUES = {"array", "compare", "cstdint", "functional", "limits", "string_view", "vector"}
_CORE = _VALUES | {"memory", "optional", "span", "string"}
_CONFIG = _CORE | {"filesystem", "map", "numeric", "stdexcept", "tuple", "type_traits", "utility", "variant"}
_JSON = {"nlohmann/json.hpp", "string"}
_SYSTEMC = {"compare", "cstdint", "limits", "string", "systemc"}
PRELUDES = [frozenset(names) for names in (
    _TEXT, _VALUES, _CORE, {"ftl/core/block_manager.h"}, {"host_runtime/core/plan/operation.h"}, _CONFIG, {"base/param.h"},
    {"host_runtime/core/decoder/backend.h"}, _JSON, _SYSTEMC, {"simulation/event_loop.h"}, {"csd_model/drive_config.h"},
    {"host_runtime/core/plan/system.h"}, {"scenario/scenario.h"}, {"csd_model/drive.h"})]
SMALLEST_GROUP = 6  # precompiling a prelude for fewer headers costs more than it saves


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


def clang_command(command):
    """`command` with clang, if it is installed: what decides which headers are found and what they contain, no warnings."""
    clang = shutil.which("clang++")
    if not clang:
        return None
    kept = [word for before, word in zip(command, command[1:]) if before == "-isystem" or re.match("-[DI]|-std=|-isystem", word)]
    return [clang, *kept, "-w", "-fpch-instantiate-templates"]


def choose_preludes(closures):
    """{header: its closure} -> {header: the last prelude that it can use, or None}."""
    def names_of(ours, others):
        return others | {path.relative_to(ROOT).as_posix() for path in ours}

    names = {header: names_of(*closed) for header, closed in closures.items()}
    parts = {}  # prelude -> all that it includes
    for prelude in PRELUDES:
        parts[prelude] = prelude.union(*(names_of(*closure(ROOT / name)) for name in prelude if (ROOT / name).exists()))
    while True:
        chosen = {}
        for header in closures:
            own_name = header.relative_to(ROOT).as_posix()
            fitting = [p for p in parts if p <= names[header] and own_name not in parts[p]]
            chosen[header] = fitting[-1] if fitting else None
        rare = [p for p in parts if sum(choice == p for choice in chosen.values()) < SMALLEST_GROUP]
        if not rare:
            return chosen
        for prelude in rare:
            del parts[prelude]


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
    def __init__(self, commands, folder, state):
        """The last of `commands` decides what does not compile; those before it are faster."""
        self.commands, self.folder, self.state = commands, folder, state
        versions = [subprocess.run([command[0], "--version"], capture_output=True, text=True, check=True).stdout for command in commands]
        self.basis = repr((commands, versions))

    def digest(self, ours):
        text = "".join(f"{path}\n{path.read_text()}" for path in sorted(ours))
        return hashlib.sha256((self.basis + text).encode()).hexdigest()

    def precompile(self, prelude):
        """The file to include, or None where the prelude does not compile: its headers are among those that are checked."""
        stem = self.folder / (hashlib.sha256(repr(sorted(prelude)).encode()).hexdigest() + ".h")
        stem.write_text("".join(f"#include <{name}>\n" for name in sorted(prelude)))
        run = subprocess.run([*self.commands[0], "-x", "c++-header", str(stem), "-o", f"{stem}.gch"], capture_output=True)
        return stem if run.returncode == 0 else None

    def compile(self, headers, prelude):
        """What the last compiler says of a chain that none compiles; otherwise empty."""
        text = "".join(f'#include "{header.relative_to(ROOT)}"\n' for header in headers)
        for command in self.commands:
            with_prelude = ["-include", str(prelude)] if prelude and command == self.commands[0] else []
            run = subprocess.run([*command, *with_prelude, "-fsyntax-only", "-x", "c++", "-"], input=text, capture_output=True, text=True, cwd=ROOT)
            if run.returncode == 0:
                return ""
        return run.stderr or f"{headers[-1]}: the compiler ended with {run.returncode}\n"

    def run(self, headers):
        """The number of headers that had to be checked, and texts of the compiler for those that do not compile alone."""
        closures = {header: closure(header) for header in headers}
        digests = {header: self.digest(ours) for header, (ours, _) in closures.items()}
        stale = {header: closures[header] for header in headers if self.state.get(str(header)) != digests[header]}
        groups = {}  # prelude -> {header: its closure of our headers}
        for header, prelude in choose_preludes(stale).items():
            groups.setdefault(prelude, {})[header] = stale[header][0]
        jobs = [(chain, prelude) for prelude, group in groups.items() for chain in chains(group)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            used = [prelude for prelude in groups if prelude]
            files = dict(zip(used, pool.map(self.precompile, used)))
            texts = list(pool.map(lambda job: self.compile(job[0], files.get(job[1])), jobs))
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
        checked, failures = Checker([c for c in (clang_command(command), command) if c], pathlib.Path(folder), state).run(headers)
    state_file.write_text(json.dumps(state))
    sys.stderr.write("".join(failures))
    print(f"header check: {checked} of {len(headers)} headers compiled alone, {len(failures)} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
