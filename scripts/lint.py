#!/usr/bin/env python3
"""Checks what the compiler does not check.

Includes go down the levels and never in circles between rooms, classes and functions stay small, a class is one file
pair, libraries neither exit nor print, every test file is in a target, every page of docs/ can be reached from README and names files that exist,
every parameter is set or explained somewhere, and the code is formatted.

Usage: scripts/lint.py [--root DIR] [--no-format]    exit 1 on findings, each as file:line: message
"""
import argparse
import pathlib
import re
import shutil
import subprocess
import sys

from code_shape import cpp_classes, cpp_functions, find_circles, python_functions

CORES = ["ftl", "nfc", "attention_engine", "nvme_if", "host_runtime"]
UPPER = {"simulation": 2, "csd_model": 3, "platform": 4, "scenario": 5, "report": 5, "experiment": 6, "launch": 6,
         "reproduction": 6, "app": 7}
LIBRARIES = ["base", "contracts", *CORES, *UPPER]
CODE_DIRS = [*LIBRARIES, "tests", "bench", "examples"]
CPP_SUFFIXES = (".h", ".cpp", ".cu", ".cuh", ".inc")
TOP = 8  # tests, benches and examples may include anything

# What the FTLs of the two namespaces may include of ftl/: neither knows the other, and what they share knows neither.
FTL_ROOMS = {"core": {"core"}, "kv": {"core", "kv"}, "block": {"core", "block"}}

# The rooms of host_runtime/core that know no feature and no offload system: what every plan is made of.
PLAN_ROOMS = {"plan", "machine", "model", "sampling"}

# Who includes features: they themselves, the offload systems that make them, and the program. Evaluations of checkpoints
# use the models of a feature, its folder model/, without a run.
FEATURES = ("host_runtime", "core", "features")
MAKES_FEATURES = [FEATURES, ("host_runtime", "core", "systems"), ("app",)]

CLASS_FUNCTIONS = 45
FUNCTION_LINES = 80
# Path and class, or path and function, with the reason why it may be larger, or be defined in several sources. An entry
# that no longer applies is a finding.
LARGE_CLASSES = {
    # Not cut yet. Their files are what their parts will be.
    ("attention_engine/core/head_scheduler.h", "HeadScheduler"): "units, page reads, samples and neurons of one engine's clock",
    ("host_runtime/core/carried/decoder_data.h", "DecoderData"): "real rows of every offload system",
    ("host_runtime/core/plan/layer_planner.h", "LayerPlanner"): "steps of a layer, which planners override",
    ("host_runtime/core/systems/hybrid/planner.h", "HybridPlanner"): "a planner with its activations and write-back",
    ("nvme_if/sysc/nvme_controller.h", "NvmeController"): "arbitration, admin commands and firmware updates",
    ("nvme_if/sysc/nvme_driver.h", "NvmeDriver"): "bring-up, queues and timeouts",
    ("experiment/generation/generation_program.h", "GenerationProgram"): "its start is long: it builds the platform",
    # Cohesive: many questions about one state, or the handlers of one protocol.
    ("ftl/core/block_manager.h", "BlockManager"): "the states of a block and 30 one-line questions about them",
    ("nfc/core/general_timeline.h", "GeneralTimeline"): "one event loop: a handler for each event of plane and bus",
    ("nvme_if/core/controller_core.h", "ControllerCore"): "one handler for each admin command",
    # A part of them is compiled apart.
    ("host_runtime/cpu/cpu_backend.h", "CpuBackend"): "tests of the GPU link its attention without the rest",
    ("host_runtime/cuda/offloaded_model.h", "OffloadedModel"): "the emulated GPU compiles its steps with other options",
    # A workload is a folder: its check, its scenario and its run are files of their own.
    ("experiment/block_io/block_workload.h", "BlockIoWorkload"): "a workload",
    ("experiment/generation/generation_workload.h", "GenerationWorkload"): "a workload",
    ("experiment/mapping_policies/policy_workload.h", "PolicyWorkload"): "a workload",
    ("experiment/trace/trace_workload.h", "TraceWorkload"): "a workload",
}
LONG_FUNCTIONS = {
    ("host_runtime/cuda/kernels/decode_attention.cuh", "decode_tile_kernel"): "one kernel: its phases share registers",
    ("host_runtime/cuda/kernels/prefill_attention.cuh", "prefill_tile_kernel"): "one kernel: its phases share registers",
    ("host_runtime/cuda/kernels/chunks.cuh", "choose_chunks_kernel"): "one kernel: its phases share a block's memory",
}

FORBIDDEN = [
    (re.compile(r"(?<![\w.:>])(exit|abort|_exit)\s*\("), "libraries throw; only main exits"),
    (re.compile(r"(?<![\w.:>])s?rand\s*\("), "use base/rng.h: runs are reproducible"),
    (re.compile(r"\bstd::(cout|cerr|clog)\b"), "libraries do not print"),
    (re.compile(r"\b(TODO|FIXME|XXX)\b"), "finish it or open an issue"),
]


def layer_of(relative):
    """(level, top folder) of a file by its path; see the table in docs/architecture.md. The pair is the file's room."""
    parts = relative.parts
    top = parts[0]
    if top in ("base", "contracts"):
        return 0, top
    if parts[:2] == ("nvme_if", "spec"):
        return 0, "nvme_if/spec"
    if top in CORES:
        if parts[:2] == ("host_runtime", "sysc"):  # the one adapter that needs whole drives and a platform
            return 4, top
        core = parts[1] != "plugin" if top == "ftl" else parts[1] == "core"
        return (1 if core else 2), top
    return UPPER.get(top, TOP), top


def keys_of(text):
    """Words of the keys that a YAML text sets: `a.b: {c: 1}` and --set a.b.c=1 set a, b and c."""
    text = re.sub(r"(^|\s)#.*", r"\1", text, flags=re.M)
    keys = re.findall(r"""(?<![\w.])["']?([A-Za-z_]\w*(?:\.\w+)*)["']?\s*(?::(?=\s|$)|=(?!=))""", text, flags=re.M)
    return {word for key in keys for word in key.split(".")}


def names_in_page(text):
    """The same of the code in a page; a name alone in backticks counts, too."""
    blocks = re.findall(r"^```.*?^```", text, flags=re.S | re.M)
    spans = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M))
    return keys_of("\n".join([*blocks, *spans])) | {word for span in spans for word in span.split(".")}


class Lint:
    """The findings in one tree of sources."""

    def __init__(self, root):
        self.root = root
        self.findings = []
        self.rooms = {}  # {room: {included room: "file:line includes header" of one such include}}
        self.excused = set()
        self.sources = {}  # {(top folder, class): {source that defines member functions of it: line of the first}}
        self.code = self.files(CODE_DIRS, CPP_SUFFIXES)
        self.python = self.files([*CODE_DIRS, "scripts"], (".py",))

    def files(self, folders, suffixes):
        return [p for d in folders for p in sorted((self.root / d).rglob("*"))
                if p.suffix in suffixes and "__pycache__" not in p.parts]

    def report(self, path, line, message):
        self.findings.append(f"{path.relative_to(self.root)}:{line}: {message}")

    def check_includes(self, path, text):
        layer, module = layer_of(path.relative_to(self.root))
        for number, line in enumerate(text.splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
            if not match:
                continue
            include = match.group(1)
            if include.split("/")[0] in CODE_DIRS:
                if not (self.root / include).exists():
                    self.report(path, number, f"includes {include}, which does not exist")
                    continue
                other_layer, other_module = layer_of(pathlib.Path(include))
                if other_layer > layer:
                    self.report(path, number, f"layer {layer} includes {include} of layer {other_layer}: arrows go down only")
                elif not self.may_include(path.relative_to(self.root).parts, pathlib.Path(include).parts):
                    self.report(path, number, f"{'/'.join(path.relative_to(self.root).parts[:2])} includes {include}: "
                                              "the FTLs of the two namespaces share ftl/core only")
                elif self.plan_knows_more(path.relative_to(self.root).parts, pathlib.Path(include).parts):
                    self.report(path, number, f"includes {include}: what every plan is made of knows no feature and no offload system")
                elif self.names_a_feature(layer, path.relative_to(self.root).parts, pathlib.Path(include).parts):
                    self.report(path, number, f"includes {include}: offload systems make features, and all others ask RunFeature")
                elif layer == other_layer == 1 and other_module != module:
                    self.report(path, number,
                                f"core of {module} includes its sibling {include}: own the interface you need instead")
                if layer < TOP and (layer, module) != (other_layer, other_module):
                    example = f"{path.relative_to(self.root)}:{number} includes {include}"
                    self.rooms.setdefault((layer, module), {}).setdefault((other_layer, other_module), example)
            elif layer <= 1:
                if re.match(r"(systemc|tlm|cuda|yaml-cpp|fstream|filesystem|sqlite3)", include) and "config" not in path.parts:
                    if layer == 1 or path.relative_to(self.root).parts[0] != "base":
                        self.report(path, number, f"a core may not see <{include}>")
            if re.match(r"cuda|cublas", include) and re.search(r"#\s*include\s*<(systemc|tlm)", text):
                self.report(path, number, "SystemC and CUDA never meet in one translation unit")

    @staticmethod
    def may_include(parts, other):
        rooms = FTL_ROOMS.get(parts[1]) if parts[0] == other[0] == "ftl" else None
        return rooms is None or other[1] in rooms

    @staticmethod
    def plan_knows_more(parts, other):
        core = ("host_runtime", "core")
        return parts[:2] == other[:2] == core and parts[2] in PLAN_ROOMS and other[2] in ("features", "systems")

    @staticmethod
    def names_a_feature(layer, parts, other):
        feature = other[:3] == FEATURES and other[4] != "model"
        return layer < TOP and feature and not any(parts[:len(room)] == room for room in MAKES_FEATURES)

    def check_circles(self):
        for circle in find_circles(self.rooms):
            steps = [self.rooms[a][b] for a, b in zip(circle, circle[1:] + circle[:1])]
            names = " -> ".join(f"{module} ({layer})" for layer, module in circle + circle[:1])
            self.findings.append(f"{steps[0].split(' ')[0]}: rooms include one another in a circle, {names}: " + "; ".join(steps))

    def check_forbidden(self, path, text):
        library = layer_of(path.relative_to(self.root))[0] < UPPER["app"]
        for number, line in enumerate(text.splitlines(), 1):
            code = line.split("//")[0] if "TODO" not in line else line
            for pattern, why in FORBIDDEN:
                if (library or "TODO" in pattern.pattern) and pattern.search(code):
                    self.report(path, number, f"{pattern.search(code).group(0).strip()}: {why}")

    def check_size(self, path, text):
        name = path.relative_to(self.root).as_posix()
        functions = python_functions(text) if path.suffix == ".py" else cpp_functions(text)
        for first, last, function in functions:
            if path.suffix in (".cpp", ".cu") and "::" in function:
                key = (path.relative_to(self.root).parts[0], function.split("::")[0].lstrip("*&").split("<")[0])
                self.sources.setdefault(key, {}).setdefault(path, first)
            length = last - first + 1
            if length > FUNCTION_LINES and not self.excuse(LONG_FUNCTIONS, (name, function)):
                self.report(path, first, f"{function} has {length} lines, at most {FUNCTION_LINES}: split it along what it does")

    def check_classes(self):
        for path in self.code:
            name = path.relative_to(self.root)
            for line, class_name, count in cpp_classes(path.read_text()):
                problems = []
                if count > CLASS_FUNCTIONS:
                    problems.append(f"{count} member functions, at most {CLASS_FUNCTIONS}: give it parts with one responsibility each")
                sources = self.sources.get((name.parts[0], class_name), {}) if path.suffix in (".h", ".cuh") else {}
                if len(sources) > 1:
                    files = ", ".join(source.relative_to(self.root).as_posix() for source in sorted(sources))
                    problems.append(f"defined in {len(sources)} sources ({files}): a class is one file pair")
                if problems and not self.excuse(LARGE_CLASSES, (name.as_posix(), class_name)):
                    for problem in problems:
                        self.report(path, line, f"{class_name}: {problem}")

    def excuse(self, exceptions, key):
        self.excused.add(key)
        return key in exceptions

    def check_exceptions(self):
        for key in [*LARGE_CLASSES, *LONG_FUNCTIONS]:
            if (self.root / key[0]).exists() and key not in self.excused:
                self.report(self.root / key[0], 1, f"is within the limits: take {key} out of the exceptions of scripts/lint.py")

    def check_tests_are_built(self):
        for test in sorted((self.root / "tests").rglob("test_*.cpp")):
            if test.relative_to(self.root).parts[1] == "out_of_tree":
                continue
            lists = test.parent / "CMakeLists.txt"
            if not lists.exists() or test.name not in lists.read_text():
                self.report(test, 1, "is in no CMake target: it never runs")

    def check_docs(self):
        """Links lead somewhere, README leads to every page, and files that README and docs/*.md name exist."""
        readme = self.root / "README.md"
        pages = {p.resolve() for p in (self.root / "docs").rglob("*.md")}
        reached, queue = set(), [readme] if readme.exists() else []
        while queue:
            page = queue.pop()
            if page in reached:
                continue
            reached.add(page)
            queue += self.follow_links(page, pages)
        for page in sorted(pages - reached):
            self.report(page, 1, "is linked from no page that README leads to")
        for page in [*([readme] if readme.exists() else []), *sorted((self.root / "docs").glob("*.md"))]:
            self.check_named_files(page)

    def follow_links(self, page, pages):
        """Pages that `page` links to; a link to a folder links to its pages."""
        found = []
        text = re.sub(r"^```.*?^```", lambda match: re.sub(r"[^\n]", "", match.group(0)), page.read_text(), flags=re.S | re.M)
        for number, line in enumerate(text.splitlines(), 1):
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", line):
                if re.match(r"\w+:", target):
                    continue
                path = (page.parent / target).resolve()
                if not path.exists():
                    self.report(page, number, f"links to {target}, which does not exist")
                found += [p for p in pages if p == path or path.is_dir() and p.parent == path]
        return found

    def check_named_files(self, page):
        tops = "|".join([*CODE_DIRS, "scripts", "scenarios", "models", "cmake", "docs"])
        pattern = re.compile(rf"(?<![\w./<-])(?:{tops})/[\w./*{{}},+-]*")
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for name in pattern.findall(line):
                name = name.rstrip(".,")
                placeholder = "{" in name or re.search(r"\b(?!README|LICENSE)[A-Z]{2,}\b", name)
                if placeholder or (self.root / name).exists():
                    continue
                if not ("*" in name and any(self.root.glob(name))):
                    self.report(page, number, f"names {name}, which does not exist")

    def check_parameters(self):
        """A scenario, preset or example sets each parameter, or a page says whom it serves: the file has the parameter's
        name and that of its section."""
        listed = self.root / "docs" / "parameters.md"
        if not listed.exists():
            return
        folders = [self.root / name for name in ("scenarios", "scenario/presets", "examples", "reproduction")]
        named = [keys_of(p.read_text()) | {p.stem} for folder in folders for p in sorted(folder.rglob("*.yaml"))]
        named += [names_in_page(p.read_text()) for p in (self.root / "docs").glob("*.md")
                  if p.name not in ("parameters.md", "metrics.md")]
        section = []
        for number, line in enumerate(listed.read_text().splitlines(), 1):
            if line.startswith("## "):
                section = re.findall(r"\w+", line)[-1:]
                section = [] if section == ["top"] else section
            row = re.match(r"\| `(\w+)` ", line)
            if row and not any({row.group(1), *section} <= names for names in named):
                self.report(listed, number, f"nothing sets {'.'.join([*section, row.group(1)])} and no page says whom it serves: "
                                            "remove it or say so")

    def check_format(self):
        if not shutil.which("clang-format"):
            sys.exit("lint: clang-format is missing (scripts/install_deps.sh --tests installs it)")
        files = [str(p) for p in self.code if p.suffix != ".inc"]
        run = subprocess.run(["clang-format", "--dry-run", "-Werror", *files], capture_output=True, text=True)
        for line in run.stderr.splitlines():
            match = re.match(r"(.*?):(\d+):\d+: error:", line)
            if match:
                self.report(pathlib.Path(match.group(1)), int(match.group(2)), "not clang-formatted")

    def run(self, with_format):
        for path in self.code:
            text = path.read_text()
            self.check_includes(path, text)
            self.check_forbidden(path, text)
            self.check_size(path, text)
        for path in self.python:
            self.check_size(path, path.read_text())
        self.check_classes()
        self.check_circles()
        self.check_exceptions()
        self.check_tests_are_built()
        self.check_docs()
        self.check_parameters()
        if with_format:
            self.check_format()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent, help="tree to check")
    parser.add_argument("--no-format", action="store_true", help="leave clang-format out")
    options = parser.parse_args()
    lint = Lint(options.root.resolve())
    lint.run(with_format=not options.no_format)
    print("\n".join(lint.findings) if lint.findings else f"lint: {len(lint.code)} files clean")
    return 1 if lint.findings else 0


if __name__ == "__main__":
    sys.exit(main())
