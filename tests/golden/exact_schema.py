"""JSON Schemas judged by PyPI's jsonschema with numbers as exact decimals: ints, and decimal.Decimal for all others."""
import decimal
import json

import jsonschema

decimal.getcontext().prec = 2000
Decimal = decimal.Decimal


def is_number(v):
    return isinstance(v, (int, Decimal)) and not isinstance(v, bool)


def is_integer(v):
    return is_number(v) and v == int(v)


def multiple_of(_, of, v, __):
    if is_number(v) and Decimal(v) % Decimal(of) != 0:
        yield jsonschema.ValidationError("no multiple")


def judge(schema, keywords=None, formats=None):
    """A validator of the schema's draft, 2020-12 where it has none; keywords: more of them, as jsonschema's validators are."""
    base = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    types = base.TYPE_CHECKER.redefine("integer", lambda _, v: is_integer(v)).redefine("number", lambda _, v: is_number(v))
    return jsonschema.validators.extend(base, {"multipleOf": multiple_of, **(keywords or {})}, type_checker=types)(schema, format_checker=formats)


def dumps(v, number=None):
    """JSON, without exponents; number: how a Decimal is written instead."""
    if isinstance(v, Decimal):
        text = number(v) if number else format(v, "f")
        text = text.rstrip("0").rstrip(".") if "." in text and "E" not in text else text
        return "0" if text in ("-0", "") else text
    if isinstance(v, list):
        return "[" + ", ".join(dumps(x, number) for x in v) + "]"
    if isinstance(v, dict):
        return "{" + ", ".join(json.dumps(k) + ": " + dumps(x, number) for k, x in v.items()) + "}"
    return json.dumps(v, ensure_ascii=False)
