"""The chart on an API server: installed, upgraded, rolled back and uninstalled by Helm. Its pods are judged; nothing runs them."""

import base64
import itertools
import json
import subprocess
import threading
import unittest
from contextlib import contextmanager
from pathlib import Path

import helm_python as helm
import yaml

import chart
from apiserver import PATIENCE, PROGRAMS, ApiServer, Refused, program

# Definitions of objects that are not Kubernetes' own, in modules of Go.
DEFINITIONS = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": [
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
    ],
    "sigs.k8s.io/gateway-api@v1.3.0": ["config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"],
    "github.com/cert-manager/cert-manager@v1.21.2": ["deploy/crds/cert-manager.io_certificates.yaml"],
}

# Of what the cases take for granted, what the server misses.
PRIORITY = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000}

# What an upgrade may change of a release that is there.
CHANGES = [
    {"image": {"tag": "9.9.9"}},
    {"gateway": {"replicas": 5}, "store": {"replicas": 4, "founders": 3}},
    {"gateway": {"autoscaling": {"enabled": True}}},
    {"store": {"resources": {"limits": {"memory": "8Gi"}}, "config": {"maxmemory": "5gb"}}},
    {"store": {"persistence": {"whenDeleted": "Delete"}}},
    {"tls": {"existingSecret": "certificate"}, "auth": {"existingSecret": "users"}},
    {"service": {"type": "LoadBalancer", "ports": {"http": 80}}},
    {"networkPolicy": {"enabled": False}, "serviceAccount": {"name": "plain"}},
    {"clusterToken": {"key": "word"}},
    {"store": {"persistence": {"whenScaled": "Delete"}}},
    {"ingress": {"enabled": True, "host": "scripts.example"}, "commonLabels": {"team": "scripts"}},
    {"service": {"type": "NodePort", "nodePorts": {"resp": 30378}, "externalTrafficPolicy": "Local"}},
]

# What of a StatefulSet can never change.
FIXED = [
    {"size": "20Gi"},
    {"storageClass": "fast"},
    {"accessModes": ["ReadWriteOncePod"]},
    {"labels": {"backup": "daily"}},
    {"annotations": {"backup": "daily"}},
    {"enabled": False},
]

# The status of a job that was done.
COMPLETE = {
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T00:00:01Z",
    "succeeded": 1,
    "conditions": [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")],
}

NAME = "demo"


def lost(rendered, stored, at=""):
    """Which of what was rendered is not there as it was, by path."""
    if isinstance(rendered, dict) and isinstance(stored, dict):
        return [one for key, value in rendered.items() for one in lost(value, stored.get(key), f"{at}.{key}")]
    if isinstance(rendered, list) and isinstance(stored, list) and len(rendered) == len(stored):
        return [one for number, pair in enumerate(zip(rendered, stored)) for one in lost(*pair, f"{at}[{number}]")]
    return [] if rendered == stored else [f"{at}: {rendered!r} became {stored!r}"]


def pod(told):
    """A pod as controllers make it of a Deployment, a StatefulSet or a Job."""
    template = told["spec"]["template"]
    claims = [one["metadata"]["name"] for one in told["spec"].get("volumeClaimTemplates", [])]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{told['metadata']['name']}-0"}} for name in claims]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template["metadata"] | {"name": f"{told['metadata']['name']}-0"},
        "spec": template["spec"] | {"volumes": template["spec"].get("volumes", []) + volumes},
    }


class Namespace:
    """One with the strictest standard for pods, and Helm in it."""

    numbers = itertools.count()

    def __init__(self, api):
        self.api = api
        self.name = f"namespace-{next(self.numbers)}"
        labels = {f"pod-security.kubernetes.io/{what}": "restricted" for what in ("enforce", "warn")}
        api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name, "labels": labels}}, None)
        for account in ("default", "plain"):
            api.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}, self.name)
        self.helm = helm.Config(kubeconfig_content=api.kubeconfig(), namespace=self.name)

    def install(self, given, name=NAME, **how):
        with self.nodes():
            return self.helm.install(str(chart.CHART), name, given, namespace=self.name, timeout=PATIENCE, **how)

    def upgrade(self, given):
        with self.nodes():
            return self.helm.upgrade(str(chart.CHART), NAME, given, namespace=self.name, timeout=PATIENCE)

    def rollback(self):
        with self.nodes():
            self.helm.rollback(NAME, timeout=PATIENCE)

    def test(self):
        with self.nodes():
            self.helm.test(NAME, timeout=PATIENCE)

    def objects(self):
        """What the release consists of."""
        return [one for one in yaml.safe_load_all(self.helm.status(NAME)["manifest"]) if one]

    def hooks(self):
        return [yaml.safe_load(one["manifest"]) for one in self.helm.get_all(NAME)["hooks"]]

    def stored(self, told):
        return self.api.call("GET", self.api.path(told, self.name))

    def admit(self, told):
        self.api.call("POST", self.api.place("v1", "Pod", self.name), pod(told), dryRun="All", fieldValidation="Strict")

    @contextmanager
    def nodes(self):
        """Pods and jobs, which Helm waits for, have done their work as soon as they are there."""
        ended = threading.Event()
        errors = []

        def run():
            try:
                while not ended.wait(0.1):
                    self.finish("v1", "Pod", "status.phase=Pending", {"phase": "Succeeded"})
                    self.finish("batch/v1", "Job", "status.successful=0", COMPLETE)
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        for error in errors:
            raise error

    def finish(self, version, kind, unfinished, status):
        place = self.api.place(version, kind, self.name)
        for one in self.api.call("GET", place, fieldSelector=unfinished)["items"]:
            path = f"{place}/{one['metadata']['name']}/status"
            self.api.call("PATCH", path, {"status": status}, "application/merge-patch+json")


class Applied(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        missing = [name for variable, name in PROGRAMS.items() if not program(variable)]
        if missing:
            line = f"***** {' and '.join(missing)} not there, see CONTRIBUTING.md: the chart is NOT applied *****"
            print(line)
            raise unittest.SkipTest(line)
        cls.api = cls.enterClassContext(ApiServer())
        for module, files in DEFINITIONS.items():
            told = subprocess.run([program("GO"), "mod", "download", "-json", module], check=True, capture_output=True).stdout
            for file in files:
                cls.api.define(yaml.safe_load(Path(json.loads(told)["Dir"], file).read_text()))
        cls.api.apply(PRIORITY, None)

    def check(self, namespace):
        """All that was rendered is stored, unknown to nobody and without a warning; pods are admitted."""
        for told in namespace.objects() + namespace.hooks():
            namespace.api.apply(told, namespace.name, dryRun="All")
            if "template" in told.get("spec", {}):
                namespace.admit(told)
        for told in namespace.objects():
            self.assertEqual(lost(told, namespace.stored(told)), [], told["metadata"]["name"])

    def test_the_server_judges(self):
        namespace = Namespace(self.api)
        [told] = [one for one in chart.objects({"serviceAccount": {"name": "plain"}}) if one["kind"] == "StatefulSet"]
        with self.assertRaisesRegex(Refused, "field not declared in schema"):
            self.api.apply(told | {"replicass": 1}, namespace.name)
        namespace.admit(told)
        del told["spec"]["template"]["spec"]["securityContext"]
        with self.assertRaisesRegex(Refused, "violates PodSecurity"):
            namespace.admit(told)
        with self.assertRaisesRegex(Refused, "would violate PodSecurity"):
            self.api.apply(told, namespace.name)
        self.assertEqual(len(lost(told, told | {"kind": "Deployment", "spec": None})), 2)

    def test_every_case(self):
        for case in chart.cases():
            with self.subTest(case):
                namespace = Namespace(self.api)
                given = chart.values(case)
                namespace.install(given, dry_run="server")
                self.assertEqual(namespace.helm.list(all_states=True), [])
                namespace.install(given)
                self.check(namespace)
                namespace.test()
                objects = namespace.objects()
                namespace.upgrade(given)
                self.assertEqual(namespace.objects(), objects)
                self.check(namespace)
                namespace.helm.uninstall(NAME)
                for told in objects:
                    with self.assertRaisesRegex(Refused, "not found"):
                        namespace.stored(told)

    def test_from_the_defaults_to_every_case_and_back(self):
        for case in chart.cases():
            with self.subTest(case):
                self.check_change({}, chart.values(case))

    def test_changes(self):
        for change in CHANGES:
            with self.subTest(str(change)):
                self.check_change({"mode": "distributed"}, {"mode": "distributed"} | change)

    def check_change(self, before, after):
        namespace = Namespace(self.api)
        namespace.install(before)
        objects = namespace.objects()
        namespace.upgrade(after)
        self.check(namespace)
        namespace.rollback()
        self.assertEqual(namespace.objects(), objects)
        self.check(namespace)

    def test_claims_never_change(self):
        namespace = Namespace(self.api)
        given = {"mode": "distributed"}
        namespace.install(given)
        for persistence in FIXED:
            changed = given | {"store": {"persistence": persistence}}
            with self.assertRaisesRegex(helm.HelmReleaseError, "Forbidden: updates to statefulset spec"):
                namespace.upgrade(changed)
            namespace.rollback()
            self.check(namespace)
            # What the page on Kubernetes advises.
            [nodes] = [one for one in namespace.objects() if one["kind"] == "StatefulSet"]
            self.api.call("DELETE", self.api.path(nodes, namespace.name))
            namespace.upgrade(changed)
            self.check(namespace)
            given = changed

    def test_replicas_are_chosen_at_the_installation(self):
        def given(replicas):
            return {"mode": "distributed", "store": {"replicas": 5, "replication": {"replicas": replicas}}}

        for before, after in [(1, 3), (3, 1)]:
            namespace = Namespace(self.api)
            namespace.install(given(before))
            with self.assertRaisesRegex(helm.HelmError, "cannot change from 1 or to 1"):
                namespace.upgrade(given(after))
        namespace.upgrade(given(5))
        self.check(namespace)

    def test_the_word_is_kept(self):
        namespace = Namespace(self.api)

        def words():
            [secret] = [one for one in namespace.objects() if one["kind"] == "Secret"]
            return namespace.stored(secret)["data"]

        namespace.install({"mode": "distributed"})
        first = words()
        namespace.upgrade({"mode": "distributed", "image": {"tag": "9.9.9"}})
        self.assertEqual(words(), first)
        namespace.upgrade({"mode": "distributed", "clusterToken": {"value": "another", "key": "word"}})
        self.assertEqual(words(), {"word": base64.b64encode(b"another").decode()})

    def test_a_release_with_a_dot(self):
        namespace = Namespace(self.api)
        self.assertEqual(namespace.install({}, name="team.scripts")["status"], "deployed")


if __name__ == "__main__":
    unittest.main()
