#!/usr/bin/env python3
"""Changes the code one line at a time and asks whether a test fails.

A change that no test notices shows a line whose effect is not tested. Changes are drawn at random
from files. Each is made, the targets are built, the tests run, and the file is restored. Run it by hand, in a checkout
without uncommitted changes: a build and a test run per change take long. docs/testing.md describes the results.

  scripts/mutate.py --random 20 --seed 7 --files 'ftl/kv/*.cpp' --tests '^test_ftl$' '^test_drive$'
  scripts/mutate.py --random 130 --seed 20 --groups tests/mutation_groups.toml

Tests are stages of regular expressions for ctest: a stage is built and run only if no earlier stage noticed the change,
and the first test that fails ends it. --stages runs some of them: first the cheap stage for all changes (--stages 1), then
the others for those that it did not notice (--stages 2-9 --only NUMBER ...).

Groups are tables: [[group]] with name, files (patterns) and tests. Changes are drawn from all lines of all groups alike.

Exit status: 0 every change was noticed, 1 some were not, 2 wrong usage.
"""
import argparse
import collections
import dataclasses
import json
import os
import pathlib
import random
import re
import signal
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
    at: int
    tests: str | list = ""
    group: str = "all"

    def stages(self, first=1, last=sys.maxsize):
        """The stages from `first` to `last`, counted from 1, each (number, expression)."""
        stages = self.tests if isinstance(self.tests, list) else [self.tests]
        return [(number, stage) for number, stage in enumerate(stages, 1) if first <= number <= last]

    def applied(self, text):
        """The text after the change of the line that is the `at`-th of its kind."""
        start = -1
        for _ in range(self.at):
            start = text.index(self.old, start + 1)
        return text[:start] + self.new + text[start + len(self.old):]


def groups_of(path):
    """The groups of a file, each (name, patterns, stages)."""
    with open(path, "rb") as file:
        return [(table["name"], table["files"], table["tests"]) for table in tomllib.load(file)["group"]]


def drawn(count, seed, groups):
    """Random changes, a line each, from all lines of all groups that a replacement fits."""
    choices = []
    for name, patterns, tests in groups:
        files = sorted({path for pattern in patterns for path in ROOT.glob(pattern) if path.suffix in COMPILED})
        if not files:
            raise ValueError(f"no source file matches {' '.join(patterns)}")
        for path in files:
            choices += [(name, tests, path, *choice) for choice in choices_of(path)]
    generator = random.Random(seed)
    changes = []
    for group, tests, path, number, start, line, (first, last), new in generator.sample(choices, min(count, len(choices))):
        changed = line[:first] + new + line[last:]
        text = path.read_text()
        name = f"{path.relative_to(ROOT)}:{number}: {line.strip()}  ->  {changed.strip()}"
        changes.append(Change(name, str(path.relative_to(ROOT)), line, changed, text[:start].count(line) + 1, tests, group=group))
    return changes


def choices_of(path):
    """What can be changed in a file: (line number, position of the line, the line, span to replace, replacement) each."""
    choices = []
    start = 0
    for number, line in enumerate(path.read_text().splitlines(keepends=True), 1):
        if not NOT_CODE.search(line):
            for pattern, new in REPLACEMENTS:
                for match in re.finditer(pattern, line.rstrip("\n")):
                    choices.append((number, start, line, match.span(1), new))
        start += len(line)
    return choices


def run(command, seconds, log, folder=ROOT, environment=()):
    """Exit status of a command, or 124 if it takes longer than `seconds`: then it and what it started are ended."""
    with open(log, "wb") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=subprocess.STDOUT,
                                   env=os.environ | dict(environment), start_new_session=True)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@dataclasses.dataclass
class Test:
    name: str
    command: list
    targets: list  # programs of the build that the command names; empty: not known
    folder: str
    environment: dict
    seconds: int
    skipped: int  # exit status of a test that cannot run here

    def failure(self, log):
        """How the test fails; empty if it passes."""
        status = run(self.command, self.seconds, log, self.folder, self.environment)
        if status in (0, self.skipped):
            return ""
        return f"ran longer than {self.seconds} s" if status == 124 else f"exit status {status}"


def tests_of(build, expression, targets, seconds):
    """The tests that ctest would run, the shortest limit first. Raises ValueError where there is none, or one is not built."""
    command = ["ctest", "--test-dir", str(build), "--show-only=json-v1", "-R", expression or "."]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tests = []
    for test in json.loads(shown)["tests"]:
        if "command" not in test:
            raise ValueError(f"build {test['name']} first: ctest does not find its program in {build}")
        properties = {entry["name"]: entry["value"] for entry in test["properties"]}
        programs = {os.path.relpath(word, build) for word in test["command"] if word.startswith("/")}
        arguments = ["--abort"] if "catch2" in properties.get("LABELS", []) else []
        tests.append(Test(test["name"], test["command"] + arguments, sorted(programs & targets),
                          properties["WORKING_DIRECTORY"],
                          dict(entry.split("=", 1) for entry in properties.get("ENVIRONMENT", [])),
                          min(seconds, int(properties.get("TIMEOUT", seconds))), properties.get("SKIP_RETURN_CODE", 0)))
    if not tests:
        raise ValueError(f"no test matches {expression}")
    return sorted(tests, key=lambda test: test.seconds)


def judge(change, stages, build, targets, jobs, seconds, log):
    """'noticed', 'survived' or 'does not compile', the stage that noticed it, and the test that failed."""
    path = ROOT / change.file
    original = path.read_text()
    stages = [(stage, tests_of(build, expression, targets, seconds)) for stage, expression in change.stages(*stages)]
    try:
        path.write_text(change.applied(original))
        for stage, tests in stages:
            # Only what the tests need is built, if that is known of each.
            known = sorted({target for test in tests for target in test.targets}) if all(test.targets for test in tests) else []
            wanted = ["--target", *known] if known else []
            if run(["cmake", "--build", str(build), "-j", str(jobs), *wanted], None, log) != 0:
                return "does not compile", 0, ""
            for test in tests:
                if failure := test.failure(log):
                    return "noticed", stage, f"{test.name} ({failure})"
        return "survived", 0, ""
    finally:
        path.write_text(original)


def stages_of(text):
    """First and last stage of "2-4" or "1"."""
    match = re.fullmatch(r"([1-9]\d*)(?:-([1-9]\d*))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if last < first:
        raise argparse.ArgumentTypeError(f"expected a stage or a range of stages such as 2-4, found {text}")
    return first, last


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], help="numbers of changes among those drawn")
    parser.add_argument("--random", type=int, metavar="N", required=True, help="draw N changes")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--files", nargs="+", default=[], help="patterns of files, relative to the project, for --random")
    parser.add_argument("--tests", nargs="+", default=[""], help="stages of tests for --files (default: all tests)")
    parser.add_argument("--groups", type=pathlib.Path, help="a TOML file of groups of files and their tests, for --random")
    parser.add_argument("--stages", type=stages_of, default=(1, sys.maxsize), metavar="FIRST[-LAST]",
                        help="run these stages of tests only (default: all)")
    parser.add_argument("--logs", type=pathlib.Path, metavar="FOLDER",
                        help="keep the output that decided each change, NUMBER.log (default: the last, mutate.log in the build folder)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release", help="a configured build folder")
    parser.add_argument("--jobs", type=int, default=2, help="of the build; tests run one after the other")
    parser.add_argument("--timeout", type=int, default=300, help="seconds per test; a test that takes longer has failed")
    arguments = parser.parse_args()
    try:
        groups = groups_of(arguments.groups) if arguments.groups else [("all", arguments.files, arguments.tests)]
        changes = drawn(arguments.random, arguments.seed, groups)
        changes = [changes[int(number) - 1] for number in arguments.only] or changes
        for change in changes:
            if not change.stages(*arguments.stages):
                raise ValueError(f"{change.name} has {len(change.stages())} stages of tests, none of those asked for")
    except (ValueError, OSError, LookupError, TypeError, tomllib.TOMLDecodeError) as error:
        parser.error(str(error))
    files = sorted({change.file for change in changes})
    if subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *files], cwd=ROOT).returncode != 0:
        parser.error("commit first: files to change have uncommitted changes")
    # Of all presets, which use Ninja; with another generator no target is known, and all of them are built.
    outputs = subprocess.run(["ninja", "-C", str(arguments.build), "-t", "targets", "all"], cwd=ROOT,
                             capture_output=True, text=True).stdout
    targets = set(re.findall(r"^(\S+): (?!phony)\w+$", outputs, re.M))
    counts = collections.Counter()
    numbers = [int(number) for number in arguments.only] or range(1, len(changes) + 1)
    if arguments.logs:
        arguments.logs.mkdir(parents=True, exist_ok=True)
    for done, (number, change) in enumerate(zip(numbers, changes, strict=True), 1):
        log = arguments.logs / f"{number}.log" if arguments.logs else arguments.build / "mutate.log"
        try:
            verdict, stage, test = judge(change, arguments.stages, arguments.build, targets, arguments.jobs,
                                         arguments.timeout, log)
        except ValueError as error:
            parser.error(str(error))
        if stage and len(change.stages()) > 1:
            verdict += f" by stage {stage}"
        note = f", {test}" if test else ""
        counts[change.group, verdict] += 1
        print(f"[{done}/{len(changes)}] {number}. {verdict}{note}: {change.name}", flush=True)
    for group in dict.fromkeys(change.group for change in changes):
        verdicts = sorted((verdict, count) for (of, verdict), count in counts.items() if of == group)
        print(f"{group}: " + ", ".join(f"{count} {verdict}" for verdict, count in verdicts))
    return 1 if any(verdict == "survived" for _, verdict in counts) else 0


if __name__ == "__main__":
    sys.exit(main())
