"""Random JSON Schemas and values, and whether PyPI's jsonschema takes them: files of MaskBench's form, which maskbench then reads.

    schema_oracle.py SEED N FOLDER

Schemas are of draft 2020-12, small, and made of what the engine knows, so that keywords stand beside each other that nobody writes down
together. Values are random ones, and those that the schema names, alone, in arrays and in objects."""
import json
import pathlib
import random
import sys

import jsonschema

SCALARS = [None, True, False, 0, 1, 2, 5, 1.5, -1, "", "a", "b", "ab", "abc"]
NAMES = ["a", "b", "c"]
TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"]


class Writer:
    def __init__(self, seed):
        r = self.random = random.Random(seed)
        self.flat = {   # keyword: its value
            "enum": lambda: [self.value(2) for _ in range(r.randint(1, 4))], "const": lambda: self.value(2),
            **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], lambda: r.choice([-1, 0, 1, 2, 1.5])),
            **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems"], lambda: r.randint(0, 3)),
            **dict.fromkeys(["minContains", "maxContains", "minProperties", "maxProperties"], lambda: r.randint(0, 2)),
            "multipleOf": lambda: r.choice([1, 2, 0.5]), "pattern": lambda: r.choice(["^a", "b$", "a|b", "^(ab)*$"]), "uniqueItems": lambda: True,
            "required": lambda: r.sample(NAMES, r.randint(1, 2)), "dependentRequired": lambda: {r.choice(NAMES): [r.choice(NAMES)]},
            "propertyNames": lambda: r.choice([{"pattern": "a|b"}, {"maxLength": 1}, {"enum": ["a", "b"]}, {"not": {"const": "a"}}]),
            "$ref": lambda: r.choice(["#/$defs/x", "#/$defs/y"])}
        self.deep = {   # of schemas, one level less deep
            **dict.fromkeys(["items", "contains", "not", "if", "then", "else"], self.schema),
            **dict.fromkeys(["additionalProperties", "unevaluatedItems", "unevaluatedProperties"], lambda d: r.choice([False, self.schema(d)])),
            **dict.fromkeys(["prefixItems", "allOf", "anyOf", "oneOf"], lambda d: [self.schema(d) for _ in range(r.randint(1, 3))]),
            "properties": lambda d: {name: self.schema(d) for name in r.sample(NAMES, r.randint(1, 2))},
            "patternProperties": lambda d: {r.choice(["^a", "b", "c$"]): self.schema(d)}, "dependentSchemas": lambda d: {r.choice(NAMES): self.schema(d)}}

    def value(self, depth):
        r, kind = self.random, self.random.random()
        if depth == 0 or kind < .55:
            return r.choice(SCALARS)
        if kind < .78:
            return [self.value(depth - 1) for _ in range(r.randint(0, 3))]
        return {name: self.value(depth - 1) for name in r.sample(NAMES, r.randint(0, 3))}

    def schema(self, depth):
        r, made = self.random, {}
        if r.random() < .06:
            return r.choice([True, False])
        if r.random() < .6:
            types = r.sample(TYPES, r.choice([1, 1, 1, 2, 3]))
            made["type"] = types[0] if len(types) == 1 else types
        for _ in range(r.choice([0, 1, 1, 2, 2, 3])):
            if depth == 0 or r.random() < .5:
                key = r.choice(list(self.flat))
                made[key] = self.flat[key]()
            else:
                key = r.choice(list(self.deep))
                made[key] = self.deep[key](depth - 1)
        return made


def named(schema, out):
    """Values of enum and const, wherever they stand."""
    members = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, value in members:
        out += value if key == "enum" and isinstance(value, list) else [value] if key == "const" else []
        named(value, out)
    return out


def tests_of(schema, writer):
    consts = named(schema, [])
    values = [writer.value(2) for _ in range(40)] + consts[:8] + [[v] for v in consts[:4]] + [[v, v] for v in consts[:3]]
    values += [{name: v} for v in consts[:4] for name in NAMES[:2]]
    judge = jsonschema.Draft202012Validator(schema)
    return [{"valid": judge.is_valid(v), "data": v} for v in {json.dumps(v): v for v in values}.values()]


def main():
    seed, n, folder = int(sys.argv[1]), int(sys.argv[2]), pathlib.Path(sys.argv[3])
    writer = Writer(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    for i in range(n):
        schema = writer.schema(3)
        schema = schema if isinstance(schema, dict) else {"not": {}} if schema is False else {}
        schema["$defs"] = {"x": writer.schema(1), "y": writer.schema(1)}
        try:
            tests = tests_of(schema, writer)
        except BaseException as e:  # a loop of $ref: of rpds, in Rust, it is a panic, which is no Exception
            if isinstance(e, KeyboardInterrupt):
                raise
            continue
        (folder / f"{seed}_{i}.json").write_text(json.dumps({"schema": schema, "tests": tests}))


main()
