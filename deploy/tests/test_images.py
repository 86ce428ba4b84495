"""The image and the compose files, as far as that goes without an engine that builds and runs them."""

import json
import os
import re
import subprocess
import time
import unittest
from contextlib import ExitStack
from pathlib import Path

from server import PATIENCE, Server

DEPLOY = Path(__file__).parent.parent
ROOT = DEPLOY.parent
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
BIN = os.environ["MOONSHARD_BIN"]


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=120, **more)


def healthy(*words, **more):
    """Asks with `moonshard health` until the answer is yes: a busy machine may take longer than that waits."""
    deadline = time.monotonic() + PATIENCE
    while (done := run(BIN, *words, **more)).returncode != 0:
        if time.monotonic() > deadline:
            raise AssertionError(done.stderr)


def instruction(name):
    """The words of an instruction that are written as JSON."""
    text = DOCKERFILE.read_text()
    found = re.findall(rf"^{name} .*?(\[.*\])$", text, re.MULTILINE)
    return json.loads(found[-1])


class Image(unittest.TestCase):
    def test_dockerfile_is_clean(self):
        done = run("hadolint", "--failure-threshold", "info", str(DOCKERFILE))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_runs_targets_that_are_there(self):
        targets = re.findall(r"\bmake ([a-z-]+)", "\n".join(line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")))
        makefile = (ROOT / "Makefile").read_text()
        self.assertEqual(targets, ["dist"])
        for target in targets:
            self.assertRegex(makefile, rf"(?m)^{target}:")

    def test_builds_with_the_pinned_toolchain(self):
        pinned = re.search(r'channel = "(\d+\.\d+)', (ROOT / "rust-toolchain.toml").read_text())[1]
        self.assertIn(f"rust:{pinned}-", DOCKERFILE.read_text())

    def test_serves_as_nobody(self):
        text = DOCKERFILE.read_text()
        last = text[text.rindex("\nFROM ") :]
        self.assertIn("\nUSER 65532:65532\n", last)
        self.assertIn(":nonroot", last.splitlines()[1])

    def test_what_it_runs_serves_and_is_healthy(self):
        [program] = instruction("ENTRYPOINT")
        words = instruction("CMD")
        self.assertEqual(words[0], "serve")
        flags = dict(zip(words[1::2], words[2::2]))
        self.assertEqual(flags.pop("--data-dir"), "/data")
        # Everybody comes from another machine there; who is let in is for whoever publishes its ports to say.
        self.assertEqual(flags.pop("--protected-mode"), "no")
        faces = {name.removeprefix("--"): 0 for name in flags}
        for name, address in flags.items():
            self.assertIn(f" {address.rpartition(':')[2]}", re.search(r"^EXPOSE.*", DOCKERFILE.read_text(), re.MULTILINE)[0], name)
        health = instruction("HEALTHCHECK")
        self.assertEqual(health[0], program)
        with Server(words[0], "", faces, {"data-dir": "none"}) as server:
            # As there, where the server is at the address that is the default.
            environment = {"MOONSHARD_HTTP": f"127.0.0.1:{server.port('http')}"}
            healthy(*health[1:], env=environment)
        done = run(BIN, *health[1:], env=environment)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("does not accept requests", done.stderr)


class Compose(unittest.TestCase):
    def services(self, name):
        """What is run, as compose understands the file."""
        file = DEPLOY / "compose" / f"{name}.yaml"
        done = run("docker-compose", "--file", str(file), "config", "--format", "json")
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["services"]

    def test_is_hardened(self):
        for name, count in (("single", 1), ("cluster", 5)):
            services = self.services(name)
            self.assertEqual(len(services), count)
            for service in services.values():
                self.assertTrue(service["read_only"])
                self.assertEqual(service["cap_drop"], ["ALL"])
                self.assertEqual(service["build"]["context"], str(ROOT))
                self.assertEqual(service["build"]["dockerfile"], "deploy/docker/Dockerfile")
                for port in service.get("ports", []):
                    self.assertEqual(port["host_ip"], "127.0.0.1")

    def test_the_cluster_serves(self):
        services = self.services("cluster")
        stores = {name: service for name, service in services.items() if service["command"][0] == "store"}
        gateways = {name: service for name, service in services.items() if service["command"][0] == "gateway"}
        self.assertEqual((len(stores), len(gateways)), (3, 2))
        named = next(word for word in gateways["gateway-1"]["command"] if word.startswith("--stores="))
        self.assertEqual(named, "--stores=" + ",".join(f"{name}:7101" for name in stores))
        # The words of each process, where only names and files are of this machine.
        with ExitStack() as stack:
            word = stack.enter_context(Server.word())
            nodes = []
            for service in stores.values():
                self.assertEqual(service["command"][1:3], ["--grpc", "0.0.0.0:7101"])
                settings = {"data-dir": "none", "cluster-token-file": word}
                nodes.append(stack.enter_context(Server("store", "", {"grpc": 0}, settings)))
                check = [text.replace("7101", nodes[-1].port("grpc")) for text in service["healthcheck"]["test"][2:]]
                healthy(*check)
            known = ",".join(f"127.0.0.1:{node.port('grpc')}" for node in nodes)
            settings = {"stores": known, "cluster-token-file": word}
            gateway = stack.enter_context(Server("gateway", "", {"resp": 0, "http": 0, "grpc": 0}, settings))
            healthy("health", "--http", f"127.0.0.1:{gateway.port('http')}")


if __name__ == "__main__":
    unittest.main()
