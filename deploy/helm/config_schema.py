"""Puts the schema of the parameters, which is read from standard input, into the schema of the chart's values."""

import json
import sys
from pathlib import Path

SCHEMA = Path(__file__).parent / "moonshard" / "values.schema.json"

schema = json.loads(SCHEMA.read_text())
schema["definitions"]["config"] = json.load(sys.stdin)
SCHEMA.write_text(json.dumps(schema, indent=2) + "\n")
