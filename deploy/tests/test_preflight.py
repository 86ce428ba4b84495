"""What a build says where a program is missing, before it fetches or compiles anything."""

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PINNED = re.search(r'rust-version = "(.*)"', (ROOT / "Cargo.toml").read_text())[1]
# What each program of a machine on which all is there answers to anything.
PROGRAMS = {"cargo": f"echo cargo {PINNED}.0", "cc": "", "python3": "", "node": "echo v20.19.0", "npm": ""}


class Preflight(unittest.TestCase):
    def run_with(self, programs, *words):
        """Runs a program where no others are than these, in a copy of the project that nothing was fetched into."""
        with tempfile.TemporaryDirectory() as directory:
            path, copy = Path(directory, "bin"), Path(directory, "project")
            path.mkdir()
            (path / "bash").symlink_to(shutil.which("bash"))
            for name, script in programs.items():
                (path / name).write_text(f'#!/bin/sh\necho {name} "$@" >>"{directory}/calls"\n{script}\n')
                (path / name).chmod(0o755)
            for name in ("Makefile", "Cargo.toml", "deploy/packaging/preflight.sh", "guest-lua/requirements.txt"):
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / name, copy / name)
            done = subprocess.run(words, cwd=copy, env={"PATH": str(path)}, capture_output=True, text=True, timeout=60)
            return done, Path(directory, "calls").read_text().splitlines()

    def reported(self, programs):
        done, _ = self.run_with(programs, shutil.which("bash"), "deploy/packaging/preflight.sh")
        self.assertEqual(done.stdout, "")
        return done.returncode, done.stderr.splitlines()

    def test_is_silent_where_all_is_there(self):
        self.assertEqual(self.reported(PROGRAMS), (0, []))

    def test_one_line_for_each_missing_program(self):
        for name, wanted in (
            ("cargo", "cargo is missing"),
            ("cc", "A C compiler and linker (cc) is missing"),
            ("python3", "Python 3 (python3) is missing"),
        ):
            with self.subTest(name):
                code, [line] = self.reported({other: PROGRAMS[other] for other in PROGRAMS if other != name})
                self.assertEqual(code, 1)
                self.assertIn(wanted, line)
                self.assertRegex(line, "Debian: .* Fedora: .* macOS: ")

    def test_python_without_venv(self):
        code, [line] = self.reported(PROGRAMS | {"python3": "exit 1"})
        self.assertEqual(code, 1)
        self.assertIn("Python's venv is missing", line)
        self.assertIn("apt install python3-venv", line)

    def test_a_cargo_that_cannot_build_it(self):
        for script, wanted in (
            ("echo cargo 1.63.0", f"cargo 1.63.0 is older than {PINNED}"),
            ("exit 1", "cargo has no toolchain"),
        ):
            code, [line] = self.reported(PROGRAMS | {"cargo": script})
            self.assertEqual(code, 1)
            self.assertIn(wanted, line)

    def test_the_server_is_built_without_node(self):
        for node in ({}, {"node": "echo v18.20.4", "npm": ""}):
            without = {name: script for name, script in PROGRAMS.items() if name not in ("node", "npm")}
            code, [line] = self.reported(without | node)
            self.assertEqual(code, 0)
            self.assertIn("WITHOUT its web console", line)
            self.assertRegex(line, "Debian: .* Fedora: .* macOS: ")

    def test_all_that_is_missing_is_said_at_once(self):
        code, lines = self.reported({"node": "echo v22.1.0", "npm": ""})
        self.assertEqual((code, len(lines)), (1, 3))

    def test_another_zig_makes_python_needless(self):
        without = {name: script for name, script in PROGRAMS.items() if name != "python3"}
        self.assertEqual(self.reported(without | {"zig": "echo 0.17.0"}), (0, []))

    def test_make_stops_before_it_fetches_or_compiles(self):
        without = {name: script for name, script in PROGRAMS.items() if name != "cc"}
        for target in ("run", "build", "dist", "test", "package"):
            with self.subTest(target):
                done, calls = self.run_with(without, shutil.which("make"), target)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("A C compiler and linker (cc) is missing", done.stderr)
                harmless = {"cargo --version", "node --version", "python3 -c import ensurepip, venv"}
                self.assertEqual(set(calls) - harmless, set())


if __name__ == "__main__":
    unittest.main()
