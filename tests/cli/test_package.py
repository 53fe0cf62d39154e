"""The Debian package holds what a user needs, and runs where it is unpacked. Usage: test_package.py CSDSIM SOURCE_DIR"""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CSDSIM = pathlib.Path(sys.argv[1]).resolve()
del sys.argv[1:]


class Package(unittest.TestCase):
    def run_in(self, directory, *command):
        run = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, cwd=directory)
        self.assertEqual(run.returncode, 0, f"{command}: {run.stderr}{run.stdout}")
        return run.stdout

    def test_the_package(self):
        with tempfile.TemporaryDirectory() as name:
            out = pathlib.Path(name)
            self.run_in(out, "cpack", "--config", CSDSIM.parent / "CPackConfig.cmake", "-B", out)
            packages = list(out.glob("*.deb"))
            self.assertEqual(len(packages), 1, packages)
            fields = dict(line.split(": ", 1) for line in self.run_in(out, "dpkg-deb", "--field", packages[0]).splitlines()
                          if ": " in line)
            self.assertEqual(fields["Package"], "csdsim")
            for library in ("libc6", "libsystemc", "libyaml-cpp0.7", "libsentencepiece0", "libsqlite3-0"):
                self.assertIn(library, fields["Depends"])
            for other in ("libopenmpi", "libcublas", "-dev"):
                self.assertNotIn(other, fields["Depends"])
            self.run_in(out, "dpkg-deb", "-x", packages[0], out / "root")
            usr = out / "root/usr"
            self.run_in(out, "bash", "-n", usr / "share/bash-completion/completions/csdsim")
            self.assertIn(".SH", (usr / "share/man/man1/csdsim.1").read_text())
            self.assertFalse((usr / "include").exists())
            ran = self.run_in(out, usr / "bin/csdsim", "run", usr / "share/csdsim/scenarios/quickstart.yaml", "-q")
            self.assertIn("decode_tokens_per_s", ran)


if __name__ == "__main__":
    unittest.main(verbosity=2)
