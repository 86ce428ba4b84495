"""The dashboard and the alert rules: PromQL that parses, of metrics and labels that there are."""

import itertools
import json
import re
import unittest
from pathlib import Path

import promql_parser
import yaml

DEPLOY = Path(__file__).parent.parent
METRICS = DEPLOY.parent / "docs" / "src" / "reference" / "metrics.md"
FILES = DEPLOY / "helm" / "moonshard" / "files"
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
ALERTS = yaml.safe_load((FILES / "alerts.yaml").read_text())

# What Prometheus adds to whatever it reads.
TARGET = {"job", "instance"}


def known():
    """Kind and labels of each metric, from the table that the server prints."""
    rows = re.findall(r"^\| `(moonshard_\w+)` \| (\w+) \| [^|]* \| ([^|]*) \|", METRICS.read_text(), re.MULTILINE)
    return {name: (kind, set(filter(None, labels.strip().split(", ")))) for name, kind, labels in rows}


def plain(expression):
    """What Grafana makes of an expression, with any values of its variables."""
    return expression.replace("$__rate_interval", "5m").replace("$job", "a").replace("$instance", "b")


def wrong(expression, metrics):
    """What an expression says of metrics that is not so."""
    try:
        promql_parser.parse(plain(expression))
    except ValueError as error:
        yield str(error)
    labels = set(TARGET)
    for name, braces, window in re.findall(r"\b(moonshard_\w+)(\{[^}]*\})?(\[)?", expression):
        stem = re.sub(r"_(bucket|sum|count)$", "", name)
        kind, own = metrics.get(name) or metrics.get(stem) or (None, set())
        own = own | ({"le"} if name.endswith("_bucket") else set())
        labels |= own
        if kind is None:
            yield f"there is no {name}"
        elif (kind == "histogram") != (name != stem):
            yield f"{name} is a {kind}"
        elif bool(window) != (kind != "gauge") and not re.search(rf"(changes|last_over_time)\({name}\[", expression):
            yield f"{name} is a {kind}: rates are of what counts, and of nothing else"
        for label in re.findall(r"(\w+) *(?:=|!=|=~|!~)", braces):
            if label not in own | TARGET:
                yield f"{name} has no label {label}"
    for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression):
        for label in re.split(r", *", group):
            if label not in labels:
                yield f"there is nothing with a label {label}"


class Monitoring(unittest.TestCase):
    def check(self, expressions):
        """Of each name the expression is what it should be."""
        metrics = known()
        self.assertGreater(len(metrics), 50)
        found = [f"{name}: {why}: {text}" for name, text in expressions for why in wrong(text, metrics)]
        self.assertEqual(found, [])

    def test_alerts(self):
        rules = [rule for group in ALERTS["groups"] for rule in group["rules"]]
        self.assertGreater(len(rules), 10)
        names = [rule["alert"] for rule in rules]
        self.assertEqual(len(names), len(set(names)))
        for rule in rules:
            self.assertIn(rule["labels"]["severity"], ("warning", "critical"))
            self.assertEqual(set(rule["annotations"]), {"summary", "description"})
        self.check([(rule["alert"], rule["expr"]) for rule in rules])

    def test_dashboard(self):
        panels = DASHBOARD["panels"]
        numbers = [panel["id"] for panel in panels]
        self.assertEqual(len(numbers), len(set(numbers)))
        queries = [(panel["title"], target["expr"]) for panel in panels for target in panel.get("targets", [])]
        self.assertGreater(len(queries), 50)
        variables = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
        self.assertEqual(variables, ["datasource", "job", "instance"])
        for panel in panels:
            if panel["type"] != "row":
                self.assertTrue(panel["targets"], panel["title"])
                self.assertEqual(panel["datasource"]["uid"], "${datasource}")
        self.check(queries)

    def test_panels_do_not_overlap(self):
        taken = {}
        for panel in DASHBOARD["panels"]:
            at = panel["gridPos"]
            self.assertLessEqual(at["x"] + at["w"], 24, panel["title"])
            for cell in itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])):
                self.assertNotIn(cell, taken, f"{panel['title']} lies over {taken.get(cell)}")
                taken[cell] = panel["title"]


class Rules(unittest.TestCase):
    """That what is looked for is found."""

    def test_what_is_not_so_is_told(self):
        metrics = {"moonshard_a_total": ("counter", {"x"}), "moonshard_b": ("gauge", set()), "moonshard_c_seconds": ("histogram", {"x"})}
        for expression in (
            'sum by (x) (rate(moonshard_a_total{x="1"}[5m]))',
            "moonshard_b > 0",
            "histogram_quantile(0.9, sum by (le, x) (rate(moonshard_c_seconds_bucket[5m])))",
        ):
            self.assertEqual(list(wrong(expression, metrics)), [], expression)
        for expression in (
            "moonshard_d",
            "moonshard_a_total",
            "rate(moonshard_b[5m])",
            "sum by (y) (rate(moonshard_a_total[5m]))",
            'moonshard_b{x="1"}',
            "rate(moonshard_c_seconds[5m])",
            "rate(moonshard_a_total_sum[5m])",
            "sum by (x) (rate(moonshard_a_total[5m])",
        ):
            self.assertNotEqual(list(wrong(expression, metrics)), [], expression)


if __name__ == "__main__":
    unittest.main()
