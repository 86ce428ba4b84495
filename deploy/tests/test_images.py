"""The image and the compose files, as far as that goes without an engine that builds and runs them."""

import json
import os
import re
import socket
import subprocess
import tempfile
import time
import tomllib
import unittest
from contextlib import ExitStack, contextmanager
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


def defaults():
    """The config file of the image: its path and its text."""
    found = re.search(r"^COPY <<EOF (\S+)\n(.*?)^EOF$", DOCKERFILE.read_text(), re.MULTILINE | re.DOTALL)
    return found[1], found[2]


@contextmanager
def started(words, environment):
    """Runs the server with these arguments and nothing else; its addresses, by listener. It need not compile its sandbox."""
    environment = environment | {name: os.environ[name] for name in ["COMPILED_GUEST"] if name in os.environ}
    process = subprocess.Popen([BIN, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        line = process.stdout.readline()
        yield dict(re.findall(r"(resp|http|grpc)=(\S+)", line))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


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

    def test_arguments_add_to_the_defaults(self):
        self.assertEqual(instruction("ENTRYPOINT"), ["/usr/local/bin/moonshard"])
        self.assertEqual(instruction("CMD"), ["serve"])
        path, text = defaults()
        self.assertIn(f"\nENV MOONSHARD_CONFIG={path}\n", DOCKERFILE.read_text())
        config = tomllib.loads(text)
        self.assertEqual(config.pop("data-dir"), "/data")
        self.assertIn("\nVOLUME /data\n", DOCKERFILE.read_text())
        self.assertEqual(config.pop("protected-mode"), "no")
        self.assertEqual(list(config), ["resp", "http", "grpc"])
        exposed = re.search(r"^EXPOSE (.*)", DOCKERFILE.read_text(), re.MULTILINE)[1].split()
        self.assertEqual([address.split(":") for address in config.values()], [["0.0.0.0", port] for port in exposed])
        with tempfile.TemporaryDirectory() as directory:
            # On free ports and with a directory of this machine.
            text = re.sub(r"(0\.0\.0\.0):\d+", r"\1:0", text).replace("/data", f"{directory}/data")
            file = Path(directory, "moonshard.toml")
            file.write_text(text)
            # With arguments, without any, and with one of the defaults changed by a flag or a variable.
            for words, more, listeners in [
                (["serve", "--maxmemory", "1gb"], {}, {"resp", "http", "grpc"}),
                (["--maxmemory", "1gb"], {}, {"resp", "http", "grpc"}),
                ([], {"MOONSHARD_MAXMEMORY": "1gb"}, {"resp", "http", "grpc"}),
                (["serve", "--http", "off", "--maxmemory", "1gb"], {"MOONSHARD_HTTP": "127.0.0.1:0"}, {"resp", "grpc"}),
                (["serve", "--maxmemory", "1gb"], {"MOONSHARD_HTTP": "off"}, {"resp", "grpc"}),
            ]:
                with self.subTest(words=words, more=more), started(words, {"MOONSHARD_CONFIG": str(file)} | more) as ready:
                    self.assertEqual(set(ready), listeners)
                    self.assertTrue(all(address.startswith("0.0.0.0:") for address in ready.values()), ready)
                    self.assertTrue(Path(directory, "data", "lock").exists())
                    with socket.create_connection(("127.0.0.1", int(ready["resp"].rpartition(":")[2])), timeout=PATIENCE) as client:
                        client.sendall(b"CONFIG GET maxmemory\r\n")
                        self.assertIn(b"1073741824", client.recv(100))

    def test_a_config_file_replaces_the_defaults(self):
        with tempfile.TemporaryDirectory() as directory:
            default, own = Path(directory, "default.toml"), Path(directory, "own.toml")
            default.write_text(defaults()[1])
            own.write_text('resp = "127.0.0.1:0"\nhttp = "off"\ngrpc = "off"\ndata-dir = "none"\n')
            with started(["serve", "--config", str(own)], {"MOONSHARD_CONFIG": str(default)}) as ready:
                self.assertEqual(list(ready), ["resp"])


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

    def test_every_service_is_checked(self):
        for name in ("single", "cluster"):
            for service in self.services(name).values():
                test, program, *words = service["healthcheck"]["test"]
                self.assertEqual((test, program), ("CMD", "/usr/local/bin/moonshard"))
                store = (service["command"] or ["serve"])[0] == "store"
                self.assertEqual(words, ["health", "--grpc", "127.0.0.1:7101"] if store else ["health"])

    def test_a_stop_may_take_the_same_time_everywhere(self):
        unit = (DEPLOY / "systemd" / "moonshard.service").read_text()
        chart = (DEPLOY / "helm" / "moonshard" / "values.yaml").read_text()
        seconds = re.findall(r"(?m)^TimeoutStopSec=(\d+)$", unit) + re.findall(r"(?m)^terminationGracePeriodSeconds: (\d+)$", chart)
        self.assertEqual(seconds, ["60", "60"])
        for name in ("single", "cluster"):
            self.assertEqual({service["stop_grace_period"] for service in self.services(name).values()}, {"1m0s"})

    def test_the_check_follows_the_config_file(self):
        service = self.services("single")["moonshard"]
        faces = {"resp": 0, "http": 0, "grpc": 0}
        with Server("serve", "", faces, {"data-dir": "none"}) as server, tempfile.NamedTemporaryFile("w") as file:
            file.write(defaults()[1].replace("8080", server.port("http")))
            file.flush()
            check = service["healthcheck"]["test"][2:]
            environment = {"MOONSHARD_CONFIG": file.name}
            healthy(*check, env=environment)
            server.process.kill()
            server.process.wait()
            done = run(BIN, *check, env=environment)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("does not accept requests", done.stderr)

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
