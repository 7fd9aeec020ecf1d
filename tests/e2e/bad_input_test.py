"""Malformed tools, schemas, messages and parameters, for each of three APIs: a 400 that names the place, whether or not they would
constrain the answer."""
import json
import pathlib
import re
import time

import harness

LONG = 10**6
HI = [{"role": "user", "content": "Hi"}]


class Chat:
    path, name, parameters = "/v1/chat/completions", "tools[{}].function.name", "tools[{}].function.parameters"
    none, schema_at = "none", "response_format.json_schema.schema"
    body = {"messages": HI, "max_tokens": 1}

    def tool(self, name, parameters):
        return {"type": "function", "function": {"name": name, "parameters": parameters}}

    def held(self, schema):
        return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}

    def place(self, r):
        return r.error()["param"]


class Responses(Chat):
    path, name, parameters, schema_at = "/v1/responses", "tools[{}].name", "tools[{}].parameters", "text.format.schema"
    body = {"input": HI, "max_output_tokens": 1, "store": False}

    def tool(self, name, parameters):
        return {"type": "function", "name": name, "parameters": parameters}

    def held(self, schema):
        return {"text": {"format": {"type": "json_schema", "name": "a", "schema": schema}}}


class Messages(Chat):
    path, name, parameters, schema_at = "/v1/messages", "tools[{}].name", "tools[{}].input_schema", "output_config.format.schema"
    none = {"type": "none"}
    body = {"messages": HI, "max_tokens": 1}

    def tool(self, name, parameters):
        return {"name": name, "input_schema": parameters}

    def held(self, schema):
        return {"output_config": {"format": {"type": "json_schema", "schema": schema}}}

    def place(self, r):
        """Returns the place that the message begins with, because this API has no member for it."""
        return r.json()["error"]["message"].split(": ", 1)[0]


APIS = Chat(), Responses(), Messages()


def post(ctx, api, **more):
    model = {"model": ctx.server.model.stem} if api.path == Messages.path else {}
    return ctx.server.post(api.path, {**api.body, **model, **more})


def refused(ctx, api, place, **more):
    r = post(ctx, api, **more)
    assert r.status == 400, (api.path, place, r.status, r.body[:300])
    assert api.place(r).startswith(place), (api.path, place, r.body[:300])


# Invalid schemas, and the place of the error.
NO_SCHEMAS = [
    ({"type": "something"}, "/type"), ({"type": 5}, "/type"), ({"type": ["string", "strng"]}, "/type"), ({"type": []}, "/type"),
    ({"properties": []}, "/properties"), ({"properties": {"a": 5}}, "/properties/a"), ({"properties": {"a": {"type": {}}}}, "/properties/a/type"),
    ({"properties": {"a/b": {"enum": {}}}}, "/properties/a~1b/enum"), ({"required": "a"}, "/required"), ({"required": [1]}, "/required"),
    ({"items": "string"}, "/items"), ({"properties": {"a": {"items": [{}, 5]}}}, "/properties/a/items/1"), ({"prefixItems": {}}, "/prefixItems"),
    ({"additionalProperties": "no"}, "/additionalProperties"), ({"allOf": []}, "/allOf"), ({"anyOf": {}}, "/anyOf"),
    ({"oneOf": [{}, {"anyOf": [{"not": 1}]}]}, "/oneOf/1/anyOf/0/not"), ({"enum": "a"}, "/enum"), ({"$ref": 5}, "/$ref"),
    ({"$defs": {"x": []}}, "/$defs/x"), ({"definitions": {"x": {"minLength": "1"}}}, "/definitions/x/minLength"),
    ({"pattern": 5}, "/pattern"), ({"maxLength": -1}, "/maxLength"), ({"minItems": 0.5}, "/minItems"), ({"maximum": "9"}, "/maximum"),
    ({"multipleOf": 0}, "/multipleOf"), ({"uniqueItems": 1}, "/uniqueItems"), ({"dependentRequired": {"a": "b"}}, "/dependentRequired"),
    ({"if": 1}, "/if"), ({"description": ["x"]}, "/description"),
]


@harness.in_release
def test_tools(ctx):
    """B16. Tools are checked even if tool_choice is none and the model does not see them."""
    for api in APIS:
        good = api.tool("good", {"type": "object"})
        for choice in {}, {"tool_choice": api.none}:
            for name in ("", "a b", "a\0b", "x" * 256, "\u00e9", 5, None, ["a"]):
                refused(ctx, api, api.name.format(1), tools=[good, api.tool(name, {})], **choice)
            refused(ctx, api, api.name.format(1), tools=[good, good], **choice)
            refused(ctx, api, "tools", tools=[api.tool(f"t{i}", {}) for i in range(1000)], **choice)
            refused(ctx, api, "tools[0]", tools=[5], **choice)
            refused(ctx, api, "tools", tools="all", **choice)
            for parameters in "{}", 5, [], True:
                refused(ctx, api, api.parameters.format(1), tools=[good, api.tool("bad", parameters)], **choice)
            for schema, place in NO_SCHEMAS:
                refused(ctx, api, api.parameters.format(1) + place, tools=[good, api.tool("bad", {"type": "object", **schema})], **choice)
        for choice in "some", {"type": "tool"}, {"type": 5}, 5, ["auto"]:
            refused(ctx, api, "tool_choice", tools=[good], tool_choice=choice)
        r = post(ctx, api, tools=[good], tool_choice=api.none)
        assert r.status == 200, r.body


def hostile_schemas():
    """B17: schemas that would take much time or memory if taken literally. A schema that can be enforced is, others are rejected."""
    deep = {}
    for _ in range(18):   # bodies nest at most 64 deep
        deep = {"not": {"allOf": [deep]}}
    return {
        "a pattern that is none": {"type": "string", "pattern": "("}, "nested stars": {"type": "string", "pattern": "(a+)+$"},
        "a long repeat": {"type": "string", "pattern": "a{1000000}"}, "repeats of repeats": {"type": "string", "pattern": "((a{1000}){1000}){1000}"},
        "a deep pattern": {"type": "string", "pattern": "(" * 5000 + ")" * 5000}, "wide classes": {"type": "string", "pattern": "[^\\x00-\\uFFFF]" * 3000},
        "many branches": {"type": "string", "pattern": "(a|b|ab)*" * 200 + "c{5000}"},
        "a long chain": {"$defs": {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(10**4)}, "$ref": "#/$defs/a0"},
        "patterns at once": {"allOf": [{"type": "string", "pattern": f"a.*b.{{{i}}}c"} for i in range(1, 40)]},
        "a loop": {"$ref": "#"}, "a loop of two": {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        "a loop of all": {"allOf": [{"$ref": "#"}]}, "no end": {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        "a remote one": {"$ref": "http://127.0.0.1:1/schema.json"}, "a file": {"$ref": "file:///etc/passwd"},
        "a billion items": {"type": "array", "minItems": 10**9}, "a billion letters": {"type": "string", "minLength": 10**9},
        "up to a billion letters": {"type": "string", "maxLength": 10**9}, "a large enum": {"enum": list(range(10**5))},
        "a large enum of strings": {"enum": [f"value number {i}" for i in range(10**5)]},
        "two large enums": {"oneOf": [{"enum": [f"a{i}" for i in range(3 * 10**4)]}, {"enum": [f"b{i}" for i in range(3 * 10**4)]}]},
        "a wide choice": {"anyOf": [{}] * 10**5}, "contradictions": {"allOf": [{"type": "string"}, {"type": "number"}]},
        "no choice": {"anyOf": [{"enum": []}]}, "deep": deep, "a choice of choices": {"allOf": [{"anyOf": [{"minLength": i}, {"maxLength": i}]} for i in range(40)]},
        "a huge number": {"type": "integer", "minimum": 1e300}, "fine steps": {"type": "number", "multipleOf": 1e-300},
    }


@harness.in_release
def test_schemas(ctx):
    """B17. Rejecting takes at most 100 ms each on an idle machine, but other tests may run here. It takes at most 64 MiB and leaves
    nothing after."""
    slowest, most = {200: (0, ""), 400: (0, "")}, {200: (0, ""), 400: (0, "")}
    process = pathlib.Path(f"/proc/{ctx.server.engine.pid}")

    def mib(name):
        return int(re.search(rf"^{name}:\s+(\d+) kB", (process / "status").read_text(), re.M)[1]) / 1024
    assert post(ctx, APIS[0], response_format={"type": "json_object"}).status == 200   # the first request makes tables of the vocabulary
    for i, (title, schema) in enumerate(hostile_schemas().items()):
        api = APIS[i % len(APIS)]   # all of them turn a schema into that of chat
        (process / "clear_refs").write_text("5")   # resets the peak
        before, start = mib("VmRSS"), time.monotonic()
        r = post(ctx, api, **api.held(schema))
        assert r.status in slowest, (title, api.path, r.status, r.body[:300])
        slowest[r.status] = max(slowest[r.status], (time.monotonic() - start, f"{title}, {api.path}"))
        most[r.status] = max(most[r.status], (mib("VmHWM") - before, f"{title}, {api.path}"))
        is_late = b"beginning has too many readings" in r.body   # found when the sequence starts
        assert r.status == 200 or is_late or (api.place(r) or "").startswith(api.schema_at), (title, api.path, r.body[:300])
        tool = APIS[0].tool("a", {"type": "object", "properties": {"x": schema}, "required": ["x"]})   # a schema without instances is rejected
        tool["function"]["strict"] = True
        if len(json.dumps(schema)) > 4000 or (r.status == 200 and i % 4 != 0):
            continue   # a prompt that shows it would be too long, and each accepted schema is computed
        r = post(ctx, APIS[0], tools=[tool], tool_choice="required")
        said = r.error() if r.status == 400 else {}
        place = "tools" if said.get("code") in ("grammar_too_complex", "invalid_grammar") else "tools[0].function.parameters/properties/x"   # of all tools
        assert r.status == 200 or said["param"].startswith(place), (title, r.body[:300])
    for status, (seconds, which) in slowest.items():
        print(f"slowest schema that is {'taken' if status == 200 else 'refused'}: {seconds * 1000:.0f} ms, {which}")
        assert seconds < (20 if ctx.is_slow else 2), slowest
        print(f"the most memory: {most[status][0]:.0f} MiB, {most[status][1]}")
        assert ctx.is_slow or most[status][0] < 64, most   # ASan keeps freed memory
    for title in "a loop", "a remote one", "a file", "a pattern that is none", "contradictions":
        assert post(ctx, APIS[0], **APIS[0].held(hostile_schemas()[title])).status == 400, title
    for schema, place in NO_SCHEMAS:
        for api in APIS:
            refused(ctx, api, api.schema_at, **api.held(schema))
    assert ctx.server.idle()


def test_messages(ctx):
    """C09, B15."""
    image = {"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}
    call = {"role": "tool", "tool_call_id": "c", "content": "x"}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}]}
    cases = {"/v1/chat/completions": ("messages", [
                 ([], ""), ("Hi", ""), ([{"role": "king", "content": "x"}], "[0].role"), ([{"content": "x"}], "[0].role"), ([*HI, 5], "[1]"),
                 ([{"role": "user"}], "[0].content"), ([{"role": "user", "content": [image]}], "[0].content[0].type"),
                 ([{"role": "user", "content": [{"type": "text"}]}], "[0].content[0].text"), ([*HI, call], "[1]"), (HI * 10**5, "")]),
             "/v1/responses": ("input", [
                 ([], ""), (5, ""), ([{"role": "king", "content": "x"}], "[0].role"), ([*HI, 5], "[1]"), ([{"type": "thing"}], "[0].type"),
                 ([{"role": "user", "content": [{"type": "input_image", "image_url": "file:///etc/passwd"}]}], "[0].content[0]"),
                 ([*HI, {"type": "function_call_output", "call_id": "c", "output": "x"}], "[1].call_id"),
                 ([*HI, {"type": "function_call", "name": "a b", "call_id": "c", "arguments": "{}"}], "[1].name"), (HI * 10**5, "")]),
             "/v1/messages": ("messages", [
                 ([], ""), ("Hi", ""), ([{"role": "king", "content": "x"}], "[0].role"), ([{"content": "x"}], "[0].role"), ([*HI, 5], "[1]"),
                 ([{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://127.0.0.1:1/"}}]}], "[0].content[0]"),
                 ([{"role": "user", "content": [{"type": "thing"}]}], "[0].content[0].type"), ([*HI, result], "[1].content[0]"), (HI * 10**5, "")])}
    for api in APIS:
        field, rows = cases[api.path]
        for value, place in rows:
            refused(ctx, api, field + place, **{field: value})


def test_parameters(ctx):
    """P12, P13, P14."""
    for api in APIS:
        for model in "other", "x" * 10240, "../../etc/passwd", "a\0b", "<script>\n":
            r = ctx.server.post(api.path, {**api.body, "model": model})
            said = r.json()["error"]["message"]
            assert r.status in (400, 404) and said.startswith("model: ") and len(said) < 400 and "\0" not in said, (api.path, model[:20], r.body)
        refused(ctx, api, "cache_salt", cache_salt="x" * LONG)
    many = {f"k{i}": "v" for i in range(10**4)}
    for api in APIS[:2]:
        refused(ctx, api, "user", user="x" * LONG)
        refused(ctx, api, "metadata", metadata=many)
    for options in 5, [], "x", {"include_usage": 1}:
        refused(ctx, APIS[0], "stream_options", stream=True, stream_options=options)
    refused(ctx, APIS[0], "stream_options", stream_options={"include_usage": True})


@harness.in_release
def test_many_choices_stream_with_logprobs(ctx):
    """P13: complete frames of each choice."""
    connection, r = ctx.server.stream(Chat.path, {"messages": HI, "max_tokens": 4, "n": 8, "logprobs": True, "top_logprobs": 2, "ignore_eos": True})
    choices = {i: [] for i in range(8)}
    ended = False
    for event in harness.events(r):
        assert not ended
        ended = event is None
        for choice in event["choices"] if event else []:
            choices[choice["index"]].append(choice)
    connection.close()
    assert ended
    for i, chunks in choices.items():
        tokens = [t for c in chunks if c["logprobs"] for t in c["logprobs"]["content"]]
        assert chunks[-1]["finish_reason"] == "length" and len(tokens) == 4 and all(len(t["top_logprobs"]) == 2 for t in tokens), (i, chunks)
        assert "".join(c["delta"].get("content") or "" for c in chunks), json.dumps(chunks)
