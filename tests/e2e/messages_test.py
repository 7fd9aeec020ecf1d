"""/v1/messages with the anthropic package: answers, streams, structured answers, tools, counting, errors."""
import anthropic
import pydantic

import harness

FRANCE = [{"role": "user", "content": "Name the capital of France."}]
TOOL = {"name": "get_weather", "description": "Weather of a city", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def client(server, **kw):
    return anthropic.Anthropic(base_url=server.base, api_key="none", max_retries=0, timeout=120, **kw)


def ask(ctx, **kw):
    """Parameters of most requests here; the package no longer has temperature."""
    model = ctx.server.request("GET", "/v1/models").json()["data"][0]["id"]
    return {"model": model, "messages": FRANCE, "max_tokens": 40, "extra_body": {"temperature": 0}, **kw}


def raises(kind, call):
    try:
        call()
    except kind as e:
        return e
    raise AssertionError(f"no {kind.__name__}")


def test_create(ctx):
    c = client(ctx.server, default_headers={"anthropic-beta": "fine-grained-tool-streaming-2025-05-14"})
    request = ask(ctx, system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
                  metadata={"user_id": "u"})
    m = c.messages.create(**request)
    assert m.type == "message" and m.role == "assistant" and m.id.startswith("msg_") and m.model == request["model"]
    assert len(m.content) == 1 and "Paris" in m.content[0].text, m
    assert m.stop_reason in ("end_turn", "max_tokens") and m.stop_sequence is None
    assert m.usage.output_tokens >= 1 and m._request_id
    again = c.messages.create(**request)
    assert again.content[0].text == m.content[0].text
    assert again.usage.cache_read_input_tokens + again.usage.input_tokens == m.usage.cache_read_input_tokens + m.usage.input_tokens
    counted = c.messages.count_tokens(model=request["model"], messages=request["messages"], system=request["system"])
    assert counted.input_tokens == m.usage.input_tokens + m.usage.cache_read_input_tokens


def test_stream_equals_answer(ctx):
    c = client(ctx.server)
    whole = c.messages.create(**ask(ctx))
    events = list(c.messages.create(**ask(ctx), stream=True))
    kinds = [e.type for e in events]
    assert kinds[:2] == ["message_start", "content_block_start"], kinds
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"], kinds
    assert set(kinds[2:-3]) == {"content_block_delta"} and len(kinds) > 7, kinds
    assert events[0].message.usage.input_tokens > 0
    with c.messages.stream(**ask(ctx)) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens == (
        whole.usage.input_tokens + whole.usage.cache_read_input_tokens)


def test_max_tokens_and_stop_sequences(ctx):
    c = client(ctx.server)
    m = c.messages.create(**ask(ctx, max_tokens=3))
    assert m.stop_reason == "max_tokens" and m.usage.output_tokens == 3
    text = c.messages.create(**ask(ctx)).content[0].text
    stop = text[5:9]
    for streams in (False, True):
        if streams:
            with c.messages.stream(**ask(ctx, stop_sequences=["never there", stop])) as stream:
                m = stream.get_final_message()
        else:
            m = c.messages.create(**ask(ctx, stop_sequences=["never there", stop]))
        assert (m.stop_reason, m.stop_sequence) == ("stop_sequence", stop), m
        assert m.content[0].text == text[:text.index(stop)]


def test_structured_answer(ctx):
    class City(pydantic.BaseModel):
        name: str
        is_capital: bool
    m = client(ctx.server).messages.parse(**ask(ctx, max_tokens=60), output_format=City)
    assert isinstance(m.parsed_output, City) or m.stop_reason == "max_tokens", m


@harness.in_release
def test_conversation_with_tools(ctx):
    """Calls and results of earlier turns go through the template."""
    c = client(ctx.server)
    turns = [*FRANCE, {"role": "assistant", "content": [
        {"type": "thinking", "thinking": "I look.", "signature": "x"}, {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Paris"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "Rain"}]},
                                     {"type": "text", "text": "And now?"}]}]
    m = c.messages.create(**ask(ctx, messages=turns, tools=[TOOL], tool_choice={"type": "auto"}, max_tokens=8))
    assert m.stop_reason in ("max_tokens", "end_turn", "tool_use"), m
    one = c.messages.count_tokens(model=m.model, messages=FRANCE).input_tokens
    assert c.messages.count_tokens(model=m.model, messages=turns).input_tokens > one + 10


@harness.in_release
def test_a_call_that_is_asked_for(ctx):
    """With any model: whole and streamed, and by an automatic call of the tool's name."""
    c = client(ctx.server)
    where = {"name": "where", "input_schema": {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"],
                                               "additionalProperties": False}}
    other = {"name": "count", "input_schema": {"type": "object", "properties": {"n": {"type": "integer", "maximum": 9}},
                                               "required": ["n"], "additionalProperties": False}}
    for choice, names in (({"type": "any"}, {"where", "count"}), ({"type": "tool", "name": "count"}, {"count"})):
        request = ask(ctx, tools=[where, other], tool_choice={**choice, "disable_parallel_tool_use": True}, max_tokens=60)
        m = c.messages.create(**request)
        with c.messages.stream(**request) as stream:
            streamed = stream.get_final_message()
        for answer in (m, streamed):
            assert answer.stop_reason == "tool_use" and [b.type for b in answer.content] == ["tool_use"], answer
            call = answer.content[0]
            assert call.name in names and isinstance(call.input, dict), call
            assert call.name != "count" or list(call.input) == ["n"] and call.input["n"] <= 9, call
        assert m.content[0].input == streamed.content[0].input
    assert c.messages.count_tokens(**{k: v for k, v in request.items() if k not in ("max_tokens", "extra_body")}).input_tokens > 20
    bad = {**other, "input_schema": {"type": "object", "properties": {"n": {"type": "number", "multipleOf": -1}}}}
    e = raises(anthropic.BadRequestError, lambda: c.messages.create(**{**request, "tools": [bad]}))
    assert "tools[0].input_schema" in e.body["error"]["message"], e.body


def test_agent_loop(ctx):
    """A model that thinks, calls two tools and answers after their results; whole and streamed."""
    call = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "%s"}}\n</tool_call>'
    s = ctx.scripted([{"if": ["RAIN"], "say": "Take an umbrella \u2602 to Paris."},
                      {"if": ["Paris or"], "say": "<think>\nI look it up.\n</think>\n\nA moment.\n" + call % "Paris" + "\n" + call % "\u041a\u0438\u0457\u0432"}])
    c = client(s)
    request = {"model": s.request("GET", "/v1/models").json()["data"][0]["id"], "max_tokens": 200, "tools": [TOOL],
               "system": [{"type": "text", "text": "Be helpful."}], "thinking": {"type": "enabled", "budget_tokens": 1024}}
    turns = [{"role": "user", "content": "Paris or Kyiv?"}]

    def whole():
        return c.messages.create(**request, messages=turns)

    def streamed():
        with c.messages.stream(**request, messages=turns) as stream:
            return stream.get_final_message()
    for ask in (whole, streamed):
        m = ask()
        assert [b.type for b in m.content] == ["thinking", "text", "tool_use", "tool_use"], m
        assert m.content[0].thinking == "I look it up." and m.content[0].signature, m
        assert m.content[1].text == "A moment." and m.stop_reason == "tool_use", m
        assert [b.input for b in m.content[2:]] == [{"city": "Paris"}, {"city": "\u041a\u0438\u0457\u0432"}], m
        assert m.content[2].id != m.content[3].id and {b.name for b in m.content[2:]} == {"get_weather"}, m
    turns += [{"role": "assistant", "content": m.content},
              {"role": "user", "content": [{"type": "tool_result", "tool_use_id": b.id, "content": "RAIN"} for b in m.content[2:]]}]
    for ask in (whole, streamed):
        m = ask()
        assert [b.text for b in m.content] == ["Take an umbrella \u2602 to Paris."] and m.stop_reason == "end_turn", m


def test_tool_runner(ctx):
    """It sends only new messages, until it is told to send all."""
    s = ctx.scripted([{"if": ["RAIN in Paris"], "say": "Rain."},
                      {"say": '<tool_call>\n{"name": "weather", "arguments": {"city": "Paris"}}\n</tool_call>'}])

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """Weather of a city."""
        return f"RAIN in {city}"
    model = s.request("GET", "/v1/models").json()["data"][0]["id"]
    for stream in (False, True):
        runner = client(s).beta.messages.tool_runner(model=model, max_tokens=60, messages=FRANCE, tools=[weather], stream=stream)
        final = runner.until_done()
        assert final.content[-1].text == "Rain.", final


def test_models(ctx):
    c = client(ctx.server)
    models = list(c.models.list())
    assert len(models) == 1 and models[0].type == "model" and models[0].display_name == models[0].id, models
    assert models[0].max_input_tokens == 2048, models
    assert c.models.retrieve(models[0].id) == models[0]
    raises(anthropic.NotFoundError, lambda: c.models.retrieve("other"))
    plain = ctx.server.request("GET", "/v1/models").json()
    assert "first_id" not in plain and "display_name" not in plain["data"][0], plain
    assert models[0].created_at.timestamp() == plain["data"][0]["created"]


def test_errors_are_the_clients_exceptions(ctx):
    c = client(ctx.server)
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    bad = [({"extra_body": {"temperature": 9}}, "temperature"), ({"messages": []}, "messages"), ({"max_tokens": -1}, "max_tokens"),
           ({"messages": [{"role": "user", "content": [image]}]}, "messages[0].content[0].type"),
           ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"), ({"stop_sequences": [""]}, "stop_sequences[0]"),
           ({"messages": [{"role": "user", "content": "x " * 5000}]}, "prompt is too long")]
    for fields, place in bad:
        e = raises(anthropic.BadRequestError, lambda: c.messages.create(**ask(ctx, **fields)))
        assert e.body["type"] == "error" and e.body["error"]["type"] == "invalid_request_error", e.body
        assert e.body["error"]["message"].startswith(place), e.body
        assert e.body["request_id"] == e.response.headers["request-id"]
    e = raises(anthropic.NotFoundError, lambda: c.messages.create(**ask(ctx, model="no-such-model")))
    assert e.body["error"]["type"] == "not_found_error"


def test_errors_of_nginx_have_the_same_form(ctx):
    for size, path, status, kind in ((5 << 20, "/v1/messages", 413, "request_too_large"),
                                     (5 << 20, "/v1/messages/count_tokens", 413, "request_too_large")):
        r = ctx.server.post(path, b" " * size, headers={"Content-Type": "application/json"})
        error = r.json()
        assert r.status == status and error["type"] == "error" and error["error"]["type"] == kind, r.body
        assert error["error"]["message"] == "The request body is too large.", error
        assert error["request_id"] == r.headers["X-Request-Id"] == r.headers["Request-Id"]
    r = ctx.server.post("/v1/messagesx", b" " * (5 << 20), headers={"Content-Type": "application/json"})
    assert r.error()["code"] == "request_too_large" and r.headers["Request-Id"] is None


@harness.in_release
def test_a_stream_that_breaks_off(ctx):
    s = ctx.start(*ctx.ARGS, program="infcgi_faulty", env={"INFCGI_FAULT": "out_of_memory@20"})
    model = s.request("GET", "/v1/models").json()["data"][0]["id"]
    events = client(s).messages.create(model=model, messages=FRANCE, max_tokens=200, stream=True, extra_body={"ignore_eos": True})
    seen = []
    e = raises(anthropic.APIStatusError, lambda: seen.extend(event.type for event in events))
    assert e.body["type"] == "error" and e.body["error"]["type"] == "api_error", e.body
    assert e.body["error"]["message"] and e.body["request_id"]
    assert seen[:2] == ["message_start", "content_block_start"] and seen[-1] == "content_block_delta", seen
