"""The chart: as expected, accepted by Kubernetes' schemas, and its config files by the server."""

import base64
import copy
import functools
import os
import shutil
import subprocess
import tempfile
import time
import tomllib
import unittest
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import helm_python as helm
import jsonschema
import kubernetes_validate

import chart
from server import PATIENCE, Server

# It would read the schemas from their files for each object.
kubernetes_validate.utils.schema_contents = functools.cache(kubernetes_validate.utils.schema_contents)

# The oldest that Chart.yaml allows, and some up to the newest that is known.
KUBERNETES = ["1.30", "1.32", "1.34", "1.37"]

PASSWORD = "not a secret"

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}


def exactly(**members):
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


BACKEND = exactly(name={"type": "string"}, port={"type": "integer"})

# Where Prometheus looks.
SCRAPED = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "port": {"const": "http"},
            "path": {"const": "/metrics"},
            "interval": {"type": "string"},
            "scheme": {"const": "https"},
            "tlsConfig": exactly(
                serverName={"type": "string"},
                ca=exactly(secret=exactly(name={"type": "string"}, key={"const": "ca.crt"})),
            ),
        },
        "required": ["port", "path", "interval"],
        "additionalProperties": False,
    },
}

# Of objects that are not Kubernetes' own, what the chart may say; `files/alerts.yaml` is the body of a rule.
OTHERS = {
    "Certificate": exactly(
        secretName={"type": "string"},
        issuerRef={"type": "object", "required": ["name"]},
        duration={"type": "string"},
        renewBefore={"type": "string"},
        privateKey=exactly(algorithm={"const": "ECDSA"}, size={"const": 256}, rotationPolicy={"const": "Always"}),
        usages={"const": ["server auth", "client auth", "digital signature"]},
        dnsNames={"type": "array", "items": {"type": "string"}},
    ),
    "ServiceMonitor": exactly(selector=exactly(matchLabels=TEXTS), endpoints=SCRAPED),
    "PodMonitor": exactly(selector=exactly(matchLabels=TEXTS), podMetricsEndpoints=SCRAPED),
    "HTTPRoute": exactly(
        parentRefs={"type": "array", "minItems": 1, "items": {"type": "object", "required": ["name"]}},
        hostnames={"type": "array", "minItems": 1, "items": {"type": "string"}},
        rules={"type": "array", "items": exactly(backendRefs={"type": "array", "items": BACKEND})},
    ),
    "PrometheusRule": exactly(
        groups={
            "type": "array",
            "items": exactly(
                name={"type": "string"},
                rules={
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {
                            "alert": {"type": "string"},
                            "expr": {"type": "string"},
                            "for": {"type": "string", "pattern": "^[0-9]+[smh]$"},
                            "labels": TEXTS,
                            "annotations": TEXTS,
                        },
                        "required": ["alert", "expr", "labels", "annotations"],
                        "additionalProperties": False,
                    },
                },
            ),
        },
    ),
}


def config_file(objects, component):
    """The config file of a component, as rendered."""
    for found in objects:
        if found["kind"] == "ConfigMap" and found["metadata"]["name"].endswith(f"-{component}"):
            return found["data"]["moonshard.toml"]
    raise AssertionError(f"no config file of {component}")


def replicated(**store):
    """Values of store nodes with three replicas, with these of their own."""
    return {"mode": "distributed", "store": {"replication": {"replicas": 3}} | store}


def steps(objects, component):
    """The arguments of the containers of a job, in the order in which they run."""
    [job] = [one for one in objects if one["kind"] == "Job" and one["metadata"]["labels"]["app.kubernetes.io/component"] == component]
    pod = job["spec"]["template"]["spec"]
    return [container["args"] for container in pod.get("initContainers", []) + pod["containers"]]


def commands(objects, component):
    """The same without the options that all of them have."""
    for args in steps(objects, component):
        assert args[0] == "topology" and all(option.startswith("--") for option in args[1:3]), args
    return [" ".join(args[3:]) for args in steps(objects, component)]


class Chart(unittest.TestCase):
    maxDiff = None

    def test_lint(self):
        for case in chart.cases():
            for version in KUBERNETES:
                report = helm.lint(chart.CHART, chart.values(case), strict=True, kube_version=version)
                self.assertEqual(report["errors"], [], f"{case} on {version}: {report['messages']}")
                self.assertEqual(report["total_charts_linted"], 1)

    def test_renders_what_is_expected(self):
        for case in chart.cases():
            with self.subTest(case):
                hint = "deploy/tests/chart.py writes it anew"
                self.assertEqual(chart.rendered(chart.values(case)), chart.golden(case).read_text(), hint)

    def test_kubernetes_accepts_every_object(self):
        checked = 0
        for case in chart.cases():
            for found in chart.objects(chart.values(case)):
                if found["kind"] in OTHERS:
                    self.assertIn(found["apiVersion"], ("monitoring.coreos.com/v1", "cert-manager.io/v1", "gateway.networking.k8s.io/v1"))
                    jsonschema.validate(found["spec"], OTHERS[found["kind"]])
                    continue
                for version in KUBERNETES:
                    kubernetes_validate.validate(found, version, strict=True)
                    checked += 1
        self.assertGreater(checked, 100)

    def test_names_and_selectors_fit(self):
        for case in chart.cases():
            objects = chart.objects(chart.values(case))
            names = [(found["kind"], found["metadata"]["name"]) for found in objects]
            self.assertEqual(len(names), len(set(names)), case)
            pods = [found["spec"]["template"]["metadata"]["labels"] for found in objects if found["kind"] in ("Deployment", "StatefulSet")]
            for found in objects:
                if found["kind"] == "Service":
                    selector = found["spec"]["selector"]
                elif found["kind"] in ("PodDisruptionBudget", "Deployment", "StatefulSet"):
                    selector = found["spec"]["selector"]["matchLabels"]
                elif found["kind"] == "NetworkPolicy":
                    selector = found["spec"]["podSelector"]["matchLabels"]
                else:
                    continue
                fitting = [labels for labels in pods if selector.items() <= labels.items()]
                self.assertEqual(len(fitting), 1, f"{case}: {found['kind']} {found['metadata']['name']}")
            for found in objects:
                if found["kind"] == "ServiceMonitor":
                    wanted = found["spec"]["selector"]["matchLabels"].items()
                    services = [one for one in objects if one["kind"] == "Service" and wanted <= one["metadata"]["labels"].items()]
                    told = [one for one in services if "http" in [port["name"] for port in one["spec"]["ports"]]]
                    self.assertEqual(len(told), len(pods), f"{case}: each kind of pod is looked at once")
                if found["kind"] == "PodMonitor":
                    wanted = found["spec"]["selector"]["matchLabels"].items()
                    self.assertTrue(all(wanted <= labels.items() for labels in pods), case)

    def test_outside_requests_reach_the_service(self):
        ways = []
        for case in chart.cases():
            objects = chart.objects(chart.values(case))
            services = [one for one in objects if one["kind"] == "Service"]
            ports = {one["metadata"]["name"]: {port["name"]: port["port"] for port in one["spec"]["ports"]} for one in services}
            for found in objects:
                if found["kind"] == "Ingress":
                    [rule] = found["spec"]["rules"]
                    [path] = rule["http"]["paths"]
                    self.assertIn(path["backend"]["service"]["port"]["name"], ports[path["backend"]["service"]["name"]])
                    self.assertEqual(found["spec"]["tls"][0]["hosts"], [rule["host"]])
                    hosts = [rule["host"]]
                elif found["kind"] == "HTTPRoute":
                    [backend] = found["spec"]["rules"][0]["backendRefs"]
                    self.assertEqual(backend["port"], ports[backend["name"]]["http"])
                    hosts = found["spec"]["hostnames"]
                else:
                    continue
                ways.append(found["kind"])
                config = tomllib.loads(config_file(objects, "embedded" if case.startswith("embedded") else "gateway"))
                self.assertLessEqual(set(hosts), set(config["http-hosts"].split(",")))
        self.assertEqual(sorted(ways), ["HTTPRoute", "Ingress"])

    def test_what_is_mounted_is_there(self):
        for case in chart.cases():
            for found in chart.objects(chart.values(case)):
                if found["kind"] not in ("Deployment", "StatefulSet"):
                    continue
                pod = found["spec"]["template"]["spec"]
                there = [volume["name"] for volume in pod["volumes"]]
                there += [claim["metadata"]["name"] for claim in found["spec"].get("volumeClaimTemplates", [])]
                self.assertEqual(len(there), len(set(there)), f"{case}: {there}")
                for container in pod["containers"] + pod.get("initContainers", []):
                    self.assertLessEqual({mount["name"] for mount in container.get("volumeMounts", [])}, set(there), case)

    def test_common_labels_and_annotations(self):
        for case in ("embedded", "distributed-full", "distributed-tls"):
            common = {"commonLabels": {"example.com/cost": "7"}, "commonAnnotations": {"example.com/note": "kept"}}
            given = chart.values(case)
            before, after = chart.objects(given), chart.objects(given | common)
            self.assertEqual(len(before), len(after))
            for was, found in zip(before, after):
                self.assertEqual(found["metadata"]["labels"].pop("example.com/cost"), "7", found["metadata"]["name"])
                annotations = found["metadata"]["annotations"]
                self.assertEqual(annotations.pop("example.com/note"), "kept", found["metadata"]["name"])
                self.assertEqual(annotations, was["metadata"].get("annotations", {}))
                template = found.get("spec", {}).get("template")
                if template:
                    self.assertEqual(template["metadata"]["labels"].pop("example.com/cost"), "7")
                # Selectors and claims, which cannot change, have none of them.
                self.assertEqual(found.get("spec"), was.get("spec"))

    def test_a_test_of_helm_needs_the_password(self):
        file = {"aclFile": {"existingSecret": "acl"}}
        for auth, tested in [({}, True), (file, False), (file | {"existingSecret": "users"}, True)]:
            kinds = [found["kind"] for found in chart.objects({"auth": auth})]
            self.assertEqual("Pod" in kinds, tested, auth)

    def test_pods_are_hardened(self):
        for case in chart.cases():
            for found in chart.objects(chart.values(case)):
                spec = found.get("spec", {})
                spec = spec["jobTemplate"]["spec"] if found["kind"] == "CronJob" else spec
                pod = spec if found["kind"] == "Pod" else spec.get("template", {}).get("spec")
                if not pod:
                    continue
                self.assertTrue(pod["securityContext"]["runAsNonRoot"])
                self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                self.assertFalse(pod["automountServiceAccountToken"])
                for container in pod["containers"] + pod.get("initContainers", []):
                    context = container["securityContext"]
                    self.assertTrue(context["readOnlyRootFilesystem"])
                    self.assertFalse(context["allowPrivilegeEscalation"])
                    self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
                    self.assertIn("memory", container["resources"]["limits"])

    def test_unknown_and_wrong_values_are_refused(self):
        with helm.Chart.load(chart.CHART) as loaded:
            known = loaded.values
        # Everywhere the chart itself says what there may be.
        def places(values, path=()):
            yield path
            for name, value in values.items():
                if isinstance(value, dict) and value and name not in ("podSecurityContext", "securityContext", "labels", "resources"):
                    yield from places(value, path + (name,))

        for path in places(known):
            wrong = {}
            inner = wrong
            for name in path:
                inner = inner.setdefault(name, {})
            inner["replicass"] = 3
            with self.assertRaises(helm.HelmError, msg=f"{path} takes an unknown value"):
                chart.rendered(wrong)
        for wrong in [
            {"mode": "cluster"},
            {"store": {"replicas": "3"}},
            {"gateway": {"replicas": -1}},
            {"config": {"Script Fuel": 1}},
            {"config": {"script-fuel": [1]}},
            {"service": {"ports": {"resp": 70000}}},
            {"image": {"digest": "latest"}},
            {"mode": "distributed", "store": {"founders": 4}},
            {"fullnameOverride": "team.scripts"},
            # What is open has ten seconds after the drain.
            {"drainSeconds": 30, "terminationGracePeriodSeconds": 35},
            {"ingress": {"enabled": True}},
            {"ingress": {"enabled": True, "host": "https://scripts.example"}},
            {"ingress": {"enabled": True, "host": "*.example"}},
            {"ingress": {"tls": [{"secret": "web"}]}},
            {"httpRoute": {"enabled": True, "hostnames": ["scripts.example"]}},
            {"httpRoute": {"enabled": True, "parentRefs": [{"name": "web"}]}},
            {"httpRoute": {"enabled": True, "parentRefs": [{"namespace": "edge"}], "hostnames": ["scripts.example"]}},
            {"embedded": {"persistence": {"enabled": False, "existingClaim": "data"}}},
            # One claim for several nodes, and a number of pods that never changes.
            {"mode": "distributed", "store": {"persistence": {"existingClaim": "data"}}},
            {"embedded": {"persistence": {"whenScaled": "Delete"}}},
            {"store": {"persistence": {"whenScaled": "Keep"}}},
            {"store": {"persistence": {"labels": {"backup": True}}}},
            {"commonLabels": {"app.kubernetes.io/instance": "other"}},
            {"gateway": {"podLabels": {"app.kubernetes.io/component": "store"}}},
            {"commonAnnotations": {"replicas": 3}},
            {"extraEnv": [{"value": "20"}]},
            {"extraEnvFrom": [{"secret": "settings"}]},
            {"extraVolumes": [{"emptyDir": {}}]},
            {"extraVolumes": [{"name": "data", "emptyDir": {}}]},
            {"store": {"extraVolumes": [{"name": "token", "emptyDir": {}}]}},
            {"extraVolumeMounts": [{"name": "roots", "mountPath": "etc"}]},
            {"gateway": {"initContainers": [{"name": "wait"}]}},
            {"sidecars": [{"name": "moonshard", "image": "other"}]},
            {"auth": {"aclFile": {"existingSecret": "acl", "key": ""}}},
            {"metrics": {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}},
            {"metrics": {"podMonitor": {"interval": "often"}}},
            {"service": {"nodePorts": {"resp": 30379}}},
            {"service": {"type": "NodePort", "nodePorts": {"resp": 70000}}},
            {"service": {"externalTrafficPolicy": "Local"}},
            {"service": {"type": "NodePort", "externalTrafficPolicy": "local"}},
            {"service": {"type": "NodePort", "loadBalancerClass": "example.com/internal"}},
            {"service": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}},
            {"service": {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.0.0.0"]}},
            # Replicas need nodes, disks, and time to hand over.
            {"store": {"replication": {"replicas": 2}}},
            {"store": {"replication": {"replicas": "3"}}},
            {"store": {"replication": {"zones": "every zone"}}},
            replicated(replicas=2),
            replicated(replicas=4, replication={"replicas": 5}),
            replicated(persistence={"enabled": False}),
            replicated(pdb={"enabled": False}),
            replicated(pdb={"maxUnavailable": 2}),
            replicated(pdb={"maxUnavailable": "34%"}),
            replicated(config={"durability": "periodic"}),
            replicated() | {"config": {"durability": "periodic"}},
            replicated() | {"drainSeconds": 10, "terminationGracePeriodSeconds": 34},
            # Probes could not follow.
            {"tls": {"existingSecret": "certificate", "authClients": "yes"}},
        ]:
            with self.assertRaises(helm.HelmError, msg=str(wrong)):
                chart.rendered(wrong)

    def test_backups(self):
        def pod(**given):
            [job] = [one for one in chart.objects(given) if one["kind"] == "CronJob"]
            return job["spec"]["jobTemplate"]["spec"]["template"]["spec"]

        backup = {"enabled": True, "existingClaim": "backups"}
        plain = pod(backup=backup)
        self.assertEqual(plain["containers"][0]["args"], ["backup", "redis://demo-moonshard:6379", "/backup/$(POD).rdb"])
        own = pod(backup=backup | {"user": "nightly", "passwordSecret": {"name": "mine", "key": "word"}}, auth={"existingSecret": "users"})
        self.assertEqual(own["containers"][0]["args"][1], "redis://nightly@demo-moonshard:6379")
        self.assertEqual([volume["secret"]["secretName"] for volume in own["volumes"] if "secret" in volume], ["mine"])
        for found in plain, own, pod(backup=backup, tls={"existingSecret": "certificate"}):
            there = {volume["name"] for volume in found["volumes"]}
            self.assertEqual({mount["name"] for mount in found["containers"][0]["volumeMounts"]}, there)
        distributed = pod(backup=backup, mode="distributed")
        self.assertEqual(distributed["containers"][0]["args"], plain["containers"][0]["args"])
        with self.assertRaisesRegex(Exception, "backup.enabled requires"):
            chart.objects({"backup": {"enabled": True}})

    def test_a_cluster_with_replicas_is_founded_and_grows(self):
        def asked(component, **store):
            return commands(chart.objects(replicated(**store)), component)

        def at(number):
            return f"demo-moonshard-store-{number}.demo-moonshard-store.prod.svc:7101"

        five = {"replication": {"replicas": 5}}
        self.assertEqual(asked("found"), ["found --replicas 3"])
        self.assertEqual(asked("grow"), ["replicas 3", "groups"])
        more = {"replicas": 5, "founders": 3}
        joins = [f"join --if-missing {at(3)}", f"join --if-missing {at(4)}"]
        self.assertEqual(asked("grow", **more), [*joins, "replicas 3", "groups"])
        self.assertEqual(asked("grow", **more, **five), [*joins, "replicas 5", "groups"])
        self.assertEqual(asked("grow", replicas=5, **five), ["replicas 5", "groups"])
        # Those that found a cluster can have no more replicas than they are.
        for founders, replicas in [(5, 5), (4, 3), (3, 3), (2, 1)]:
            given = {"replicas": 5, "founders": founders} | five
            self.assertEqual(asked("found", **given), [f"found --replicas {replicas}"])
        # A cluster without replicas is founded by its first gateway.
        plain = chart.objects({"mode": "distributed"})
        self.assertEqual([one for one in plain if one["kind"] == "Job"], [])

    def test_a_job_that_founds_has_another_name_when_it_changes(self):
        def job(given):
            [found] = [one for one in chart.objects(given) if one["kind"] == "Job" and "-found-" in one["metadata"]["name"]]
            self.assertNotIn("annotations", found["metadata"], "it is no hook")
            return found

        first, same, other = (job(replicated() | more) for more in ({}, {"gateway": {"replicas": 5}}, {"image": {"tag": "9.9.9"}}))
        self.assertEqual(first, same)
        self.assertNotEqual(first["spec"]["template"], other["spec"]["template"])
        self.assertNotEqual(first["metadata"]["name"], other["metadata"]["name"])

    def test_nodes_with_replicas_are_apart(self):
        def spec(given):
            [found] = [one for one in chart.objects(given) if one["kind"] == "StatefulSet"]
            return found["spec"]

        def spread(given):
            constraints = spec(given)["template"]["spec"].get("topologySpreadConstraints", [])
            return [(one["topologyKey"], one["whenUnsatisfiable"]) for one in constraints]

        host, zone = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
        [apart] = spec(replicated())["template"]["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(apart["topologyKey"], host)
        own = {"nodeAffinity": {}}
        self.assertEqual(spec(replicated(affinity=own))["template"]["spec"]["affinity"], own)
        self.assertNotIn("affinity", spec({"mode": "distributed"})["template"]["spec"])
        may = "ScheduleAnyway"
        self.assertEqual(spread(replicated()), [(host, may), (zone, may)])
        three = {"replicas": 3}
        self.assertEqual(spread(replicated(replication=three | {"zones": zone})), [(zone, "DoNotSchedule"), (host, may)])
        racks = replicated(replication=three | {"zones": "example.com/rack"})
        self.assertEqual(spread(racks), [("example.com/rack", "DoNotSchedule"), (host, may), (zone, may)])
        self.assertEqual(spread(racks | {"topologySpread": {"enabled": False}}), [("example.com/rack", "DoNotSchedule")])

    def test_the_chart_can_be_copied_alone(self):
        given = chart.values("embedded-full")
        with tempfile.TemporaryDirectory() as elsewhere:
            copied = Path(elsewhere, "moonshard")
            shutil.copytree(chart.CHART, copied, symlinks=True)
            self.assertEqual(chart.rendered(given, copied), chart.rendered(given))

    def test_a_change_of_settings_restarts(self):
        def sums(given):
            found = [one for one in chart.objects(given) if one["kind"] in ("Deployment", "StatefulSet")]
            return {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for one in found}

        given = chart.values("distributed")
        changed = copy.deepcopy(given) | {"gateway": {"config": {"maxclients": 5}}}
        before, after = sums(given), sums(changed)
        self.assertNotEqual(before["demo-moonshard-gateway"], after["demo-moonshard-gateway"])
        self.assertEqual(before["demo-moonshard-store"], after["demo-moonshard-store"])

    def test_a_token_is_made_of_chance(self):
        def token():
            objects = chart.objects({"mode": "distributed"})
            return next(base64.b64decode(found["data"]["cluster-token"]) for found in objects if found["kind"] == "Secret")

        self.assertEqual(len(token()), 48)
        self.assertNotEqual(token(), token())

    def test_readme_tells_all_values(self):
        self.assertEqual(chart.PAGE.read_text(), chart.page(), "deploy/tests/chart.py writes it anew")


class Served(unittest.TestCase):
    """What is rendered, with the server itself."""

    def check_scripts(self, objects, server, places=()):
        """Runs what `helm test` would, with things in other places."""
        missing = [tool for tool in ("redis-cli", "wget") if not shutil.which(tool)]
        if missing:
            print(f"***** {' and '.join(missing)} not installed: the scripts of `helm test` are SKIPPED *****")
            return
        pod = next(found for found in objects if found["kind"] == "Pod")
        [container] = pod["spec"]["containers"]
        environment = {"HOST": "127.0.0.1", "RESP": server.port("resp"), "HTTP": server.port("http")}
        self.assertEqual({entry["name"] for entry in container["env"]} - {"REDISCLI_AUTH"}, set(environment))
        if "REDISCLI_AUTH" in [entry["name"] for entry in container["env"]]:
            environment["REDISCLI_AUTH"] = PASSWORD
        [script] = container["args"]
        for there, here in places:
            script = script.replace(there, here)
        done = subprocess.run(
            [*container["command"], script],
            env=environment | {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_embedded(self):
        for case in ("embedded", "embedded-full"):
            objects = chart.objects(chart.values(case))
            config = config_file(objects, "embedded")
            with Server("serve", config, {"resp": 0, "http": 0, "grpc": 0}, {"data-dir": "none"}) as server:
                self.check_scripts(objects, server)

    def test_distributed(self):
        for case in ("distributed", "distributed-full"):
            objects = chart.objects(chart.values(case))
            with Server.word() as word:
                token = {"cluster-token-file": word}
                store = config_file(objects, "store")
                with Server("store", store, {"http": 0, "grpc": 0}, {"data-dir": "none"} | token) as node:
                    stores = {"stores": f"127.0.0.1:{node.port('grpc')}"}
                    gateway = config_file(objects, "gateway")
                    with Server("gateway", gateway, {"resp": 0, "http": 0, "grpc": 0}, stores | token) as server:
                        self.check_scripts(objects, server)

    def test_replicas(self):
        objects = chart.objects(chart.values("distributed-replicas"))
        with Server.word() as word, ExitStack() as stack:
            token = {"cluster-token-file": word}

            def node():
                data = stack.enter_context(tempfile.TemporaryDirectory())
                server = Server("store", config_file(objects, "store"), {"http": 0, "grpc": 0}, {"data-dir": data} | token)
                return f"127.0.0.1:{stack.enter_context(server).port('grpc')}"

            nodes = [node() for _ in range(5)]
            stores = ",".join(nodes[:3])
            # As in Kubernetes, gateways start before the cluster is founded.
            config = config_file(objects, "gateway")
            server = stack.enter_context(Server("gateway", config, {"resp": 0, "http": 0, "grpc": 0}, {"stores": stores} | token))
            self.assertEqual(self.readiness(server), 503)
            names = [f"demo-moonshard-store-{number}.demo-moonshard-store.prod.svc:7101" for number in range(5)]

            def run(component):
                said = ""
                for args in steps(objects, component):
                    for there, here in [(",".join(names[:3]), stores), ("/run/moonshard/cluster-token", word), *zip(names, nodes)]:
                        args = [word.replace(there, here) for word in args]
                    done = subprocess.run([os.environ["MOONSHARD_BIN"], *args], capture_output=True, text=True, timeout=PATIENCE)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    said += done.stdout
                return said

            self.assertIn(" founded: 3 groups with 3 replicas each on 3 processes", run("found"))
            until = time.monotonic() + PATIENCE
            while self.readiness(server) != 200:
                self.assertLess(time.monotonic(), until, "the gateway waits for the cluster")
                time.sleep(0.1)
            for _ in range(2):
                said = run("grow")
                for joined in nodes[3:]:
                    self.assertIn(f"{joined} has joined the cluster", said)
                self.assertIn("each group has 3 replicas", said)
            self.assertIn(" was founded before: 3 groups with 3 replicas each on 5 processes", run("found"))
            self.check_scripts(objects, server)

    def readiness(self, server):
        """The status of what a server says to probes."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{server.port('http')}/readyz", timeout=PATIENCE) as answer:
                return answer.status
        except urllib.error.HTTPError as refused:
            refused.close()
            return refused.code

    def test_passwords(self):
        objects = chart.objects({"auth": {"existingSecret": "users"}})
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "password").write_text(f"{PASSWORD}\n")
            config = config_file(objects, "embedded").replace("/run/moonshard-auth", folder)
            with Server("serve", config, {"resp": 0, "http": 0, "grpc": 0}, {"data-dir": "none"}) as server:
                self.check_scripts(objects, server)
                # Who has no password is not served, but probes and Prometheus are answered.
                at = f"http://127.0.0.1:{server.port('http')}"
                with self.assertRaises(urllib.error.HTTPError) as refused:
                    urllib.request.urlopen(f"{at}/v1/keys", timeout=60)
                refused.exception.close()
                self.assertEqual(refused.exception.code, 401)
                for path in ("healthz", "readyz", "metrics"):
                    with urllib.request.urlopen(f"{at}/{path}", timeout=60) as answer:
                        self.assertEqual(answer.status, 200)

    def test_users_of_a_file(self):
        objects = chart.objects(chart.values("embedded-extras"))
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "password").write_text(f"{PASSWORD}\n")
            file = Path(folder, "users.acl")
            file.write_text("user default on nopass ~* &* +@all\nuser shop on >pw ~* &* +@read\n")
            config = config_file(objects, "embedded")
            for there in ("/run/moonshard-auth", "/run/moonshard-acl"):
                self.assertIn(there, config)
                config = config.replace(there, folder)
            with Server("serve", config, {"resp": 0, "http": 0, "grpc": 0}, {"data-dir": "none"}) as server:
                # At the start the password in the secret counts, not that in the file.
                self.check_scripts(objects, server)
                self.assertEqual(self.status(server, "localhost", "shop:pw"), 200)
                self.assertEqual(self.status(server, "localhost", "default:other"), 401)
                # The host of the Ingress, whose pages are of the server itself whether TLS ends before it or not.
                for origin in ("http", "https"):
                    self.assertEqual(self.status(server, "scripts.example", "shop:pw", f"{origin}://scripts.example"), 200)
                self.assertEqual(self.status(server, "other.example", "shop:pw"), 403)

    def status(self, server, host, user, origin=None):
        """Of the answer to a request that calls the server by this name."""
        headers = {"Host": host, "Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}
        if origin:
            headers["Origin"] = origin
        request = urllib.request.Request(f"http://127.0.0.1:{server.port('http')}/v1/keys", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as refused:
            refused.close()
            return refused.code

    def test_known_clients(self):
        if not shutil.which("openssl"):
            print("***** openssl not installed: these values of the chart are SKIPPED *****")
            return
        objects = chart.objects(chart.values("embedded-known"))
        with tempfile.TemporaryDirectory() as folder:
            certificates(folder)
            config = config_file(objects, "embedded").replace("/run/moonshard-tls", folder)
            with Server("serve", config, {"resp": 0, "http": 0, "grpc": 0}, {"data-dir": "none"}) as server:
                self.check_scripts(objects, server, [("/run/moonshard-tls", folder)])

    def test_tls(self):
        if not shutil.which("openssl"):
            print("***** openssl not installed: these values of the chart are SKIPPED *****")
            return
        objects = chart.objects(chart.values("distributed-tls"))
        with tempfile.TemporaryDirectory() as folder, Server.word() as word, ExitStack() as stack:
            certificates(folder)
            Path(folder, "password").write_text(f"{PASSWORD}\n")
            places = [("/run/moonshard-tls", folder), ("/run/moonshard-auth", folder), ("/run/moonshard/cluster-token", word)]

            def here(component):
                config = config_file(objects, component)
                for there, instead in places:
                    self.assertTrue(there in config or component == "store", there)
                    config = config.replace(there, instead)
                return config

            node = stack.enter_context(Server("store", here("store"), {"grpc": 0, "http": 0}, {"data-dir": "none"}))
            stores = {"stores": f"127.0.0.1:{node.port('grpc')}"}
            faces = {"resp": 0, "http": 0, "grpc": 0}
            server = stack.enter_context(Server("gateway", here("gateway"), faces, stores))
            self.check_scripts(objects, server, places)


def certificates(folder):
    """A root, and a certificate for this machine that leads to it."""
    def openssl(*words):
        subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True, timeout=120)

    new = ["req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    openssl(*new, "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=root")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    openssl(*new, "-CA", "ca.crt", "-CAkey", "ca.key", "-keyout", "tls.key", "-out", "tls.crt", "-subj", "/CN=server",
            "-addext", names, "-addext", "basicConstraints=critical,CA:FALSE")


if __name__ == "__main__":
    unittest.main()
