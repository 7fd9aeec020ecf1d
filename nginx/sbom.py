#!/usr/bin/python3
"""Writes what a build of infcgi is made of as CycloneDX 1.5, in JSON: the libraries that the program is linked with, those that these are linked
with, each with the Debian package it is of, and the npm packages of the chat page. The same build and packages make the same bytes.
  sbom.py PROGRAM TARGET    PROGRAM: a built infcgi, for this machine; TARGET: the file to write
Exit status 1 where a library's package cannot be told."""
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid

HERE = pathlib.Path(__file__).resolve().parent


def said(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def fail(text):
    sys.exit(f"error: sbom: {text}")


def linked(program):
    """{soname: path} of all that is loaded with the program, the loader by its own name."""
    found = {}
    for line in said("ldd", str(program)).splitlines():
        if "not found" in line:
            fail(f"{program}: expected every library to be there, found: {line.strip()}")
        if match := re.match(r"\s*(\S+) => (/\S+)|\s*(/\S+)", line):
            path = match[2] or match[3]
            found[match[1] or os.path.basename(path)] = path
    return found


def needed(path):
    return re.findall(r"\(NEEDED\)\s+Shared library: \[(.+)\]", said("readelf", "-d", str(path)))


def package_of(path):
    """Name, version, architecture and source of the Debian package that has a file, under either name where /lib is a link."""
    for name in (path, os.path.realpath(path), "/usr" + path, os.path.realpath(path).removeprefix("/usr")):
        found = subprocess.run(["dpkg-query", "-S", name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if found.returncode == 0:
            package = found.stdout.splitlines()[0].rsplit(": ", 1)[0]
            form = "${Package}|${Version}|${Architecture}|${source:Package}"
            return said("dpkg-query", "-W", "-f", form, package).split("|")
    return fail(f"{path}: expected a Debian package that has it, found none")


def distribution():
    fields = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)', pathlib.Path("/etc/os-release").read_text(), re.M))
    return fields["ID"], f"{fields['ID']}-{fields['VERSION_ID']}"


def library(path):
    name, version, arch, source = package_of(path)
    vendor, distro = distribution()
    quoted = version.replace("+", "%2B").replace(":", "%3A")
    purl = f"pkg:deb/{vendor}/{name.replace('+', '%2B')}@{quoted}?arch={arch}&distro={distro}"
    return {
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "properties": [{"name": "infcgi:source-package", "value": source}],
    }


def page_packages():
    """Those of the table in page.sh, which are distributed with the chat page."""
    table = re.search(r"^libraries='\n(.*?)^'", (HERE / "page.sh").read_text(), re.M | re.S)[1]
    for line in table.splitlines():
        name, version, licence, sha512, _, file = line.split("|")
        purl = f"pkg:npm/{name}@{version}"
        yield {
            "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
            "hashes": [{"alg": "SHA-512", "content": sha512}], "licenses": [{"license": {"id": licence}}],
            "properties": [{"name": "infcgi:file", "value": f"html/lib/{file}"}],
        }


def bom(program):
    version = re.search(r'SERVER_VERSION "(.+)"', (HERE.parent / "fcgi/wire/server.h").read_text())[1]
    paths = linked(program)
    libraries = {soname: library(path) for soname, path in paths.items()}
    itself = f"pkg:generic/infcgi@{version}"
    edges = {itself: {libraries[s]["bom-ref"] for s in needed(program)}}
    for soname, path in paths.items():
        own = libraries[soname]["bom-ref"]
        edges.setdefault(own, set()).update(libraries[s]["bom-ref"] for s in needed(path) if s in libraries)
        edges[own].discard(own)  # several files of one package
    components = {c["bom-ref"]: c for c in libraries.values()}
    for component in page_packages():
        components[component["bom-ref"]] = component
        edges[itself].add(component["bom-ref"])
        edges[component["bom-ref"]] = set()
    body = {
        "metadata": {"component": {
            "type": "application", "bom-ref": itself, "name": "infcgi", "version": version, "purl": itself,
            "hashes": [{"alg": "SHA-256", "content": hashlib.sha256(program.read_bytes()).hexdigest()}],
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        }},
        "components": [components[ref] for ref in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": sorted(to)} for ref, to in sorted(edges.items())],
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(body, sort_keys=True))
    return {"bomFormat": "CycloneDX", "specVersion": "1.5", "serialNumber": f"urn:uuid:{serial}", "version": 1, **body}


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: sbom.py PROGRAM TARGET")
    made = bom(pathlib.Path(sys.argv[1]))
    pathlib.Path(sys.argv[2]).write_text(json.dumps(made, indent=2) + "\n")
    print(f"{sys.argv[2]}: {len(made['components'])} components")
