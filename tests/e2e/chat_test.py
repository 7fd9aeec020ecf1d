"""/v1/chat/completions with the openai package: answers, streams, logprobs, stop strings, n, seeds, disconnects."""
import concurrent.futures
import json
import math
import typing

import pydantic

import harness

FRANCE = [{"role": "user", "content": "Name the capital of France."}]   # the model is sure of it, however an ISA rounds
COUNT = [{"role": "user", "content": "Count from one to fifty in words."}]


def test_answer_is_sensible(ctx):
    r = ctx.server.client().chat.completions.create(model=model_id(ctx), messages=FRANCE, temperature=0, max_tokens=40)
    assert "Paris" in r.choices[0].message.content, r
    assert r.choices[0].message.role == "assistant"
    assert r.choices[0].finish_reason in ("stop", "length")
    assert r.object == "chat.completion" and r.id.startswith("chatcmpl-") and r.model == model_id(ctx)
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert 0 <= r.usage.prompt_tokens_details.cached_tokens < r.usage.prompt_tokens


def model_id(ctx):
    return ctx.server.request("GET", "/v1/models").json()["data"][0]["id"]


def test_stream_equals_answer(ctx):
    client = ctx.server.client()
    whole = client.chat.completions.create(model=model_id(ctx), messages=FRANCE, temperature=0, max_tokens=40)
    chunks = list(client.chat.completions.create(model=model_id(ctx), messages=FRANCE, temperature=0, max_tokens=40, stream=True))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(len(c.choices) == 1 for c in chunks), "a chunk without a choice, and nobody asked for usage"
    assert len({c.id for c in chunks}) == 1 and len({c.created for c in chunks}) == 1
    assert all(c.choices[0].delta.content != "" for c in chunks[1:])
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == [whole.choices[0].finish_reason]


def test_stream_include_usage(ctx):
    chunks = list(ctx.server.client().chat.completions.create(
        model=model_id(ctx), messages=FRANCE, temperature=0, max_tokens=8, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens >= 1
    assert all(c.usage is None for c in chunks[:-1])


def test_logprobs(ctx):
    r = ctx.server.client().chat.completions.create(
        model=model_id(ctx), messages=FRANCE, temperature=0, max_tokens=6, logprobs=True, top_logprobs=3)
    content = r.choices[0].logprobs.content
    assert len(content) == 6
    for entry in content:
        assert len(entry.top_logprobs) == 3 and entry.logprob <= 0
        best = [t.logprob for t in entry.top_logprobs]
        assert best == sorted(best, reverse=True)
        assert math.isclose(entry.logprob, best[0], abs_tol=1e-6), "greedy takes the best"
        assert sum(map(math.exp, best)) <= 1.0001
    assert b"".join(bytes(e.bytes) for e in content).decode(errors="replace") == r.choices[0].message.content


def test_stream_logprobs_equal_answer(ctx):
    client = ctx.server.client()
    ask = dict(model=model_id(ctx), messages=FRANCE, temperature=0, max_tokens=6, logprobs=True, top_logprobs=0)
    whole = [(e.token, e.logprob) for e in client.chat.completions.create(**ask).choices[0].logprobs.content]
    got = []
    for c in client.chat.completions.create(**ask, stream=True):
        if c.choices[0].logprobs:
            got += [(e.token, e.logprob) for e in c.choices[0].logprobs.content]
    assert got == whole


def test_stop_string_is_cut_across_tokens(ctx):
    client = ctx.server.client()
    ask = dict(model=model_id(ctx), messages=FRANCE, temperature=0, max_tokens=40)
    text = client.chat.completions.create(**ask).choices[0].message.content
    middle = len(text) // 2
    stop = text[middle - 3:middle + 2]
    for stream in (False, True):
        if stream:
            chunks = list(client.chat.completions.create(**ask, stop=[stop, "never there"], stream=True))
            got = "".join(c.choices[0].delta.content or "" for c in chunks)
            reason = chunks[-1].choices[0].finish_reason
        else:
            choice = client.chat.completions.create(**ask, stop=[stop, "never there"]).choices[0]
            got, reason = choice.message.content, choice.finish_reason
        assert got == text[:text.index(stop)], (stream, got)
        assert reason == "stop"


def test_max_tokens(ctx):
    for field in ("max_tokens", "max_completion_tokens"):
        r = ctx.server.client().chat.completions.create(model=model_id(ctx), messages=COUNT, temperature=0, **{field: 5})
        assert r.choices[0].finish_reason == "length" and r.usage.completion_tokens == 5


@harness.in_release
def test_n(ctx):
    r = ctx.server.client().chat.completions.create(
        model=model_id(ctx), messages=FRANCE, temperature=1.2, seed=1, max_tokens=24, n=3)
    assert [c.index for c in r.choices] == [0, 1, 2]
    assert len({c.message.content for c in r.choices}) > 1, "each choice has a random stream of its own"
    stream = ctx.server.client().chat.completions.create(
        model=model_id(ctx), messages=FRANCE, temperature=1.2, seed=1, max_tokens=24, n=3, stream=True)
    texts = ["", "", ""]
    for chunk in stream:
        texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
    assert texts == [c.message.content for c in r.choices]


@harness.in_release
def test_seed(ctx):
    def ask(seed):
        return ctx.server.client().chat.completions.create(
            model=model_id(ctx), messages=FRANCE, temperature=1.5, seed=seed, max_tokens=24).choices[0].message.content
    assert ask(7) == ask(7)
    assert len({ask(seed) for seed in range(5)}) > 1


@harness.in_release
def test_json_object(ctx):
    """A model without understanding still returns an object: whole, streamed, several choices, alone and with others; a truncated one is
    reported."""
    def ask(seed, **more):
        return ctx.server.client().chat.completions.create(
            model=model_id(ctx), messages=[{"role": "user", "content": "Tell me a story."}], seed=seed, temperature=1.2,
            response_format={"type": "json_object"}, **{"max_tokens": 60, **more})
    texts = []
    for seed in range(5 if ctx.has_time else 2):
        choice = ask(seed).choices[0]
        assert choice.message.content.startswith("{") and not choice.message.tool_calls, choice
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict), choice
        texts.append(choice.message.content)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda seed: ask(seed).choices[0].message.content, range(len(texts)))) == texts
    streamed = "".join(c.choices[0].delta.content or "" for c in ask(0, stream=True))
    assert streamed == texts[0]
    several = ask(0, n=3)
    assert several.choices[0].message.content == texts[0] and all(c.message.content.startswith("{") for c in several.choices)
    assert ask(1, max_tokens=1).choices[0].finish_reason == "length"
    assert ctx.server.idle()


class Part(pydantic.BaseModel):
    kind: typing.Literal["wheel", "door"]
    count: int


class Car(pydantic.BaseModel):
    """A car."""
    name: str
    parts: list[Part]
    owner: str | None = None
    is_new: bool


@harness.in_release
def test_json_schema(ctx):
    """The openai package's models parse, and schemas that cannot be enforced are rejected with their place."""
    for seed in range(5 if ctx.has_time else 2):
        r = ctx.server.client().chat.completions.create(
            model=model_id(ctx), messages=[{"role": "user", "content": "Describe a car."}], seed=seed, temperature=1.2, max_tokens=120,
            response_format={"type": "json_schema", "json_schema": {"name": "car", "schema": Car.model_json_schema(), "strict": True}})
        if r.choices[0].finish_reason == "stop":
            Car.model_validate_json(r.choices[0].message.content)
        else:
            assert r.choices[0].finish_reason == "length" and r.choices[0].message.content.startswith("{"), r
    short = {"type": "object", "properties": {"color": {"enum": ["red", "green"]}, "doors": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2}},
             "required": ["color", "doors"], "additionalProperties": False}
    before = ctx.server.metrics()
    for seed in range(3):
        r = ctx.server.post("/v1/chat/completions", {"messages": FRANCE, "seed": seed, "temperature": 1.5, "max_tokens": 200, "response_format":
                                                     {"type": "json_schema", "json_schema": {"name": "car", "schema": short}}})
        choice = r.json()["choices"][0]
        said = json.loads(choice["message"]["content"])
        assert choice["finish_reason"] == "stop" and set(said) == {"color", "doors"}, r.body
        assert said["color"] in ("red", "green") and len(said["doors"]) <= 2 and set(said["doors"]) <= {1, 2}, r.body
    after = ctx.server.metrics()
    for name, n in (("made", 1), ("reused", 2)):
        assert after[f"infcgi_grammars_{name}_total"] - before[f"infcgi_grammars_{name}_total"] == n, (name, before, after)
    n_masks, n_beside = (after[f"infcgi_masks_{name}"] - before[f"infcgi_masks_{name}"] for name in ("total", "beside_total"))
    assert n_masks >= 3 and 0 <= n_beside <= n_masks, (before, after)
    for schema, code, where in (({"type": "object", "properties": {"a": {"type": "string", "format": "idn-email"}}}, "invalid_json_schema", "/properties/a/format"),
                                ({"type": "array", "items": {"$ref": "#/none"}}, "invalid_json_schema", "/items/$ref"),
                                ({"type": "string", "minLength": 2, "maxLength": 1}, "invalid_grammar", "")):
        r = ctx.server.post("/v1/chat/completions", {"messages": FRANCE, "response_format":
                                                     {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}})
        assert r.status == 400 and r.error()["code"] == code, (r.status, r.body)
        assert r.error()["param"] == "response_format.json_schema.schema" + where, r.body
    assert ctx.server.idle()


SHAPES = [{"type": "function", "function": {"name": "draw", "description": "Draws a shape.", "parameters": {
              "type": "object", "properties": {"shape": {"enum": ["circle", "square"]}, "size": {"type": "integer", "minimum": 1, "maximum": 9}},
              "required": ["shape", "size"], "additionalProperties": False}}},
          {"type": "function", "function": {"name": "wipe"}}]


def check_calls(choice, names):
    """Checks that each call has one of the names and fits its schema."""
    assert choice.message.content is None and choice.finish_reason in ("tool_calls", "length"), choice
    for call in choice.message.tool_calls:
        said = json.loads(call.function.arguments)
        assert call.function.name in names and call.type == "function" and call.id, call
        if call.function.name == "draw":
            assert set(said) == {"shape", "size"} and said["shape"] in ("circle", "square") and 1 <= said["size"] <= 9, call
        else:
            assert said == {}, call


@harness.in_release
def test_calls_come_in_pieces(ctx):
    """Deltas of a call's arguments, whole and truncated by max_tokens at any token, equal those of an answer that is not streamed."""
    said = {"shape": "circle", "note": "a \"round\" one\nof caf\u00e9 size", "more": [1, {"deep": None}]}
    call = '<tool_call>\n{"name": "draw", "arguments": %s}\n</tool_call>' % json.dumps(said)
    s = ctx.scripted([{"say": "I draw.\n" + call + "\n" + call.replace("draw", "wipe")}])
    ask = {"model": s.request("GET", "/v1/models").json()["data"][0]["id"], "messages": FRANCE, "tools": SHAPES}
    client = s.client()
    most = client.chat.completions.create(**ask).usage.completion_tokens
    for n in (most, *range(6, most, 7)):
        whole = client.chat.completions.create(**ask, max_tokens=n).choices[0]
        deltas = [c.choices[0] for c in client.chat.completions.create(**ask, max_tokens=n, stream=True)]
        calls = {}
        for piece in (t for d in deltas for t in d.delta.tool_calls or []):
            name, pieces = calls.setdefault(piece.index, (piece.function.name, []))
            pieces.append(piece.function.arguments)
        assert "".join(d.delta.content or "" for d in deltas) == (whole.message.content or ""), (n, whole)
        assert [(name, "".join(pieces)) for name, pieces in calls.values()] == \
            [(t.function.name, t.function.arguments) for t in whole.message.tool_calls or []], (n, whole)
        assert deltas[-1].finish_reason == whole.finish_reason == ("length" if n < most else "tool_calls"), (n, whole)
        if n == most:
            assert [json.loads(t.function.arguments) for t in whole.message.tool_calls] == [said, said]
            assert [len(pieces) > 10 for _, pieces in calls.values()] == [True, True], calls
    half = s.post("/v1/messages", {**ask, "max_tokens": 30, "tools": [{"name": "draw", "input_schema": {"type": "object"}}]}).json()
    assert [b["type"] for b in half["content"]] == ["text", "tool_use"] and half["stop_reason"] == "max_tokens", half
    assert half["content"][1]["input"] == {"shape": "circle"}, half
    half = s.post("/v1/responses", {"model": ask["model"], "input": "x", "max_output_tokens": 30, "tools": [{"type": "function", "name": "draw"}]}).json()
    assert [i["status"] for i in half["output"]] == ["completed", "incomplete"] and half["status"] == "incomplete", half
    assert half["output"][1]["arguments"].startswith('{"shape": "circle", "note": "a'), half


@harness.in_release
def test_tool_choice(ctx):
    """A required call arrives with any model, and fits its schema; streamed too. The model's template does not support tools."""
    client, ask = ctx.server.client(), {"model": model_id(ctx), "messages": FRANCE, "tools": SHAPES, "max_tokens": 200, "temperature": 1.3}
    for choice, names in (("required", ("draw", "wipe")), ({"type": "function", "function": {"name": "draw"}}, ("draw",))):
        r = client.chat.completions.create(**ask, tool_choice=choice, parallel_tool_calls=False).choices[0]
        check_calls(r, names)
        assert len(r.message.tool_calls) == 1 and r.finish_reason == "tool_calls", r
    greedy = {**ask, "temperature": 0, "max_tokens": 400, "tool_choice": "required", "tools": SHAPES[1:]}
    one = client.chat.completions.create(**greedy).choices[0]   # one call unless the request allows more
    several = client.chat.completions.create(**greedy, parallel_tool_calls=True).choices[0]
    assert len(one.message.tool_calls) == 1 and one.finish_reason == "tool_calls", one
    assert len(several.message.tool_calls) > 1, several
    named = {**ask, "seed": 5, "tool_choice": {"type": "function", "function": {"name": "draw"}}}
    whole = client.chat.completions.create(**named).choices[0].message.tool_calls[0].function
    deltas = [t for c in client.chat.completions.create(**named, stream=True) for t in c.choices[0].delta.tool_calls or []]
    assert [d.function.name for d in deltas if d.function.name] == ["draw"] and {d.index for d in deltas} == {0}, deltas
    assert "".join(d.function.arguments or "" for d in deltas) == whole.arguments, (deltas, whole)
    whole = client.chat.completions.create(**named).usage.completion_tokens
    for n in (1, 2, 3, 6, whole - 1):  # truncated anywhere: an incomplete call or nothing, and never a part of its markup as text
        cut = client.chat.completions.create(**{**named, "max_tokens": n}).choices[0]
        assert not cut.message.content and cut.finish_reason == "length" and (n > 3 or not cut.message.tool_calls), (n, cut)
    streamed = [c.choices[0] for c in client.chat.completions.create(**{**named, "max_tokens": 2}, stream=True)]
    assert not any(c.delta.content or c.delta.tool_calls for c in streamed) and streamed[-1].finish_reason == "length", streamed
    strict = [{"type": "function", "function": {**SHAPES[0]["function"], "strict": True}}]
    r = client.chat.completions.create(**{**ask, "tools": strict, "max_tokens": 30}).choices[0]
    assert r.message.content or r.message.tool_calls, r
    bad = {"type": "function", "function": {"name": "bad", "parameters": {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?<=a)b"}}}}}
    for tools, choice, param in (([*SHAPES, bad], "required", "tools[2].function.parameters/properties/a/pattern"),
                                 (SHAPES, {"type": "function", "function": {"name": "x"}}, "tool_choice.function.name"), ([], "required", "tool_choice")):
        r = ctx.server.post("/v1/chat/completions", {"messages": FRANCE, "tools": tools, "tool_choice": choice})
        assert r.status == 400 and r.error()["param"] == param, (r.status, r.body)
    assert ctx.server.idle()


@harness.in_release
def test_grammar(ctx):
    """GBNF and patterns constrain chat and text completions, and an error in one is a 400 with its field."""
    import re
    gbnf = 'root ::= "<" item ("," item)* ">"\nitem ::= [a-c]{1,2} | "(" item ")"'
    for seed in range(3):
        shared = {"seed": seed, "temperature": 1.5, "max_tokens": 24}
        r = ctx.server.post("/v1/chat/completions", {"messages": FRANCE, "guided_regex": "(yes|no), \\d{2,3}", **shared}).json()
        assert re.fullmatch(r"(yes|no), \d{2,3}", r["choices"][0]["message"]["content"]), r
        r = ctx.server.post("/v1/completions", {"prompt": "Say:", "grammar": gbnf, **shared}).json()
        assert re.fullmatch(r"<[a-c(),]*>?" if r["choices"][0]["finish_reason"] == "length" else r"<[a-c(),]+>", r["choices"][0]["text"]), r
    for form in ({"structured_outputs": {"choice": ["red", "green"]}}, {"guided_choice": ["red", "green"]}, {"guided_regex": "red|green"},
                 {"guided_grammar": 'root ::= "red" | "green"'}, {"structured_outputs": {"grammar": 'start: "red" | COLOUR\nCOLOUR: /gre{2}n/'}}):
        assert ctx.server.post("/v1/chat/completions", {"messages": FRANCE, **form}).json()["choices"][0]["message"]["content"] in ("red", "green"), form
    for form in ({"json_schema": {"enum": [12, 13]}}, {"guided_json": '{"enum": [12, 13]}'}, {"structured_outputs": {"json": {"enum": [12, 13]}}}):
        assert ctx.server.post("/v1/completions", {"prompt": "Say:", **form}).json()["choices"][0]["text"] in ("12", "13"), form
    for more, param, code in (({"grammar": "root ::= x"}, "grammar", "invalid_grammar"), ({"guided_regex": "(?=a)"}, "guided_regex", "invalid_grammar"),
                              ({"grammar": "root ::= " + "(" * 200}, "grammar", "grammar_too_complex"),
                              ({"grammar": "root ::= [a]", "guided_regex": "a"}, "guided_regex", "invalid_value"),
                              ({"structured_outputs": {"json": {"type": "x"}}}, "structured_outputs.json/type", "invalid_json_schema")):
        r = ctx.server.post("/v1/chat/completions", {"messages": FRANCE, **more})
        assert r.status == 400 and (r.error()["param"], r.error()["code"]) == (param, code), r.body
    assert ctx.server.idle()


@harness.in_release
def test_null_equals_absent(ctx):
    nulls = dict.fromkeys(["temperature", "top_p", "n", "stop", "logit_bias", "stream", "stream_options", "max_tokens", "tools",
                           "response_format", "user", "logprobs", "top_logprobs", "presence_penalty"])
    body = {"messages": FRANCE, "seed": 3, "max_completion_tokens": 8}
    plain = ctx.server.post("/v1/chat/completions", body)
    with_nulls = ctx.server.post("/v1/chat/completions", {**body, **nulls})
    assert with_nulls.status == 200, with_nulls.body
    assert with_nulls.json()["choices"] == plain.json()["choices"]


def test_message_shapes(ctx):
    parts = [{"type": "text", "text": "Name the capital"}, {"type": "text", "text": " of France."}]
    r = ctx.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}], "temperature": 0, "max_tokens": 30})
    assert r.status == 200 and "Paris" in r.json()["choices"][0]["message"]["content"], r.body
    r = ctx.server.post("/v1/chat/completions", {"messages": [{"role": "developer", "content": "Be brief."}, *FRANCE], "max_tokens": 3})
    assert r.status == 200, r.body


@harness.in_release
def test_history_of_calls_as_the_openai_package_sends_it(ctx):
    call = {"id": "call_1", "type": "function", "function": {"name": "capital", "arguments": '{"of": "France"}'}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Paris"}
    tool = {"type": "function", "function": {"name": "capital", "parameters": {"type": "object", "properties": {}}}}
    client = ctx.server.client()
    answers = [client.chat.completions.create(model=model_id(ctx), messages=[*FRANCE, {"role": "assistant", "tool_calls": [call], **content},
                                                                             result], tools=[tool], temperature=0, max_tokens=8)
               for content in ({"content": None}, {}, {"content": ""})]
    assert len({(a.choices[0].message.content, a.usage.prompt_tokens) for a in answers}) == 1, answers


def test_logit_bias_bans(ctx):
    client = ctx.server.client()
    ask = dict(model=model_id(ctx), messages=FRANCE, temperature=0, max_tokens=1)
    first = client.chat.completions.create(**ask).choices[0].message.content
    ids = ctx.server.post("/tokenize", {"content": first}).json()["tokens"]
    other = client.chat.completions.create(**ask, logit_bias={str(ids[0]): -100}).choices[0].message.content
    assert other != first


def test_leaving_frees_pages(ctx):
    s = ctx.server
    assert s.idle(), s.metrics()
    for _ in range(3):
        before = s.cancelled()
        connection, response = s.stream("/v1/chat/completions", {"messages": COUNT, "max_tokens": 1500, "ignore_eos": True})
        assert response.status == 200
        response.fp.readline()
        assert harness.until(lambda: s.metrics()["infcgi_requests_running"] == 1), s.metrics()
        response.close()
        connection.close()
        assert s.idle(5) and s.cancelled() == before + 1, s.metrics()


def test_leaving_a_whole_answer_frees_pages(ctx):
    s = ctx.server
    assert s.idle(), s.metrics()
    import http.client
    import json
    connection = http.client.HTTPConnection("127.0.0.1", s.port)
    connection.request("POST", "/v1/chat/completions", json.dumps({"messages": COUNT, "max_tokens": 1500, "ignore_eos": True}),
                       {"Content-Type": "application/json"})
    assert harness.until(lambda: s.metrics()["infcgi_requests_running"] == 1), s.metrics()
    connection.close()
    assert s.idle(5), s.metrics()


@harness.in_long
def test_same_bytes_alone_and_among_others(ctx):
    s = ctx.server
    tokens = 12 if ctx.is_slow else 40
    asks = [{"messages": [{"role": "user", "content": f"Tell me {i + 2} things about {topic}."}], "temperature": 0.9, "seed": i,
             "max_tokens": tokens, "logprobs": True, "top_logprobs": 2}
            for i, topic in enumerate(["rivers", "Ärger", "日本", "code", "😀", "salt", "bees", "iron"] * 2)]

    def ask(body):
        r = s.post("/v1/chat/completions", body, timeout=280)
        assert r.status == 200, r.body
        return r.json()["choices"]
    alone = [ask(b) for b in asks]
    together = harness.at_once([lambda b=b: ask(b) for b in asks])
    for i, (a, b) in enumerate(zip(alone, together)):
        assert a == b, f"request {i} alone:\n{a}\namong others:\n{b}"


@harness.in_release
def test_cached_prefix_gives_the_same_bytes(ctx):
    long_prompt = "The quick brown fox jumps over the lazy dog. " * 30
    body = {"messages": [{"role": "user", "content": long_prompt + "How many animals?"}], "temperature": 0.8, "seed": 5, "max_tokens": 20,
            "logprobs": True}
    first, second = (ctx.server.post("/v1/chat/completions", body).json() for _ in range(2))
    assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 100, second["usage"]
    assert first["choices"] == second["choices"]


@harness.in_release
def test_a_last_message_is_gone_on_with(ctx):
    """In every API that can continue the assistant's message, the answer is only the new text."""
    s, model = ctx.server, model_id(ctx)
    turns = [*FRANCE, {"role": "assistant", "content": "The capital of France is"}]
    body = {"messages": turns, "temperature": 0, "max_tokens": 4}
    r = s.post("/v1/chat/completions", body).json()
    text = r["choices"][0]["message"]["content"]
    assert text.startswith(" Paris"), r
    vllm = {**body, "add_generation_prompt": False, "continue_final_message": True}
    assert s.post("/v1/chat/completions", vllm).json()["choices"][0]["message"]["content"] == text
    chunks = [c for c in harness.events(s.post("/v1/chat/completions", {**body, "stream": True}).body.splitlines()) if c]
    assert "".join(d["delta"].get("content") or "" for c in chunks for d in c["choices"]) == text, chunks
    formed = s.post("/v1/chat/completions", {**body, "guided_regex": " (Paris|Rome)"}).json()
    assert formed["choices"][0]["message"]["content"] == " Paris", formed
    r = s.post("/v1/messages", {**body, "model": model}).json()
    assert r["content"] == [{"type": "text", "citations": None, "text": text}], r
    r = s.post("/api/chat", {"model": model, "messages": turns, "stream": False, "options": {"temperature": 0, "num_predict": 4}}).json()
    assert r["message"]["content"] == text, r
    new = s.post("/v1/chat/completions", {**body, "add_generation_prompt": True}).json()
    assert new["choices"][0]["message"]["content"] != text and new["usage"]["prompt_tokens"] > 0, new
    r = s.post("/v1/messages", {"model": model, "max_tokens": 4, "messages": [*FRANCE, {"role": "assistant", "content": [
        {"type": "tool_use", "id": "x", "name": "f", "input": {}}]}]})
    assert r.status == 400 and "tool calls" in r.json()["error"]["message"], r.body
    items = [*FRANCE, {"role": "assistant", "content": [{"type": "output_text", "text": "The capital of France is"}]}]
    r = s.post("/v1/responses", {"model": model, "input": items, "temperature": 0, "max_output_tokens": 16}).json()
    assert not r["output"][0]["content"][0]["text"].startswith(" Paris"), r   # a separate item
