#!/usr/bin/env python3
"""Gives scripts/lint.py small trees, each with one violation, and sees the finding; and code that it must leave alone.

Usage: test_lint.py SOURCE_DIR
"""
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

SOURCE = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else __file__).resolve()
SOURCE = SOURCE if SOURCE.is_dir() else SOURCE.parents[2]
sys.path.insert(0, str(SOURCE / "scripts"))
import check_headers  # noqa: E402
import code_shape  # noqa: E402
import lint  # noqa: E402


def body(lines):
    """The inside of a function of `lines` statements."""
    return "".join(f"  use({i});\n" for i in range(lines))


class LintTest(unittest.TestCase):
    def findings(self, files):
        """What lint says of a tree that holds `files`, {path: text}."""
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            for name, text in files.items():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_text(text)
            checker = lint.Lint(root)
            checker.run(with_format=False)
            return checker.findings

    def expect(self, files, *words):
        """Exactly one finding, which holds all `words`."""
        found = self.findings(files)
        self.assertEqual(len(found), 1, found)
        for word in words:
            self.assertIn(word, found[0])

    def test_a_clean_tree_has_no_findings(self):
        self.assertEqual(self.findings({
            "base/units.h": "#pragma once\n",
            "ftl/core/map.h": '#include "base/units.h"\n#include <vector>\n',
            "csd_model/drive.cpp": '#include "ftl/core/map.h"\nvoid f() {\n' + body(70) + "}\n",
            "README.md": "[a page](docs/page.md), `ftl/core/*.h`, `scenarios/NAME.yaml`, https://example.org/docs/none.md\n",
            "docs/page.md": "[another](adr/)\n```\n[](const auto& x) { ftl/core/map.h }\n```\n",
            "docs/adr/0001.md": "[back](../page.md#section)\n"}), [])

    def test_includes(self):
        header = {"csd_model/drive.h": "", "ftl/core/map.h": ""}
        self.expect({**header, "nfc/sysc/port.cpp": '\n#include "csd_model/drive.h"\n'},
                    "nfc/sysc/port.cpp:2:", "layer 2 includes csd_model/drive.h of layer 3")
        self.expect({**header, "nfc/core/port.cpp": '#include "ftl/core/map.h"\n'}, "core of nfc includes its sibling")
        for room, other in (("kv", "block"), ("core", "kv")):
            self.expect({f"ftl/{other}/b.h": "", f"ftl/{room}/a.cpp": f'#include "ftl/{other}/b.h"\n'}, f"ftl/{room} includes ftl/{other}/b.h")
        for room in ("plan", "machine", "model", "sampling"):
            for other in ("features/drafts", "systems/kvpr"):
                files = {f"host_runtime/core/{other}/b.h": "", f"host_runtime/core/{room}/a.h": f'#include "host_runtime/core/{other}/b.h"\n'}
                self.expect(files, f"host_runtime/core/{room}/a.h:1: includes host_runtime/core/{other}/b.h", "knows no feature")
        feature = {"host_runtime/core/features/drafts/b.h": ""}
        include = '#include "host_runtime/core/features/drafts/b.h"\n'
        for path in ("host_runtime/core/carried/a.h", "host_runtime/sysc/a.cpp", "experiment/generation/a.cpp"):
            self.expect({**feature, path: include}, f"{path}:1: includes host_runtime/core/features/drafts/b.h", "ask RunFeature")
        for path in ("host_runtime/core/features/neurons/a.h", "host_runtime/core/systems/kvpr/a.h", "app/a.cpp", "tests/features/a.cpp"):
            self.assertEqual(self.findings({**feature, path: include}), [])
        model = {"host_runtime/core/features/neurons/model/b.h": ""}
        include = '#include "host_runtime/core/features/neurons/model/b.h"\n'
        self.assertEqual(self.findings({**model, "experiment/evaluation/a.cpp": include}), [])
        self.expect({**model, "host_runtime/core/plan/a.h": include}, "knows no feature")
        self.assertEqual(self.findings({"host_runtime/core/plan/a.h": "", "host_runtime/core/systems/kvpr/b.h": '#include "host_runtime/core/plan/a.h"\n'}), [])
        self.expect({"base/a.h": '#include "contracts/b.h"\n', "contracts/b.h": '#include "base/c.h"\n', "base/c.h": ""}, "circle", "contracts (0)")
        self.expect({"nfc/core/port.cpp": "#include <systemc>\n"}, "a core may not see <systemc>")
        self.expect({"nfc/core/port.cpp": '#include "nfc/core/gone.h"\n'}, "which does not exist")
        self.expect({"nfc/sysc/port.cpp": "#include <systemc>\n#include <cuda_runtime.h>\n"}, "never meet")

    def test_a_circle_between_rooms_names_an_include_of_each_edge(self):
        circle = {"scenario/a.h": '#include "report/b.h"\n', "report/b.h": "", "report/c.h": '\n#include "scenario/d.h"\n',
                  "scenario/d.h": ""}
        self.expect(circle, "circle", "scenario (5)", "report (5)", "scenario/a.h:1 includes report/b.h",
                    "report/c.h:2 includes scenario/d.h")
        # Tests may include anything, and what host_runtime/sysc includes is no business of host_runtime/core.
        self.assertEqual(self.findings({
            "tests/support/s.h": '#include "report/b.h"\n', "report/b.h": "",
            "host_runtime/sysc/r.h": '#include "platform/p.h"\n',
            "platform/p.h": '#include "host_runtime/core/c.h"\n', "host_runtime/core/c.h": ""}), [])

    def test_circles_of_three(self):
        graph = {"a": {"b": 1}, "b": {"c": 1, "e": 1}, "c": {"a": 1}, "d": {"a": 1}}
        self.assertEqual(code_shape.find_circles(graph), [["a", "b", "c"]])
        self.assertEqual(code_shape.find_circles({"a": {"b": 1, "c": 1}, "b": {"c": 1}}), [])

    def test_a_file_may_be_long(self):
        self.assertEqual(self.findings({"nfc/core/a.h": "\n" * 2000}), [])

    def test_large_classes(self):
        def of(count, name="A"):
            functions = "".join(f"  int f{i}(int a) const;\n" for i in range(count))
            return f"namespace n {{\nclass {name} final : public B<int> {{\n public:\n  {name}();\n  ~{name}();\n" \
                   f"  std::function<void(int)> g;\n  int x{{1}};\n  using T = decltype(f());\n  {name}& operator=(int);\n{functions}}};\n}}\n"
        limit = lint.CLASS_FUNCTIONS
        self.assertEqual(self.findings({"nfc/core/a.h": of(limit)}), [])
        self.expect({"nfc/core/a.h": of(limit + 1)}, "nfc/core/a.h:2: A: 46 member functions, at most 45")
        # A class inside another has its own count; functions of namespaces, lambdas and bodies count for none.
        inner = "class A {\n  struct B {\n" + "  void f();\n" * 30 + "  };\n" + "  void g() { h(); i([] { j(); }); }\n" * 30 + "};\n" + "void k();\n" * 60
        self.assertEqual(code_shape.cpp_classes(inner), [(2, "B", 30), (1, "A", 30)])

    def test_a_class_is_one_file_pair(self):
        files = {"nfc/core/a.h": "class A {\n  void f();\n  void g();\n};\n", "nfc/core/a.cpp": "void A::f() {}\n"}
        self.assertEqual(self.findings(files), [])
        self.expect({**files, "nfc/core/a_more.cpp": "int* A::g() {\n}\n"}, "nfc/core/a.h:1: A: defined in 2 sources",
                    "nfc/core/a.cpp", "nfc/core/a_more.cpp")
        self.assertEqual(self.findings({**files, "ftl/core/a_more.cpp": "void A::g() {}\n"}), [])  # another class A

    def test_long_functions(self):
        fits, long = "void A::f(int a) const {\n" + body(78) + "}\n", "void A::f(int a) const {\n" + body(79) + "}\n"
        self.assertEqual(self.findings({"nfc/core/a.cpp": f"namespace n {{\n{fits}{fits}}}\n"}), [])
        self.expect({"nfc/core/a.cpp": f"namespace n {{\n{fits}{long}}}\n"}, "nfc/core/a.cpp:82: A::f has 81 lines, at most 80")
        self.expect({"nfc/core/a.h": f"struct A final : public B {{\n{fits}{long}}};\n"}, "nfc/core/a.h:82:")
        self.expect({"tests/nfc/a.cpp": 'TEST_CASE("a } brace") {\n' + body(80) + "}\n"}, "TEST_CASE has 82 lines")
        self.expect({"scripts/a.py": "def f():\n" + "    pass\n" * 80}, "scripts/a.py:1: f has 81 lines")

    def test_an_exception_that_is_not_needed_is_a_finding(self):
        (name, function), *_ = lint.LONG_FUNCTIONS
        self.assertEqual(self.findings({name: f"void {function}(int a) {{\n" + body(90) + "}\n"}), [])
        self.expect({name: f"void {function}(int a) {{\n" + body(9) + "}\n"}, "out of the exceptions")

    def test_an_exception_for_a_class_is_for_this_class(self):
        (name, excused), *_ = lint.LARGE_CLASSES
        large = f"class {excused} {{\n" + "  void f();\n" * 60 + "};\n"
        self.assertEqual(self.findings({name: large}), [])
        self.expect({name: large.replace("  void f();\n" * 30, "")}, "out of the exceptions")
        self.expect({name: large + large.replace(excused, "Other")}, "Other: 60 member functions")

    def test_forbidden_calls(self):
        for call in ("exit(1)", "rand()", "std::cout << 1"):
            self.expect({"nfc/core/a.cpp": f"void f() {{ {call}; }}\n"}, "nfc/core/a.cpp:1:")
            self.assertEqual(self.findings({"app/a.cpp": f"void f() {{ {call}; }}\n"}), [])
        self.expect({"app/a.cpp": "// TO" + "DO: later\n"}, "open an issue")

    def test_tests_without_a_target(self):
        files = {"tests/nfc/test_a.cpp": "", "tests/nfc/CMakeLists.txt": "csdsim_test(test_b SOURCES test_b.cpp)\n"}
        self.expect(files, "tests/nfc/test_a.cpp:1:", "never runs")

    def test_docs(self):
        self.expect({"README.md": "", "docs/page.md": ""}, "docs/page.md:1: is linked from no page")
        self.expect({"README.md": "[a](gone/b.md)\n"}, "README.md:1:", "links to gone/b.md, which does not exist")
        self.expect({"README.md": "\nsee `nfc/core/gone.h`\n"}, "README.md:2: names nfc/core/gone.h")
        self.expect({"README.md": "scenarios/*.yaml\n"}, "names scenarios/*.yaml")

    def test_parameters_that_serve_nobody(self):
        listed = {"README.md": "[a](docs/parameters.md) [b](docs/page.md)\n", "docs/page.md": "",
                  "docs/parameters.md": "## top\n\n| `seed` | 1 |\n## platform.device\n\n| `spare` (page) | 0 |\n",
                  "scenarios/a.yaml": "seed: 3\n"}
        finding = "docs/parameters.md:6: nothing sets device.spare"
        self.expect(listed, finding)
        for nothing in ("seed: 3  # device: {spare: 1}\n", "seed: 3\ndevice: spare\n", "seed: 3\nspare: 1\n", "seed: 3\ndevice: {a_spare: 1}\n"):
            self.expect({**listed, "scenarios/a.yaml": nothing}, finding)
        for prose in ("The device has spare blocks: spare them.", "`spare` blocks", "`device` and spare = 3", "`device` has `no spare`"):
            self.expect({**listed, "docs/page.md": prose + "\n"}, finding)
        for sets in ("device: {spare: 1}\n", 'device:\n  "spare": 1\n', "sweep:\n  axes:\n    platform.device.spare: [1, 2]\n"):
            self.assertEqual(self.findings({**listed, "scenarios/b.yaml": sets}), [])
        self.assertEqual(self.findings({**listed, "scenario/presets/device.yaml": "presets: {mine: {values: {spare: 3}}}\n"}), [])
        for names in ("`device.spare` is for drives of your own.", "Of `device`, `spare` is for drives of your own.",
                      "`--set device.spare=1`", "```\ndevice: {spare: 1}\n```"):
            self.assertEqual(self.findings({**listed, "docs/page.md": names + "\n"}), [])

    def test_what_counts_as_a_function(self):
        names = code_shape.cpp_functions
        self.assertEqual(names("Foo::Foo(int a)\n    : a_{a}, b_(a),\n      c_{{1, 2}} {\n  use(a);\n}\n"), [(1, 5, "Foo::Foo")])
        self.assertEqual(names("int a[] = {\n1,\n};\nconst auto f = [](int a) {\n  return a;\n};\nvoid g() {}\n")[-1], (7, 7, "g"))
        self.assertEqual(names("template <class T>\nrequires(sizeof(T) > 1)\nauto f(T t) -> int {\n}\n")[0][:2], (1, 4))
        self.assertEqual(names("void f() {\n  if (a) { g(\"}\"); }  // }\n  h('}', R\"(}})\", 1'000);\n}\nvoid g() {\n}\n"),
                         [(1, 4, "f"), (5, 6, "g")])
        self.assertEqual(names("#define M(x) {\nstruct S {\n  int a = 1;\n  int f(int b = {}) { return b; }\n};\n"), [(4, 4, "f")])
        self.assertEqual(names("__global__ void __launch_bounds__(32 * kW) k(A a) {\n}\n"), [(1, 2, "k")])
        self.assertEqual(names('extern "C" {\nenum class E : int { a, b };\nbool operator()(int a) const {\n}\n}\n')[0][:2], (3, 4))

    def test_headers_that_do_not_compile_alone(self):
        files = {"base/alone.h": "#pragma once\n#include <string>\n#include <vector>\nstd::vector<std::string> f();\n",
                 "base/through.h": '#pragma once\n#include "base/alone.h"\nstd::vector<int> g();\n',
                 "base/missing.h": "#pragma once\n#include <string>\nstd::vector<int> h(std::string);\n"}
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(check_headers, "ROOT", pathlib.Path(folder)):
            root = pathlib.Path(folder)
            (root / "base").mkdir()
            for name, text in files.items():
                (root / name).write_text(text)
            headers = [root / name for name in files]
            self.assertEqual(check_headers.closure(headers[1]), ({headers[0], headers[1]}, {"string", "vector"}))
            state = {}
            # Every header uses a prelude of which it includes all; `missing` includes no vector, so it may not see one.
            others, ours = frozenset({"string", "vector"}), frozenset({"base/alone.h"})
            with mock.patch.object(check_headers, "PRELUDES", [others, ours]), mock.patch.object(check_headers, "SMALLEST_GROUP", 1):
                self.assertEqual(check_headers.choose_preludes({header: check_headers.closure(header) for header in headers}),
                                 dict(zip(headers, (others, ours, None))))
                # The first compiler refuses all three, the second decides.
                checker = check_headers.Checker([["c++", f"-std=c++{year}", "-Werror", f"-I{folder}"] for year in (98, 20)], root, state)
                checked, failures = checker.run(headers)
                self.assertEqual((checked, len(failures)), (3, 1))
                self.assertIn("missing.h:3", failures[0])
                headers[0].write_text(files["base/alone.h"] + "int k();\n")
                self.assertEqual(checker.run(headers)[0], 3)  # the two that see the change, and the one that failed
                self.assertEqual(checker.run(headers[:2])[0], 0)
                # A prelude that does not compile is left out, and its header is found.
                headers[0].write_text("#pragma once\n#include <string>\n#include <vector>\nunknown f();\n")
                checker = check_headers.Checker([["c++", "-std=c++20", f"-I{folder}"]], root, state)
                failures = checker.run(headers[:2])[1]
                self.assertTrue(failures)
                self.assertIn("alone.h:4", failures[0])

    def test_clang_gets_what_decides_the_text_of_headers(self):
        command = ["c++", "-DA=1", "-I/a", "-isystem", "/b", "-Wall", "-Werror", "-O3", "--param=x=1", "-std=c++20"]
        with mock.patch("shutil.which", return_value="/clang++"):
            self.assertEqual(check_headers.clang_command(command),
                             ["/clang++", "-DA=1", "-I/a", "-isystem", "/b", "-std=c++20", "-w", "-fpch-instantiate-templates"])
        with mock.patch("shutil.which", return_value=None):
            self.assertIsNone(check_headers.clang_command(command))

    def test_the_command_fails_on_findings(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "README.md").write_text("`nfc/core/gone.h`\n")
            command = [sys.executable, SOURCE / "scripts" / "lint.py", "--no-format", "--root", folder]
            run = subprocess.run(command, capture_output=True, text=True)
            self.assertEqual((run.returncode, run.stdout), (1, "README.md:1: names nfc/core/gone.h, which does not exist\n"))
            (pathlib.Path(folder) / "README.md").write_text("")
            self.assertEqual(subprocess.run(command, capture_output=True).returncode, 0)


if __name__ == "__main__":
    unittest.main()
