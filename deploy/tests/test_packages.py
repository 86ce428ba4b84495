"""What `make install` and `make package` make, each tried where nothing else of the project is."""

import hashlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

from server import PATIENCE, Server

ROOT = Path(__file__).parent.parent.parent
FACES = {"resp": 0, "http": 0, "grpc": 0}


def run(*words, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, **more)
    if done.returncode != 0:
        raise AssertionError(f"{words}: {done.stdout}{done.stderr}")
    return done.stdout


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.program = Path(cls.directory.name, "moonshard")
        shutil.copy(os.environ["MOONSHARD_BIN"], cls.program)
        # Most of a debug build is debug information, which takes long to pack.
        if shutil.which("strip"):
            run("strip", cls.program)
        cls.packages = Path(cls.directory.name, "packages")
        run(sys.executable, ROOT / "deploy" / "packaging" / "package.py", cls.program, cls.packages)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def package(self, ending):
        """The path of the only package with this ending, whose checksum is right."""
        [path] = self.packages.glob(f"*{ending}")
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        self.assertEqual(path.with_name(f"{path.name}.sha256").read_text(), f"{digest}  {path.name}\n")
        return path

    def serves(self, program, directory):
        with Server("serve", "", FACES, {"data-dir": "none"}, program=program, directory=directory) as server:
            with socket.create_connection(("127.0.0.1", int(server.port("resp"))), timeout=PATIENCE) as client:
                client.sendall(b"PING\r\n")
                self.assertEqual(client.recv(7), b"+PONG\r\n")
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(PATIENCE), 0)

    def has_pages_and_completions(self, prefix):
        share = prefix / "share"
        pages = {page.name for page in (share / "man" / "man1").iterdir()}
        self.assertLess({"moonshard.1", "moonshard-serve.1", "moonshard-topology-move.1"}, pages)
        self.assertIn(".SH SUBCOMMANDS", (share / "man" / "man1" / "moonshard.1").read_text())
        completions = share / "bash-completion" / "completions" / "moonshard"
        # What bash does when a user presses the tab key.
        typed = "COMP_WORDS=(moonshard topo); COMP_CWORD=1; _moonshard moonshard topo moonshard"
        self.assertEqual(run("bash", "-c", f"source '{completions}'; {typed}; echo ${{COMPREPLY[*]}}"), "topology\n")
        self.assertTrue((share / "zsh" / "site-functions" / "_moonshard").read_text().startswith("#compdef moonshard"))
        self.assertIn("complete -c moonshard", (share / "fish" / "vendor_completions.d" / "moonshard.fish").read_text())

    def test_the_tarball_serves(self):
        with tempfile.TemporaryDirectory() as directory:
            with tarfile.open(self.package(".tar.gz")) as archive:
                archive.extractall(directory)
            [unpacked] = Path(directory).iterdir()
            self.assertEqual(f"{unpacked.name}.tar.gz", self.package(".tar.gz").name)
            self.has_pages_and_completions(unpacked)
            for name in ("LICENSE", "README.md"):
                self.assertEqual((unpacked / name).read_bytes(), (ROOT / name).read_bytes())
            self.serves(unpacked / "bin" / "moonshard", directory)

    def test_the_wheel_serves(self):
        with tempfile.TemporaryDirectory() as directory:
            run(sys.executable, "-m", "venv", "venv", cwd=directory)
            venv = Path(directory, "venv")
            # No other package is wanted, and none is looked for.
            run(venv / "bin" / "pip", "install", "--no-index", self.package(".whl"), cwd=directory)
            self.has_pages_and_completions(venv)
            known = run(venv / "bin" / "pip", "show", "moonshard")
            self.assertIn(f"Version: {run(self.program, '--version').split()[1]}\n", known)
            self.serves(venv / "bin" / "moonshard", directory)

    def test_the_same_program_gives_the_same_packages(self):
        # A short one, as packing takes long and does not depend on what the program is.
        program = Path(self.directory.name, "short")
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(str(self.program))} "$@"\n')
        program.chmod(0o755)
        packages = []
        for name in ("once", "again"):
            made = Path(self.directory.name, name)
            run(sys.executable, ROOT / "deploy" / "packaging" / "package.py", program, made)
            packages.append({path.name: path.read_bytes() for path in made.iterdir()})
        self.assertEqual(len(packages[0]), 4)
        self.assertEqual(*packages)

    def test_what_is_installed_serves(self):
        with tempfile.TemporaryDirectory() as directory:
            words = [f"BINARY={self.program}", f"DESTDIR={directory}", "PREFIX=/opt/moonshard"]
            run("make", "--directory", ROOT, "install", *words)
            prefix = Path(directory, "opt", "moonshard")
            self.has_pages_and_completions(prefix)
            self.serves(prefix / "bin" / "moonshard", directory)


if __name__ == "__main__":
    unittest.main()
