"""Puts the schema of the parameters, which is read from standard input, into the schema of the chart's values."""

import json
import sys
from pathlib import Path

SCHEMA = Path(__file__).parent / "moonshard" / "values.schema.json"

# What the templates set: listeners, probes, volumes and secrets of the pods depend on it.
OF_CHART = [
    "resp",
    "http",
    "grpc",
    "http-hosts",
    "data-dir",
    "stores",
    "cluster-token-file",
    "replicated",
    "zone",
    "tls-cert-file",
    "tls-key-file",
    "tls-ca-cert-file",
    "tls-listeners",
    "tls-auth-clients",
    "tls-stores",
    "requirepass-file",
    "protected-mode",
    "aclfile",
    # Everybody who may read a ConfigMap would know it: `auth` takes it from a Secret.
    "requirepass",
]

schema = json.loads(SCHEMA.read_text())
config = json.load(sys.stdin)
for name in OF_CHART:
    del config["properties"][name]
schema["definitions"]["config"] = config
SCHEMA.write_text(json.dumps(schema, indent=2) + "\n")
