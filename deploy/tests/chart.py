"""The chart: what it renders, for the tests; as a program it writes the expected texts anew, to be read before they count."""

import re
import sys
from pathlib import Path

import helm_python as helm
import yaml

DEPLOY = Path(__file__).parent.parent
CHART = DEPLOY / "helm" / "moonshard"
CASES = DEPLOY / "helm" / "cases"


def parsed(text):
    """What YAML says, read by libyaml: in Python it takes ten times as long."""
    return yaml.load(text, yaml.CSafeLoader)


def cases():
    """Names of the sets of values that are rendered."""
    return sorted(path.name.removesuffix(".values.yaml") for path in CASES.glob("*.values.yaml"))


def values(case):
    return parsed((CASES / f"{case}.values.yaml").read_text())


def rendered(given, directory=CHART):
    """All templates with these values, as one text."""
    with helm.Chart.load(directory) as chart:
        chart.validate_schema(given)
        files = chart.render(given, name="demo", namespace="prod")
    texts = ((path, text.strip().removeprefix("---\n")) for path, text in sorted(files.items()))
    return "".join(f"---\n# Source: {path}\n{text}\n" for path, text in texts if text and not path.endswith(".txt"))


def objects(given):
    """The same as objects."""
    return [found for found in yaml.load_all(rendered(given), yaml.CSafeLoader) if found]


def golden(case):
    return CASES / f"{case}.golden.yaml"


PAGE = DEPLOY.parent / "docs" / "src" / "operations" / "kubernetes.md"
HEADING = "| value | default | meaning |\n| --- | --- | --- |\n"


def page():
    """The page on the chart, with the table of values from the comments of values.yaml."""
    text = (CHART / "values.yaml").read_text()
    values = parsed(text)
    rows = []
    path = []
    doc = None
    for line in text.splitlines():
        if comment := re.match(r" *# -- (.*)", line):
            doc = comment[1]
            continue
        entry = re.match(r"( *)([A-Za-z]+): ?(.*)", line)
        if not entry:
            continue
        depth = len(entry[1]) // 2
        path = path[:depth] + [entry[2]]
        if doc:
            rows.append((".".join(path), default(values, path), doc))
            doc = None
    table = "\n".join(f"| `{name}` | `{value}` | {doc} |" for name, value, doc in rows)
    return PAGE.read_text().partition(HEADING)[0] + HEADING + table + "\n"


def default(values, path):
    """What the values have there, in one line."""
    found = values
    for name in path:
        found = found[name]
    return yaml.safe_dump(found, default_flow_style=True, sort_keys=False, width=1000).removesuffix("\n...\n").strip()


def main():
    for case in cases():
        golden(case).write_text(rendered(values(case)))
    PAGE.write_text(page())


if __name__ == "__main__":
    sys.exit(main())
