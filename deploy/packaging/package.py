#!/usr/bin/env python3
"""Packs a program that is already built into a tarball and a Python wheel, each with a file of its SHA-256. The same input
gives the same bytes. Tools that build wheels compile the program themselves, with the features of their own call.

Usage: package.py PROGRAM DIRECTORY"""

import base64
import csv
import gzip
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
# 1980, the first year that a zip file can express.
DATE = int(os.environ.get("SOURCE_DATE_EPOCH", 315532800))
DOCUMENTS = ["LICENSE", "README.md"]


def output(*words):
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def checksum(file):
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    file.with_name(file.name + ".sha256").write_text(f"{digest}  {file.name}\n")


def installed(prefix):
    """The files below a prefix, in an order that does not depend on the file system."""
    return sorted(path for path in prefix.rglob("*") if path.is_file())


def tarball(prefix, directory, version, target):
    name = f"moonshard-{version}-{target}"

    def add(archive, file, inside):
        entry = archive.gettarinfo(file, f"{name}/{inside}")
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mode = 0o755 if entry.mode & 0o100 else 0o644
        entry.mtime = DATE
        with file.open("rb") as content:
            archive.addfile(entry, content)

    path = directory / f"{name}.tar.gz"
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=DATE) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for document in DOCUMENTS:
                add(archive, ROOT / document, document)
            for file in installed(prefix):
                add(archive, file, file.relative_to(prefix))
    return path


def platform(program, target):
    """The platform tag of a wheel, see https://packaging.python.org/specifications/platform-compatibility-tags."""
    machine = target.split("-")[0]
    if "apple-darwin" in target:
        # The oldest systems that Rust's compiler builds for.
        return {"aarch64": "macosx_11_0_arm64", "x86_64": "macosx_10_12_x86_64"}[machine]
    # The dynamic linker compares these names, which end with a zero byte, with those of the C library.
    versions = re.findall(rb"\0GLIBC_2\.(\d+)(?=[.\0])", program.read_bytes())
    if not versions:
        return f"linux_{machine}"
    # There is no tag for an older one.
    return f"manylinux_2_{max(17, *map(int, versions))}_{machine}"


def wheel(prefix, directory, version, target):
    tag = f"py3-none-{platform(prefix / 'bin' / 'moonshard', target)}"
    path = directory / f"moonshard-{version}-{tag}.whl"
    information = f"moonshard-{version}.dist-info"
    metadata = [
        "Metadata-Version: 2.4",
        "Name: moonshard",
        f"Version: {version}",
        "Summary: A Lua scripting server that speaks the Redis protocol",
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        "Requires-Python: >=3.8",
        "Description-Content-Type: text/markdown",
        "",
        (ROOT / "README.md").read_text(),
    ]
    kind = ["Wheel-Version: 1.0", "Generator: moonshard", "Root-Is-Purelib: false", f"Tag: {tag}", ""]
    files = {
        f"{information}/METADATA": "\n".join(metadata).encode(),
        f"{information}/WHEEL": "\n".join(kind).encode(),
        f"{information}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    for file in installed(prefix):
        inside = file.relative_to(prefix)
        # pip installs scripts as executable.
        inside = f"scripts/{inside.name}" if inside.parts[0] == "bin" else f"data/{inside}"
        files[f"moonshard-{version}.data/{inside}"] = file.read_bytes()
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([name, f"sha256={digest}", len(content)])
    rows.writerow([f"{information}/RECORD", "", ""])
    files[f"{information}/RECORD"] = record.getvalue().encode()
    date = time.gmtime(DATE)[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, date)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
            archive.writestr(entry, content)
    return path


def main():
    program, directory = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    version = output(program, "--version").split()[1]
    target = re.search(r"^host: (.*)$", output("rustc", "-vV"), re.MULTILINE)[1]
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as prefix:
        output(ROOT / "deploy" / "packaging" / "install.sh", program, prefix)
        for pack in (tarball, wheel):
            path = pack(Path(prefix), directory, version, target)
            checksum(path)
            print(path)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main()
