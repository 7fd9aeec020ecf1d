"""Renews docs/openapi.yaml from the tables of the program, and makes docs/openapi.json of it.

    openapi.py PROGRAM [FOLDER]   PROGRAM: infcgi; FOLDER: where to write, in place of this one

Between `# made by `make docs`: begin TABLE` and `end` stand the rows of that table of fields. A field above the mark, which says
more than its row does, is left out; one that has no row there is an error. Errors too: a route without an operation, an operation
without a route, a table that no mark names. They are told on stderr, a line each, once the files are written.
"""
import json
import pathlib
import re
import subprocess
import sys

import yaml

BEGIN = re.compile(r"( *)# made by `make docs`: begin (\w+)$")
END = "# made by `make docs`: end"
METHODS = {"get", "post", "delete"}


def told(program):
    """The routes as {(method, path): is_prefix}, and the tables as {name: {field: (kind, min, max)}}."""
    routes, tables = {}, {}
    for line in subprocess.run([program, "help", "--format", "api"], check=True, capture_output=True, text=True).stdout.splitlines():
        kind, *rest = line.split("\t")
        if kind == "path":
            routes[rest[0].lower(), rest[1]] = rest[2] == "prefix"
        else:
            tables.setdefault(rest[0], {})[rest[1]] = (rest[2], float(rest[3]), float(rest[4]))
    return routes, tables


def number(x):
    return int(x) if x == int(x) else x


def schema(kind, low, high):
    """Of a row. null stands for absent."""
    if kind in ("any", "ignored"):
        return "{}" if kind == "any" else "{maxLength: 65536, maxItems: 256, maxProperties: 256, description: no effect}"
    if kind == "refused":
        return "{enum: [null, false, []], description: rejected}"
    if kind == "string":
        return f"{{type: [string, 'null'], maxLength: {number(high)}}}"
    bounds = f", minimum: {number(low)}, maximum: {number(high)}" if low < high else ""
    return f"{{type: [{kind}, 'null']{bounds}}}"


def own_fields(lines, at, indent):
    """Names of the fields between `properties:` and the mark at lines[at]."""
    names = []
    while at > 0 and not re.match(indent[2:] + r"\S", lines[at - 1]):
        at -= 1
        if m := re.match(indent + r"(\w+):", lines[at]):
            names.append(m[1])
    return names


def renew(text, tables, problems):
    lines, out, used, inside = text.splitlines(), [], set(), False
    for i, line in enumerate(lines):
        inside = inside and line.strip() != END
        if not inside:
            out.append(line)
        if m := BEGIN.match(line):
            inside, table = True, tables.get(m[2])
            used.add(m[2])
            if table is None:
                problems.append(f"docs/openapi.yaml:{i + 1}: no table of the program has the name {m[2]}")
                continue
            own = own_fields(lines, i, m[1])
            problems += [f"docs/openapi.yaml:{i + 1}: field {name} has no row in the table {m[2]}" for name in own if name not in table]
            out += [f"{m[1]}{name}: {schema(*row)}" for name, row in table.items() if name not in own]
    problems += [f"docs/openapi.yaml:1: no mark names the table {name}" for name in tables if name not in used]
    return "\n".join(out) + "\n"


def operations(document):
    for path, item in document["paths"].items():
        if "$ref" in item:   # of another path: '#/paths/~1v1~1models'
            item = document["paths"][item["$ref"].removeprefix("#/paths/").replace("~1", "/")]
        for method in METHODS & item.keys():
            yield method, path


def compare(document, routes, problems):
    left = dict(routes)
    for method, path in operations(document):
        whole = (method, path)
        prefix = (method, path.partition("{")[0])
        if whole in routes:
            left.pop(whole, None)
        elif "{" in path and routes.get(prefix):
            left.pop(prefix, None)
        else:
            problems.append(f"docs/openapi.yaml:1: {method.upper()} {path} is no route")
    problems += [f"docs/openapi.yaml:1: path {path} is not described for {method.upper()}" for method, path in left]


def main():
    here = pathlib.Path(__file__).resolve().parent
    to = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else here
    routes, tables = told(sys.argv[1])
    problems = []
    text = renew((here / "openapi.yaml").read_text(), tables, problems)
    document = yaml.safe_load(text)
    compare(document, routes, problems)
    (to / "openapi.yaml").write_text(text)
    parts = {key: {} if key in ("paths", "components") else value for key, value in document.items()}
    head = json.dumps(parts, indent=1)   # a line for each path and each schema, so that a change shows as one
    rows = {key: ",\n  ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in items)
            for key, items in (("paths", document["paths"].items()),
                               *((name, part.items()) for name, part in document["components"].items()))}
    inner = ",\n ".join(f"{json.dumps(name)}: {{\n  {rows[name]}\n }}" for name in document["components"])
    head = head.replace('"paths": {}', f'"paths": {{\n  {rows["paths"]}\n }}')
    head = head.replace('"components": {}', f'"components": {{\n {inner}\n }}')
    assert json.loads(head) == document
    (to / "openapi.json").write_text(head + "\n")
    if problems:
        sys.exit("\n".join(problems))


if __name__ == "__main__":
    main()
