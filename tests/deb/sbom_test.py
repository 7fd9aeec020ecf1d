#!/usr/bin/env python3
"""The list of nginx/sbom.py is CycloneDX by its published schema, names what ldd and page.sh do, comes out the same twice, and none of
these checks is blind. Last line: N passed, N failed.
  sbom_test.py SBOM PROGRAM"""
import copy
import json
import pathlib
import re
import subprocess
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = pathlib.Path(__file__).resolve().parents[2]


def faults(bom, program):
    """What is wrong with it, in words; [] when nothing is."""
    if error := JsonStrictValidator(SchemaVersion.V1_5).validate_str(json.dumps(bom)):
        return [f"the schema: {error}"]
    found = []
    refs = [c["bom-ref"] for c in bom["components"]] + [bom["metadata"]["component"]["bom-ref"]]
    if len(refs) != len(set(refs)):
        found.append("a bom-ref comes twice")
    for edge in bom["dependencies"]:
        found += [f"{ref} is no component" for ref in [edge["ref"], *edge["dependsOn"]] if ref not in refs]
    for component in bom["components"]:
        purl = PackageURL.from_string(component["purl"])
        if (purl.name, purl.version) != (component["name"], component["version"]):
            found.append(f"{component['purl']} is not {component['name']} {component['version']}")
    names = {c["name"] for c in bom["components"]}
    dynamic = subprocess.run(["readelf", "-d", program], stdout=subprocess.PIPE, text=True, check=True).stdout
    for stem in re.findall(r"\[lib([A-Za-z0-9_-]+?)(?:-8)?\.so", dynamic.replace("Library runpath", "")):
        wanted = {"crypto": "libssl", "c": "libc6", "m": "libc6"}.get(stem, "lib" + stem.lower())
        if not any(wanted in name for name in names):
            found.append(f"lib{stem} is linked and not listed")
    for name in re.findall(r"^([a-z]+)\|[0-9.]+\|", (ROOT / "nginx/page.sh").read_text(), re.M):
        if name not in names:
            found.append(f"{name} of the chat page is not listed")
    return found


def main(path, program):
    bom = json.loads(path.read_text())
    again = path.with_suffix(".again")
    subprocess.run([ROOT / "nginx/sbom.py", program, again], stdout=subprocess.DEVNULL, check=True)
    same = again.read_bytes() == path.read_bytes()
    again.unlink()
    results = {"it is right": faults(bom, program) == [], "it comes out the same": same}
    breaks = {
        "a field that the schema has not": lambda b: b["components"][0].update(kind="x"),
        "a hash cut short": lambda b: b["metadata"]["component"]["hashes"][0].update(content="12"),
        "an edge to nothing": lambda b: b["dependencies"][0]["dependsOn"].append("pkg:npm/nothing@1"),
        "another version": lambda b: b["components"][0].update(version="0"),
        "a library left out": lambda b: [b["components"].remove(c) for c in b["components"] if "jansson" in c["name"]],
        "a package of the page left out": lambda b: [b["components"].remove(c) for c in b["components"] if c["name"] == "marked"],
    }
    for name, spoil in breaks.items():
        other = copy.deepcopy(bom)
        spoil(other)
        results["sees " + name] = faults(other, program) != []
    for name, well in results.items():
        if not well:
            print(f"failed: {name}: {faults(bom, program)}")
    print(f"{sum(results.values())} passed, {len(results) - sum(results.values())} failed")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
