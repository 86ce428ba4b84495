"""A server of the tests' own, started with a config file as it would be elsewhere."""

import os
import queue
import subprocess
import tempfile
import threading
from contextlib import contextmanager

# Generous: machines are busy.
PATIENCE = 120


class Server:
    """Runs until the end of its `with`. Faces listen on free ports of this machine."""

    def __init__(self, part, config, faces, settings, program=None, directory=None):
        self.file = tempfile.NamedTemporaryFile("w", suffix=".toml")
        self.file.write(config)
        self.file.flush()
        own = {name: f"127.0.0.1:{port}" for name, port in faces.items()} | settings
        flags = [word for name, value in own.items() for word in (f"--{name}", value)]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [program or os.environ["MOONSHARD_BIN"], part, "--config", self.file.name, *flags],
            cwd=directory,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )

    def __enter__(self):
        lines = queue.Queue()
        threading.Thread(target=lambda: lines.put(self.process.stdout.readline()), daemon=True).start()
        try:
            line = lines.get(timeout=PATIENCE)
        except queue.Empty:
            line = ""
        if " ready " not in line:
            self.process.kill()
            self.process.wait()
            self.log.seek(0)
            raise AssertionError(f"the server is not ready: {self.log.read()}")
        self.ready = dict(word.split("=", 1) for word in line.split() if "=" in word)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.file.close()
        self.log.close()

    def port(self, face):
        return self.ready[face].rpartition(":")[2]

    @staticmethod
    @contextmanager
    def word():
        """A file with a cluster's word."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("not-a-secret\n")
            file.flush()
            yield file.name
