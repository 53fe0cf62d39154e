#!/usr/bin/env python3
"""Changes the code one line at a time and asks whether a test fails.

A change that no test notices shows a line whose effect is not tested. Changes come from a list, or are drawn at random
from files. Each is made, the targets are built, the tests run, and the file is restored. Run it by hand, in a checkout
without uncommitted changes: a build and a test run per change take long.

  scripts/mutate.py --list tests/gpu/emulation/mutations.toml
  scripts/mutate.py --random 20 --seed 7 --files 'ftl/*.cpp' --tests '^test_kv_'

A list holds tables: [[change]] with name, file, old and new (old stands once in the file, or is followed by `at`, which
counts from 1), and optionally tests (a regular expression for ctest) and equal = "why nothing can notice it".

Exit status: 0 every change was noticed (or is listed as equal), 1 some were not, 2 wrong usage.
"""
import argparse
import dataclasses
import json
import pathlib
import random
import re
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPILED = (".h", ".cpp", ".cu", ".cuh")

# What a random change does to a line of code: the first group of the expression is replaced.
REPLACEMENTS = [
    (r" (<) ", "<="), (r" (<=) ", "<"), (r" (>) ", ">="), (r" (>=) ", ">"), (r" (==) ", "!="), (r" (!=) ", "=="),
    (r" (\+) ", "-"), (r" (-) ", "+"), (r" (\*) ", "/"), (r" (/) ", "*"), (r" (%) ", "/"),
    (r" (\+ 1)\b", ""), (r" (- 1)\b", ""), (r" (\+=) ", "-="), (r" (-=) ", "+="), (r" (&&) ", "||"), (r" (\|\|) ", "&&"),
    (r"\bstd::(min)\b", "max"), (r"\bstd::(max)\b", "min"), (r"\b(true)\b", "false"), (r"\b(false)\b", "true"),
    (r"(\+\+)[a-z]", "--"), (r"[(,] (!)[a-z]", ""), (r"[ (](0)[;,)]", "1"), (r"[ (](1)[;,)]", "2"),
    (r"^ +([a-z][\w.>-]*\(.*\);)$", ";"), (r"^ +((?!return|using|const|auto)[a-z][\w.>\[\]-]* [-+*|&]?= .*;)$", ";"),
]
NOT_CODE = re.compile(r"^\s*(//|#|namespace|using|template|static_assert|throw|\*|case|default|struct|class)|///|\bfmt::|\"")


@dataclasses.dataclass
class Change:
    name: str
    file: str
    old: str
    new: str
    at: int = 0
    tests: str = ""
    equal: str = ""

    def applied(self, text):
        """The text after the change. Raises ValueError where `old` is not found, or found more than once without `at`."""
        count = text.count(self.old)
        if count == 0:
            raise ValueError(f"{self.file} does not contain: {self.old}")
        if count > 1 and not self.at:
            raise ValueError(f"{self.file} contains {count} times (say which with `at`): {self.old}")
        if self.at > count:
            raise ValueError(f"{self.file} contains {count} times, not {self.at} times: {self.old}")
        start = -1
        for _ in range(self.at or 1):
            start = text.index(self.old, start + 1)
        return text[:start] + self.new + text[start + len(self.old):]


def listed(path, names):
    """The changes of a list, those of `names` if it is not empty."""
    with open(path, "rb") as file:
        changes = [Change(**table) for table in tomllib.load(file)["change"]]
    unknown = set(names) - {change.name for change in changes}
    if unknown:
        raise ValueError(f"{path} has no change named {', '.join(sorted(unknown))}")
    return [change for change in changes if not names or change.name in names]


def drawn(count, seed, patterns, tests):
    """Random changes, a line each, from all lines that a replacement fits."""
    files = sorted({path for pattern in patterns for path in ROOT.glob(pattern) if path.suffix in COMPILED})
    if not files:
        raise ValueError(f"no source file matches {' '.join(patterns)}")
    choices = []
    for path in files:
        text = path.read_text()
        start = 0
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            if not NOT_CODE.search(line):
                for pattern, new in REPLACEMENTS:
                    for match in re.finditer(pattern, line.rstrip("\n")):
                        choices.append((path, number, start, line, match.span(1), new))
            start += len(line)
    generator = random.Random(seed)
    changes = []
    for path, number, start, line, (first, last), new in generator.sample(choices, min(count, len(choices))):
        changed = line[:first] + new + line[last:]
        text = path.read_text()
        name = f"{path.relative_to(ROOT)}:{number}: {line.strip()}  ->  {changed.strip()}"
        changes.append(Change(name, str(path.relative_to(ROOT)), line, changed, text[:start].count(line) + 1, tests))
    return changes


def run(command, seconds, log):
    """Exit status of a command, or 124 if it takes longer than `seconds`."""
    with open(log, "wb") as output:
        try:
            return subprocess.run(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, timeout=seconds).returncode
        except subprocess.TimeoutExpired:
            return 124


def tests_of(build, expression):
    """Names of the tests that ctest would run."""
    command = ["ctest", "--test-dir", str(build), "--show-only=json-v1", "-R", expression or "."]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [test["name"] for test in json.loads(shown)["tests"]]


def judge(change, build, targets, jobs, seconds):
    """'noticed', 'survived', 'does not compile' or 'no end', and the tests that failed."""
    log = build / "mutate.log"
    path = ROOT / change.file
    original = path.read_text()
    try:
        path.write_text(change.applied(original))
        # Tests that share the name of a target need that target only; otherwise everything is built.
        names = tests_of(build, change.tests)
        known = [name for name in names if name in targets]
        wanted = ["--target", *known] if len(known) == len(names) else []
        if run(["cmake", "--build", str(build), "-j", str(jobs), *wanted], None, log) != 0:
            return "does not compile", []
        command = ["ctest", "--test-dir", str(build), "-j", str(jobs), "-R", change.tests or ".", "--timeout", str(seconds)]
        status = run(command, None, log)
        failed = re.findall(r"^\s+\d+ - (\S+) \(", log.read_text(errors="replace"), re.M)
        return ("survived" if status == 0 else "noticed"), failed
    finally:
        path.write_text(original)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", type=pathlib.Path, help="a TOML file of changes")
    parser.add_argument("--only", nargs="+", default=[], help="names of changes of the list")
    parser.add_argument("--random", type=int, metavar="N", help="draw N changes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", nargs="+", default=[], help="patterns of files, relative to the project, for --random")
    parser.add_argument("--tests", default="", help="regular expression of tests for --random (default: all)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="a configured build folder")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=120, help="seconds per test; a test that takes longer has failed")
    arguments = parser.parse_args()
    if bool(arguments.list) == bool(arguments.random):
        parser.error("either --list or --random")
    try:
        changes = (listed(arguments.list, arguments.only) if arguments.list else
                   drawn(arguments.random, arguments.seed, arguments.files, arguments.tests))
        for change in changes:
            change.applied((ROOT / change.file).read_text())
    except (ValueError, OSError, KeyError, TypeError, tomllib.TOMLDecodeError) as error:
        parser.error(str(error))
    files = sorted({change.file for change in changes})
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *files], cwd=ROOT).returncode != 0:
        parser.error("commit first: files to change have uncommitted changes")
    help_text = subprocess.run(["cmake", "--build", str(arguments.build), "--target", "help"], cwd=ROOT,
                               capture_output=True, text=True).stdout
    targets = set(re.findall(r"^(\w+): phony$", help_text, re.M))
    counts = {}
    survivors = 0
    for number, change in enumerate(changes, 1):
        verdict, failed = judge(change, arguments.build, targets, arguments.jobs, arguments.timeout)
        note = f" by {', '.join(failed)}" if failed else ""
        if verdict == "survived" and change.equal:
            verdict, note = "equal", f": {change.equal}"
        survivors += verdict == "survived"
        counts[verdict] = counts.get(verdict, 0) + 1
        print(f"[{number}/{len(changes)}] {verdict}{note}: {change.name}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())))
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
