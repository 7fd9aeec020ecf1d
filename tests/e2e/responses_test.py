"""/v1/responses with the openai package: answers, streams, parse, tools, thinking, errors."""
import json
import re

import openai
import pydantic

import harness

FRANCE = "Name the capital of France."
WEATHER = {"type": "function", "name": "get_weather", "description": "Weather of a place", "strict": False,
           "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}}


def model_id(ctx):
    return ctx.server.request("GET", "/v1/models").json()["data"][0]["id"]


def ask(ctx, **more):
    return dict(model=model_id(ctx), input=FRANCE, temperature=0, max_output_tokens=40, **more)


def test_answer_and_stream_are_the_same(ctx):
    client = ctx.server.client()
    whole = client.responses.create(**ask(ctx, instructions="Answer briefly.", metadata={"a": "b"}))
    assert "Paris" in whole.output_text, whole
    assert whole.id.startswith("resp_") and whole.status in ("completed", "incomplete")
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens
    assert whole.metadata == {"a": "b"} and whole.instructions == "Answer briefly." and whole.temperature == 0
    with client.responses.stream(**ask(ctx, instructions="Answer briefly.")) as stream:
        events = list(stream)
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:4]] == ["response.created", "response.in_progress", "response.output_item.added",
                                            "response.content_part.added"]
    assert [e.type for e in events[-4:]] == ["response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", f"response.{whole.status}"]
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    assert events[-1].response.usage.output_tokens == whole.usage.output_tokens
    assert events[-1].response.usage.input_tokens_details.cached_tokens >= 0


def test_history_goes_back(ctx):
    """An answer can be sent back unchanged, followed by another question."""
    client = ctx.server.client()
    first = client.responses.create(**ask(ctx, store=False))
    items = [{"role": "user", "content": FRANCE}, *first.output, {"role": "user", "content": "Say that again."}]
    second = client.responses.create(model=model_id(ctx), input=items, temperature=0, max_output_tokens=20, store=False)
    assert second.usage.input_tokens > first.usage.input_tokens + 3 and second.output_text
    assert ctx.server.idle()


def test_parse(ctx):
    class City(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=20)
        is_capital: bool

    client = ctx.server.client()
    r = client.responses.parse(model=model_id(ctx), input=FRANCE, text_format=City, max_output_tokens=100, temperature=0)
    assert r.status == "completed" and isinstance(r.output_parsed, City), r
    r = client.responses.create(**ask(ctx, text={"format": {"type": "json_object"}}))
    assert r.output_text.startswith("{")


@harness.in_release
def test_tools_are_shown_and_results_taken(ctx):
    client = ctx.server.client()
    tools = [WEATHER, {"type": "web_search"}, {"type": "custom", "name": "apply_patch", "format": {
        "type": "grammar", "syntax": "lark", "definition": "start: \"*** Begin\" /.+/"}}]
    plain = client.responses.create(**ask(ctx))
    r = client.responses.create(**ask(ctx, tools=tools, tool_choice="auto", parallel_tool_calls=False))
    assert r.tools[0].name == "get_weather" and r.tools[1].type == "web_search" and r.tools[2].type == "custom"
    items = [{"role": "user", "content": "Weather in Paris?"},
             {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Ask."}]},
             {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": json.dumps({"place": "Paris"})},
             {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin x"},
             {"type": "function_call_output", "call_id": "c1", "output": "Sunny."},
             {"type": "custom_tool_call_output", "call_id": "c2", "output": "Done."}]
    r = client.responses.create(model=model_id(ctx), input=items, tools=tools, temperature=0, max_output_tokens=20)
    assert r.output_text and r.usage.input_tokens > plain.usage.input_tokens
    assert client.responses.input_tokens.count(model=model_id(ctx), input=items, tools=tools).input_tokens == r.usage.input_tokens


@harness.in_release
def test_a_custom_tool_is_called_when_it_must_be(ctx):
    """Also by a model without tools, with input of its pattern."""
    client = ctx.server.client()
    letters = {"type": "custom", "name": "letters", "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]{3,5}"}}
    fields = dict(tools=[letters], tool_choice={"type": "custom", "name": "letters"})
    with client.responses.stream(**ask(ctx, **fields)) as stream:
        answer = list(stream)[-1].response
    assert answer.status == "completed" and answer.output[0].name == "letters", answer
    assert re.fullmatch("[a-z]{3,5}", answer.output[0].input), answer
    assert client.responses.create(**ask(ctx, **fields)).output[0].input == answer.output[0].input
    patch = {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition":
             'start: "*** Begin" LF line~1..2 "*** End"\nline: ("+" | "-") /[a-z"]{1,4}/ LF\n%import common.LF\n'}}
    ends = {**ask(ctx, tools=[patch], tool_choice={"type": "custom", "name": "patch"}), "max_output_tokens": 300}
    called = client.responses.create(**ends).output[0]
    assert re.fullmatch('\\*\\*\\* Begin\n([+-][a-z"]{1,4}\n){1,2}\\*\\*\\* End', called.input), called
    patch["format"]["definition"] = "start: x"
    r = ctx.server.post("/v1/responses", {"input": FRANCE, "tools": [patch], "tool_choice": "required"})
    assert r.status == 400 and r.error()["param"] == "tools[0].format.definition", r.body


def test_a_conversation_goes_on(ctx):
    """Kept data: answers by id, their input in pages, conversations over previous_response_id and references."""
    client = ctx.server.client()
    first = client.responses.create(**ask(ctx))
    assert client.responses.retrieve(first.id) == first
    second = client.responses.create(**{**ask(ctx), "input": "Say that again."}, previous_response_id=first.id)
    assert second.previous_response_id == first.id and second.usage.input_tokens > first.usage.input_tokens
    items = [{"role": "user", "content": FRANCE}, {"type": "item_reference", "id": first.output[0].id},
             {"role": "user", "content": "Say that again."}]
    assert client.responses.create(**{**ask(ctx), "input": items, "store": False}).output_text == second.output_text
    with client.responses.stream(**{**ask(ctx), "input": "And again."}, previous_response_id=second.id) as stream:
        third = list(stream)[-1].response
    listed = list(client.responses.input_items.list(third.id, order="asc", limit=2))
    assert [i.role for i in listed] == ["user", "assistant", "user", "assistant", "user"]
    assert listed[1].content[0].text == first.output_text
    client.responses.delete(second.id)   # the third keeps its text
    assert [i.id for i in client.responses.input_items.list(third.id, order="asc")] == [i.id for i in listed]
    for call in (lambda: client.responses.retrieve(second.id), lambda: client.responses.cancel("resp_0"),
                 lambda: client.responses.create(**ask(ctx), previous_response_id=second.id)):
        try:
            call()
        except openai.NotFoundError as e:
            assert e.body["code"] == "response_not_found"
        else:
            raise AssertionError("found")


def test_calls_of_a_script(ctx):
    """A model that calls tools, plain and custom, whole and streamed, and its answers to their results."""
    def call(name, **arguments):
        return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"
    patch = "*** Begin Patch\n+\"x\"\n*** End Patch"
    s = ctx.scripted([{"if": ["Sunny."], "say": "It is sunny."},
                      {"say": "<think>\nAsk.\n</think>\n\nI look.\n" + call("get_weather", place="Paris") + "\n" +
                       call("apply_patch", input=patch)}])
    client = s.client()
    model = s.request("GET", "/v1/models").json()["models"][0]["slug"]
    question = {"role": "user", "content": "Weather in Paris?"}
    fields = dict(model=model, tools=[WEATHER, {"type": "custom", "name": "apply_patch"}], store=False)
    r = client.responses.create(input=[question], **fields)
    with client.responses.stream(input=[question], **fields) as stream:
        streamed = stream.get_final_response()
    for answer in (r, streamed):
        thought, said, weather, custom = answer.output
        assert (thought.type, thought.content[0].text, said.content[0].text) == ("reasoning", "Ask.", "I look.")
        assert (weather.type, weather.name, json.loads(weather.arguments)) == ("function_call", "get_weather", {"place": "Paris"})
        assert (custom.type, custom.name, custom.input) == ("custom_tool_call", "apply_patch", patch)
        assert answer.status == "completed" and answer.usage.output_tokens_details.reasoning_tokens > 0
    results = [{"type": "function_call_output", "call_id": r.output[2].call_id, "output": "Sunny."},
               {"type": "custom_tool_call_output", "call_id": r.output[3].call_id, "output": "Done."}]
    assert client.responses.create(input=[question, *r.output, *results], **fields).output_text == "It is sunny."


def test_errors_name_the_place(ctx):
    client = ctx.server.client()

    def refused(**fields):
        try:
            client.responses.create(**{**ask(ctx), **fields})
        except openai.APIStatusError as e:
            return e.status_code, e.body["code"], e.body["param"]
        raise AssertionError("not refused")
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]
    assert refused(input=image) == (400, "invalid_value", "input[0].content[0].type")
    assert refused(model="other") == (404, "model_not_found", "model")
    assert refused(previous_response_id="resp_0") == (404, "response_not_found", "previous_response_id")
    assert refused(conversation="conv_1") == (400, "unsupported_parameter", "conversation")
    assert refused(tools=[{"type": "file_search", "vector_store_ids": []}]) == (400, "unsupported_parameter", "tools[0].type")
    ahead = {"type": "custom", "name": "p", "format": {"type": "grammar", "syntax": "regex", "definition": "(?<=a)b"}}
    assert refused(tools=[{"type": "web_search"}, ahead], tool_choice="required")[0::2] == (400, "tools[1].format.definition")
    assert refused(tools=[{**WEATHER, "name": "no name"}]) == (400, "invalid_value", "tools[0].name")


def test_what_is_too_long_fails_in_a_stream(ctx):
    """Codex shortens its conversation if a stream reports it."""
    client = ctx.server.client()
    events = list(client.responses.create(model=model_id(ctx), input="word " * 9000, stream=True))
    assert [e.type for e in events] == ["response.created", "response.in_progress", "response.failed"]
    assert events[-1].response.error.code == "context_length_exceeded"
    assert ctx.server.idle()
