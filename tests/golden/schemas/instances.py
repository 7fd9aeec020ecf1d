"""Adds to each schema of a list texts that it allows and texts that it does not, as PyPI's jsonschema judges them
(and regex its patterns).

    instances.py < LINES > FILE

LINES: a JSON object a line, {"name", "schema"}, as zod_schemas.mjs and pydantic_schemas.py write them. FILE: {"schemas": [..]}, of
{"name", "schema", "valid": [texts], "invalid": [texts]} each. Numbers are judged exactly, as decimals."""
import copy
import itertools
import json
import pathlib
import re
import sys

import jsonschema
import regex

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import exact_schema  # noqa: E402

D = exact_schema.Decimal
STRINGS = ["", "a", "b", "ab", "abc", "abcd", "red", "x" * 30, "aXz", "amidz", "ABC", "abbc", "12345", "123-4567", "k_1", "x1", "id_7", "v5-a", "5px", "-1.5px", "<a@b.co>", "is-true", "a@b.co", "a.b+c@example.com",
           "https://example.com/a", "http://a.b", "file:///etc/x", "postgres://u:p@h:5432/db", "550e8400-e29b-41d4-a716-446655440000", "1ec9414c-232a-6b00-b3c8-9f6bdeced846", "018f3f1a-7f3e-7c9a-9c1e-0242ac120002", "\U0001f600",
           "V1StGXR8_Z5jdHi6B-myT", "cjld2cjxh0000qzrmn831i7rn", "tz4a98xxat96iws9zmbrgj3a", "01ARZ3NDEKTSV4RRFFQ69G5FAV", "9m4e2mr0ui3e8a215n4g", "0ujtsYcgvSTl8PAuAdqWYSMnLOv", "192.168.0.1", "::1", "2001:db8::1", "00:1A:2b:3c:4D:5e",
           "10.0.0.0/8", "2001:db8::/32", "aGVsbG8=", "aGVsbG8", "+4915112345678", "eyJhbGciOiJIUzI1NiJ9.eyJhIjoxfQ.abc", "example.com", "deadBEEF", "d41d8cd98f00b204e9800998ecf8427e", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
           "2024-02-29", "2023-02-29", "12:30:00", "12:30", "12:30:00.123", "12:30:00Z", "2024-02-29T12:30:00Z", "2024-02-29T12:30:00.123Z", "2024-02-29T12:30:00+02:00", "2024-02-29T12:30:00", "P1DT2H", "P3W", "true", "5", "-7", "0.50", "1e5", "yes", "3.14",
           "10000000000", "12345678.99", "+5", "abyz", "00:1A:2B:3C:4D:5E", "0123456789abcdef" * 8]


def number_texts(schema, out):
    """Numbers near those of the schema."""
    members = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, value in members:
        if key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "const") and isinstance(value, (int, D)) and not isinstance(value, bool):
            v = D(value)
            steps = [D(0), D(1), D(-1), D("0.5"), v, -2 * v] + ([v.scaleb(-18)] if v else [])
            out += [v + s for s in steps]
        number_texts(value, out)
    return out


def pattern(_, of, v, __):
    """As ECMA-262 reads it, with flag u: of what `re` does not know, \\p."""
    if isinstance(v, str) and regex.search(of, v, regex.ASCII) is None:
        yield jsonschema.ValidationError("no match")


FORMATS = jsonschema.FormatChecker(formats=["date", "ipv4", "ipv6"])
FORMATS.checks("email")(lambda v: not isinstance(v, str) or re.fullmatch(r"[A-Za-z0-9+_-]+(\.[A-Za-z0-9+_-]+)*@[a-z0-9]+(\.[a-z0-9]+)*", v) is not None)
FORMATS.checks("date-time")(lambda v: not isinstance(v, str) or re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", v) is not None)
FORMATS.checks("time")(lambda v: not isinstance(v, str) or re.fullmatch(r"\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)", v) is not None)
FORMATS.checks("uuid")(lambda v: not isinstance(v, str) or re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", v) is not None)
FORMATS.checks("uri")(lambda v: not isinstance(v, str) or re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*:[^ <>]*", v) is not None)
FORMATS.checks("duration")(lambda v: not isinstance(v, str) or re.fullmatch(r"P(\d+W|(?=.)(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?)", v) is not None)
FORMATS.checks("hostname")(lambda v: not isinstance(v, str) or re.fullmatch(r"[A-Za-z0-9]([.-]?[A-Za-z0-9])*", v) is not None)


def from_openapi(schema):
    """OpenAPI 3.0's words in those of 2020-12."""
    if isinstance(schema, list):
        return [from_openapi(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    out = {k: from_openapi(v) for k, v in schema.items()}
    for open_, closed in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if out.get(open_) is True:
            out[open_] = out.pop(closed)
        elif out.get(open_) is False:
            del out[open_]
    return {"anyOf": [{k: v for k, v in out.items() if k != "nullable"}, {"type": "null"}]} if out.get("nullable") is True else out


def judge(schema):
    return exact_schema.judge(schema, {"pattern": pattern}, FORMATS)


class Maker:
    """Makes values that a schema may allow."""

    def __init__(self, root):
        self.root, self.checks = root, judge(root)
        self.numbers = [*number_texts(root, []), D(0), D(1), D(5), D("0.5"), D(-1), D(100)]

    def follow(self, schema):
        while isinstance(schema, dict) and "$ref" in schema:
            at = self.root
            for part in schema["$ref"].lstrip("#").strip("/").split("/") if schema["$ref"] != "#" else ():
                at = at[int(part) if isinstance(at, list) else part.replace("~1", "/").replace("~0", "~")]
            schema = at
        return schema if isinstance(schema, dict) else {}

    def scalars(self):
        return [*self.numbers, *STRINGS, True, False, None]

    def values(self, schema, depth):
        schema = self.follow(schema)
        out = list(schema.get("enum", [])) + ([schema["const"]] if "const" in schema else [])
        for key in ("anyOf", "oneOf", "allOf"):
            for branch in schema.get(key, []):
                out += self.values(branch, depth)
        if "allOf" in schema:
            objects = [v for v in out if isinstance(v, dict)]
            out += [dict(itertools.chain(*(o.items() for o in objects)))] if objects else []
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if "object" in types or "properties" in schema:
            out += self.objects(schema, depth)
        if "array" in types or "prefixItems" in schema:
            out += self.arrays(schema, depth)
        return out + self.scalars()

    def first(self, schema, depth):
        checks = self.checks.evolve(schema=schema)   # its references are the document's
        return next((v for v in self.values(schema, depth) if checks.is_valid(v)), None) if depth > 0 else None

    def objects(self, schema, depth):
        members = {k: self.first(s, depth - 1) for k, s in schema.get("properties", {}).items()}
        required = {k: v for k, v in members.items() if k in schema.get("required", [])}
        other = schema.get("additionalProperties", {})
        names = self.follow(schema.get("propertyNames", {})).get("enum", ["a", "k_1", "x1", "5", "a@b.co", "x", "b"])
        more = [{**required, n: self.first(other if isinstance(other, dict) else {}, depth - 1)} for n in names]
        return [members, required, {}, {**members, "other name": 1}, dict.fromkeys(members, {"no": []}), *more, dict.fromkeys(names, 1)]

    def arrays(self, schema, depth):
        first = [self.first(s, depth - 1) for s in schema.get("prefixItems", schema["items"] if isinstance(schema.get("items"), list) else [])]
        item = self.first(schema["items"], depth - 1) if isinstance(schema.get("items"), dict) else self.first(schema.get("additionalItems", {}), depth - 1)
        return [first, first + [item], [item], [item, item], [], [item] * 3, [{"no": []}], [item] * 12]


def tests(schema):
    read = copy.deepcopy(schema) if "draft-04" in schema.get("$schema", "") else from_openapi(copy.deepcopy(schema))
    checks, valid, invalid = judge(read), [], []
    made = Maker(read).values(read, 5) + [{}, [], {"a": 1}, [1]]
    seen = {exact_schema.dumps(v): v for v in made}
    for text, v in seen.items():
        (valid if checks.is_valid(v) else invalid).append(text)
    keep = lambda texts, n: [t for t in texts if len(t) < 1500][:n]
    return keep(valid, 6), keep(invalid, 8)


def main():
    rows = []
    for line in sys.stdin:
        row = json.loads(line, parse_float=D)
        valid, invalid = tests(row["schema"])
        if not valid or not invalid:
            print(f"{row['name']}: {len(valid)} valid, {len(invalid)} invalid", file=sys.stderr)
        row["valid"], row["invalid"], row["text"] = valid, invalid, line
        rows.append(row)
    print('{"schemas": [')
    for i, row in enumerate(rows):
        schema = json.dumps(json.loads(row["text"])["schema"], ensure_ascii=False)
        print(json.dumps({"name": row["name"]})[:-1] + f', "schema": {schema}, "valid": {json.dumps(row["valid"], ensure_ascii=False)}, '
              f'"invalid": {json.dumps(row["invalid"], ensure_ascii=False)}}}' + ("," if i + 1 < len(rows) else ""))
    print("]}")


main()
