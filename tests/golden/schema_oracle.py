"""Random JSON Schemas and values, and whether PyPI's jsonschema takes them: files of MaskBench's form, which maskbench then reads.

    schema_oracle.py SEED N FOLDER

Schemas are of draft 2020-12, small, and made of what the engine knows, so that keywords stand beside each other that nobody writes down
together. Values are random ones, those that the schema names, alone, in arrays and in objects, and numbers near its bounds. Numbers are
exact decimals of any length."""
import pathlib
import random
import sys

import exact_schema
from exact_schema import Decimal as D

SCALARS = [None, True, False, 0, 1, 2, 5, D("1.5"), -1, "", "a", "b", "ab", "abc"]
LONG = [2**53 - 1, -2**53, 2**63 - 1, -2**63, 2**64 - 1, 10**15, 10**30, -10**40, D("3.4028234663852886E+38"), D("-1.7976931348623157E+308"), D("0.1"), D("0.30000000000000004"),
        D("1E-7"), D("-2.5E-9"), D("0.1234567890123456789"), D("12.75"), D("-0.25"), 86400, 999]
STEPS = [1, 2, D("0.5"), 7, 10, 1000, 3600, D("0.01"), D("0.1"), D("0.25"), D("1E-8"), D("1.5"), D("0.75"), 97, 1024]
LONG_VALUES = [v for v in LONG if len(format(v, "f")) < 64]   # instances have no exponents: longer ones are written in one way
BOUNDS = ["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]
NAMES = ["a", "b", "c"]
TYPES = ["object", "array", "string", "number", "integer", "boolean", "null"]


class Writer:
    def __init__(self, seed):
        r = self.random = random.Random(seed)
        self.flat = {   # keyword: its value
            "enum": lambda: [self.value(2) for _ in range(r.randint(1, 4))], "const": lambda: self.value(2),
            **dict.fromkeys(BOUNDS, lambda: r.choice([-1, 0, 1, 2, D("1.5")]) if r.random() < .5 else r.choice(LONG)),
            **dict.fromkeys(["minLength", "maxLength", "minItems", "maxItems"], lambda: r.randint(0, 3)),
            **dict.fromkeys(["minContains", "maxContains", "minProperties", "maxProperties"], lambda: r.randint(0, 2)),
            "multipleOf": lambda: r.choice(STEPS), "pattern": lambda: r.choice(["^a", "b$", "a|b", "^(ab)*$"]), "uniqueItems": lambda: True,
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
            return r.choice(SCALARS) if r.random() < .9 else r.choice(LONG_VALUES)
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
        if r.random() < .15:   # numbers alone
            made["type"] = r.choice(["number", "integer"])
            made.update((key, self.flat[key]()) for key in r.sample([*BOUNDS, "multipleOf"], r.randint(1, 3)))
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


def near(schema, writer):
    """Numbers that differ from a bound or a step by little."""
    r, out = writer.random, []
    members = schema.items() if isinstance(schema, dict) else enumerate(schema) if isinstance(schema, list) else ()
    for key, value in members:
        if key in (*BOUNDS, "multipleOf") and exact_schema.is_number(value):
            v = D(value)
            by = [D(0), D(1), D(-1), D("0.5"), v.scaleb(-15), -v.scaleb(-30), v, v * r.randint(2, 99), D(r.randint(-99, 99)).scaleb(-3)]
            out += [v + r.choice(by) for _ in range(4)] + [-v]
        out += near(value, writer)
    return out


def tests_of(schema, writer):
    consts = named(schema, [])
    values = [writer.value(2) for _ in range(40)] + consts[:8] + [[v] for v in consts[:4]] + [[v, v] for v in consts[:3]]
    values += [{name: v} for v in consts[:4] for name in NAMES[:2]]
    numbers = near(schema, writer)[:24]
    values += [int(v) if v == int(v) else v for v in numbers] + [[v] for v in numbers[:4]] + [{writer.random.choice(NAMES): v} for v in numbers[:4]]
    judge = exact_schema.judge(schema)
    return [{"valid": judge.is_valid(v), "text": text} for text, v in {exact_schema.dumps(v): v for v in values}.items()]


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
        form = writer.random.choice([None, str, lambda v: format(v, "E")])   # how the schema writes decimals
        text = f'{{"schema": {exact_schema.dumps(schema, form)}, "tests": {exact_schema.dumps(tests)}}}'
        (folder / f"{seed}_{i}.json").write_text(text)


main()
