"""What `config` of the chart may have: parameters that the templates do not set, with values that the server takes."""

import re
import tomllib
import unittest

import helm_python as helm

import chart

PARAMETERS = chart.DEPLOY.parent / "docs" / "src" / "reference" / "configuration.md"


def set_by_templates():
    """The parameters that templates set whatever `config` is."""
    names = {"zone"}
    for case in chart.cases():
        given = chart.values(case)
        for values in given, *(given.get(component, {}) for component in ("embedded", "gateway", "store")):
            values.pop("config", None)
        for found in chart.objects(given):
            if found["kind"] == "ConfigMap" and "moonshard.toml" in found["data"]:
                names.update(tomllib.loads(found["data"]["moonshard.toml"]))
    # Replicas need `sync`, which may as well be given.
    return names - {"durability"}


class Config(unittest.TestCase):
    def test_config_has_only_known_parameters_with_possible_values(self):
        rows = re.findall(r"^\| `([a-z-]+)` \| [^|]* \| ([^|]*) \|", PARAMETERS.read_text(), re.MULTILINE)
        self.assertGreater(len(rows), 80)
        computed = ("one per core", "16 per thread")
        # `auth` takes the password from a Secret.
        own = set_by_templates() | {"requirepass"}
        self.assertLess({"data-dir", "stores", "resp", "tls-cert-file", "requirepass-file"}, own)
        for name, usual in rows:
            if name in own:
                with self.assertRaises(helm.HelmError, msg=name):
                    chart.rendered({"config": {name: usual}})
            elif not usual.startswith(computed):
                chart.rendered({"config": {name: usual}})
        for name, value in [
            ("maxmemory", 1073741824),
            ("maxmemory", "10GB"),
            ("maxmemory-clients", "5%"),
            ("slowlog-log-slower-than", -1),
            ("otel-sample-ratio", 0.5),
            ("otel-endpoint", "https://collector:4317"),
            ("latency-tracking-info-percentiles", 99),
        ]:
            chart.rendered({"config": {name: value}})
        for name, value in [
            ("maxmemoryy", "1gb"),
            ("script_fuel", 1),
            ("maxmemory", "10zb"),
            ("maxmemory", -1),
            ("hz", 0),
            ("hz", 1.5),
            ("hz", "often"),
            # What YAML makes of no and yes without quotes.
            ("latency-tracking", False),
            ("durability", "always"),
            ("otel-sample-ratio", 2),
            ("otel-endpoint", "collector"),
            ("notify-keyspace-events", "all"),
            ("client-output-buffer-limit", "normal 1gb"),
        ]:
            for wrong in ({"config": {name: value}}, {"store": {"config": {name: value}}}):
                with self.assertRaises(helm.HelmError, msg=str(wrong)):
                    chart.rendered(wrong)

    def test_limits_of_scripts_are_not_above_their_maximum(self):
        usual = dict(re.findall(r"^\| `(script-[a-z-]+)` \| [^|]* \| ([^|]*) \|", PARAMETERS.read_text(), re.MULTILINE))
        for name, most, above in [
            ("script-memory", "script-memory-max", "257mb"),
            ("script-timeout-ms", "script-timeout-max-ms", int(usual["script-timeout-max-ms"]) + 1),
            ("script-fuel", "script-fuel-max", int(usual["script-fuel-max"]) + 1),
        ]:
            chart.rendered({"config": {name: usual[most]}})
            chart.rendered({"config": {name: above, most: above}})
            for wrong in {"config": {name: above}}, {"config": {most: above}, "embedded": {"config": {most: usual[name], name: above}}}:
                with self.assertRaisesRegex(helm.HelmError, f"config.{name} exceeds {most}"):
                    chart.rendered(wrong)
            with self.assertRaisesRegex(helm.HelmError, f"config.{name} exceeds {most}"):
                # Its usual value is above it, too.
                chart.rendered({"config": {most: "1mb" if name == "script-memory" else 1}})


if __name__ == "__main__":
    unittest.main()
