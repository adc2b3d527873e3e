#!/usr/bin/env python3
"""Writes the list of what the shipped programs are made of, as CycloneDX 1.6: sbom.py FILE

Every crate that is linked into them, by cargo's own resolution of Cargo.lock, with its checksum in the registry. Needs
cyclonedx-python-lib (scripts/release.sh installs it). The same commit gives the same file."""
import datetime
import json
import re
import subprocess
import sys
import uuid

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

SHIPPED = ("vcuda-shim", "vcuda-cli", "vcuda-bench", "vcuda-manager", "vcuda-kubernetes", "vcuda-simulator", "vcuda-simulator-nvml")


def main(place):
    metadata = json.loads(subprocess.check_output(["cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]))
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    checksums = {}
    for entry in open("Cargo.lock", encoding="utf-8").read().split("[[package]]"):
        fields = dict(re.findall(r'^(name|version|checksum) = "(.*)"$', entry, re.MULTILINE))
        if "checksum" in fields:
            checksums[fields["name"], fields["version"]] = fields["checksum"]

    def linked(node):
        """What is linked into it: not what only builds or tests it."""
        return [edge["pkg"] for edge in nodes[node]["deps"] if any(kind["kind"] is None for kind in edge["dep_kinds"])]

    wanted = [key for key, package in packages.items() if package["name"] in SHIPPED and package["source"] is None]
    seen = set()
    while wanted:
        key = wanted.pop()
        if key not in seen:
            seen.add(key)
            wanted += linked(key)

    def component(key):
        package = packages[key]
        name, version = package["name"], package["version"]
        checksum = checksums.get((name, version))
        return Component(
            name=name,
            version=version,
            type=ComponentType.LIBRARY,
            bom_ref=f"{name}@{version}",
            purl=PackageURL("cargo", name=name, version=version),
            licenses=[LicenseExpression(package["license"].replace("/", " OR "))] if package["license"] else [],
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=checksum)] if checksum else [],
        )

    commit = subprocess.check_output(["git", "log", "-1", "--format=%H %ct"], text=True).split()
    bom = Bom(serial_number=uuid.uuid5(uuid.NAMESPACE_URL, f"vcuda:{commit[0]}"))
    bom.metadata.timestamp = datetime.datetime.fromtimestamp(int(commit[1]), datetime.timezone.utc)
    version = next(package["version"] for package in packages.values() if package["name"] == "vcuda-cli")
    bom.metadata.component = Component(name="vcuda", version=version, type=ComponentType.APPLICATION, bom_ref="vcuda")
    components = {key: component(key) for key in sorted(seen)}
    bom.components.update(components.values())
    bom.register_dependency(bom.metadata.component, [of for key, of in components.items() if packages[key]["name"] in SHIPPED])
    for key, of in components.items():
        bom.register_dependency(of, [components[other] for other in linked(key)])
    make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_to_file(place, allow_overwrite=True, indent=2)
    print(f"sbom: {len(components)} crates")


main(sys.argv[1])
