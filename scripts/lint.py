#!/usr/bin/env python3
"""Checks what the compiler does not: layering, formatting, forbidden calls in libraries, tests that are in no target.

Usage: scripts/lint.py [--no-format]    exit 1 on findings, each as file:line: message
"""
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORES = ["ftl", "nfc", "attention_engine", "nvme_if", "host_runtime"]
UPPER = {"simulation": 2, "csd_model": 3, "platform": 4, "scenario": 5, "report": 5, "experiment": 6, "launch": 6, "app": 7}
LIBRARIES = ["base", *CORES, *UPPER]
CODE_DIRS = [*LIBRARIES, "tests", "bench", "examples"]
TOP = 8  # tests, benches and examples may include anything
findings = []


def report(path, line, message):
    findings.append(f"{path.relative_to(ROOT)}:{line}: {message}")


def layer_of(relative):
    """(level, room) of a file by its path; see the table in README (Layout)."""
    parts = relative.parts
    top = parts[0]
    if top == "base" or parts[:2] == ("nvme_if", "spec"):
        return 0, "base"
    if top in CORES:
        if parts[:2] == ("host_runtime", "sysc"):  # the one adapter that needs whole drives and a platform
            return 4, top
        return (1 if parts[1] in ("core", "policies", "conformance") else 2), top
    return UPPER.get(top, TOP), top


def check_includes(path, text):
    layer, module = layer_of(path.relative_to(ROOT))
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if not match:
            continue
        include = match.group(1)
        target = ROOT / include
        if include.split("/")[0] in CODE_DIRS:
            if not target.exists():
                report(path, number, f"includes {include}, which does not exist")
                continue
            other_layer, other_module = layer_of(pathlib.Path(include))
            if other_layer > layer:
                report(path, number, f"layer {layer} includes {include} of layer {other_layer}: arrows go down only")
            elif layer == other_layer == 1 and other_module != module:
                report(path, number, f"core of {module} includes its sibling {include}: own the interface you need instead")
        elif layer <= 1:
            if re.match(r"(systemc|tlm|cuda|yaml-cpp|fstream|filesystem|sqlite3)", include) and "config" not in path.parts:
                if layer == 1 or not path.relative_to(ROOT).parts[0] == "base":
                    report(path, number, f"a core may not see <{include}>")
        if re.match(r"cuda|cublas", include) and re.search(r"#\s*include\s*<(systemc|tlm)", text):
            report(path, number, "SystemC and CUDA never meet in one translation unit")


FORBIDDEN = [
    (re.compile(r"(?<![\w.:>])(exit|abort|_exit)\s*\("), "libraries throw; only main exits"),
    (re.compile(r"(?<![\w.:>])s?rand\s*\("), "use base/rng.h: runs are reproducible"),
    (re.compile(r"\bstd::(cout|cerr|clog)\b"), "libraries do not print"),
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "finish it or open an issue"),
]


def check_forbidden(path, text):
    library = layer_of(path.relative_to(ROOT))[0] < UPPER["app"]
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0] if "TODO" not in line else line
        for pattern, why in FORBIDDEN:
            if (library or "TODO" in pattern.pattern) and pattern.search(code):
                report(path, number, f"{pattern.search(code).group(0).strip()}: {why}")


def check_tests_are_built():
    for test in sorted((ROOT / "tests").rglob("test_*.cpp")):
        if test.relative_to(ROOT).parts[1] == "out_of_tree":
            continue
        lists = test.parent / "CMakeLists.txt"
        if not lists.exists() or test.name not in lists.read_text():
            report(test, 1, "is in no CMake target: it never runs")


def check_format(files):
    if not shutil.which("clang-format"):
        sys.exit("lint: clang-format is missing (scripts/install_deps.sh --lint installs it)")
    run = subprocess.run(["clang-format", "--dry-run", "-Werror", *map(str, files)], capture_output=True, text=True)
    for line in run.stderr.splitlines():
        match = re.match(r"(.*?):(\d+):\d+: error:", line)
        if match:
            report(pathlib.Path(match.group(1)), int(match.group(2)), "not clang-formatted")


def main():
    files = [p for d in CODE_DIRS for p in sorted((ROOT / d).rglob("*")) if p.suffix in (".h", ".cpp", ".cu", ".cuh")]
    for path in files:
        text = path.read_text()
        check_includes(path, text)
        check_forbidden(path, text)
    check_tests_are_built()
    if "--no-format" not in sys.argv:
        check_format(files)
    print("\n".join(findings) if findings else f"lint: {len(files)} files clean")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
