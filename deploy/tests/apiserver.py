"""An API server of Kubernetes and its etcd, for as long as a `with` lasts. Nothing acts on what it is told: no controllers,
no nodes."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

import yaml

# Generous: machines are busy.
PATIENCE = 120

# Where the environment may say that a program is, and what it is called on PATH.
PROGRAMS = {"KUBE_APISERVER": "kube-apiserver", "ETCD": "etcd", "OPENSSL": "openssl", "GO": "go"}


def program(variable):
    """Where it is; nothing if it is not there."""
    return shutil.which(os.environ.get(variable) or PROGRAMS[variable])


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


class Refused(Exception):
    """The answer to a request that was not granted."""


class ApiServer:
    """Whoever has the token may do everything; all admission that is there by default judges."""

    TOKEN = "not-a-secret"

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.processes = []
        self.groups = {}
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.kill()
            process.wait()
        self.folder.cleanup()

    def start(self):
        folder = Path(self.folder.name)
        store, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        self.run("ETCD", "--data-dir", folder / "etcd", "--listen-client-urls", store, "--advertise-client-urls", store,
                 "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}")
        key = folder / "accounts.key"
        subprocess.run([program("OPENSSL"), "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        (folder / "tokens.csv").write_text(f"{self.TOKEN},admin,1,system:masters\n")
        port = free_port()
        self.url = f"https://127.0.0.1:{port}"
        certificates = folder / "certificates"
        self.run("KUBE_APISERVER", "--etcd-servers", store, "--bind-address", "127.0.0.1", "--secure-port", port,
                 "--cert-dir", certificates, "--token-auth-file", folder / "tokens.csv", "--authorization-mode", "RBAC",
                 "--service-account-issuer", self.url, "--service-account-key-file", key,
                 "--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.0.0.0/24")
        self.certificate = certificates / "apiserver.crt"
        self.wait_for("/readyz")

    def run(self, variable, *words):
        with open(Path(self.folder.name, "log"), "a") as log:
            command = [program(variable), *map(str, words)]
            self.processes.append(subprocess.Popen(command, cwd=self.folder.name, stdout=log, stderr=log))

    def wait_for(self, path):
        """Until the server serves that."""
        until = time.monotonic() + PATIENCE
        while not self.serves(path):
            ended = [one for one in self.processes if one.poll() is not None]
            if ended or time.monotonic() > until:
                raise AssertionError(f"no {path}:\n" + Path(self.folder.name, "log").read_text()[-5000:])
            time.sleep(0.1)

    def serves(self, path):
        try:
            with self.request("GET", path):
                return True
        except OSError:
            return False

    def request(self, method, path, body=None, kind="application/json"):
        headers = {"Authorization": f"Bearer {self.TOKEN}", "Content-Type": kind}
        given = urllib.request.Request(self.url + path, body, headers, method=method)
        return urllib.request.urlopen(given, timeout=PATIENCE, context=ssl.create_default_context(cafile=self.certificate))

    def call(self, method, path, body=None, kind="application/json", **query):
        """What the server answers. A warning of it counts as a refusal."""
        try:
            path = f"{path}?{urllib.parse.urlencode(query)}" if query else path
            with self.request(method, path, json.dumps(body).encode() if body else None, kind) as answer:
                told, warnings = json.load(answer), answer.headers.get_all("Warning")
        except urllib.error.HTTPError as error:
            with error:
                raise Refused(json.load(error)["message"]) from None
        if warnings:
            raise Refused("; ".join(warnings))
        return told

    def place(self, version, kind, namespace):
        """The path of all objects of a kind."""
        group = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if group not in self.groups:
            self.groups[group] = self.call("GET", group)["resources"]
        [found] = [one for one in self.groups[group] if one["kind"] == kind and "/" not in one["name"]]
        return f"{group}/namespaces/{namespace}/{found['name']}" if found["namespaced"] else f"{group}/{found['name']}"

    def path(self, told, namespace):
        return f"{self.place(told['apiVersion'], told['kind'], namespace)}/{told['metadata']['name']}"

    def apply(self, told, namespace, **query):
        """Server-side apply, which refuses fields that it does not know."""
        query = {"fieldManager": "tests", "fieldValidation": "Strict", "force": "true"} | query
        return self.call("PATCH", self.path(told, namespace), told, "application/apply-patch+yaml", **query)

    def define(self, definition):
        """Lets there be objects of another kind."""
        self.apply(definition, None)
        spec = definition["spec"]
        for version in spec["versions"]:
            self.wait_for(f"/apis/{spec['group']}/{version['name']}/{spec['names']['plural']}")

    def kubeconfig(self):
        cluster = {"server": self.url, "certificate-authority": str(self.certificate)}
        return yaml.safe_dump({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": {"token": self.TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        })
