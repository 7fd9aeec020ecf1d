"""Thinking before an answer: before a constrained answer, and its budget."""
import json

import harness

QUESTION = [{"role": "user", "content": "Which colour?"}]
SCHEMA = {"type": "object", "properties": {"c": {"enum": ["red"]}}, "required": ["c"], "additionalProperties": False}
FORM = {"type": "json_schema", "json_schema": {"name": "colour", "schema": SCHEMA}}


def chat(s, **fields):
    """Returns a chat answer: its thinking, its content and the tokens of thinking; checks that streaming gives the same."""
    body = {"messages": QUESTION, "max_tokens": 100, "temperature": 0, **fields}
    r = s.post("/v1/chat/completions", body)
    assert r.status == 200, r.body
    answer = r.json()
    message = answer["choices"][0]["message"]
    said = {"reasoning_content": message.get("reasoning_content", ""), "content": message["content"]}
    streamed = {"reasoning_content": "", "content": ""}
    for event in harness.events(s.post("/v1/chat/completions", {**body, "stream": True}).body.splitlines()):
        for choice in event["choices"] if event else []:
            for name in streamed:
                streamed[name] += choice["delta"].get(name) or ""
    assert streamed == said, (streamed, said)
    return said["reasoning_content"], said["content"], answer["usage"]["completion_tokens_details"]["reasoning_tokens"]


def test_forms_hold_after_it(ctx):
    """A schema constrains only the content, and without thinking it is another grammar."""
    s = ctx.scripted([{"if": ["colour?"], "say": '<think>\nRed, {"c": 1}.\n</think>\n\n{"c": "red"}'},
                      {"say": "<think>\nHm.\n</think>\n\nBlue it is."}])
    other = [{"role": "user", "content": "Now?"}]
    off = {"chat_template_kwargs": {"enable_thinking": False}}
    for _ in range(2):   # the second time from the cache of grammars
        thought, said, n = chat(s, response_format=FORM)
        assert (thought, json.loads(said)) == ('Red, {"c": 1}.', {"c": "red"}) and n > 4, (thought, said, n)
        thought, said, n = chat(s, messages=other, guided_choice=["yes", "no"])
        assert thought == "Hm." and said in ("yes", "no") and n > 2, (thought, said, n)
        thought, said, n = chat(s, response_format=FORM, **off)
        assert thought == "" and json.loads(said) == {"c": "red"} and n == 0, (thought, said, n)
        thought, said, n = chat(s, response_format=FORM, reasoning_format="none")
        assert thought == "" and json.loads(said) == {"c": "red"} and n == 0, (thought, said, n)
    model = s.request("GET", "/v1/models").json()["data"][0]["id"]
    r = s.post("/v1/messages", {"model": model, "max_tokens": 100, "messages": QUESTION,
                                "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}})
    assert [b["type"] for b in r.json()["content"]] == ["thinking", "text"], r.body
    assert json.loads(r.json()["content"][1]["text"]) == {"c": "red"}, r.body
    r = s.post("/v1/responses", {"input": "Which colour?", "text": {"format": {"type": "json_schema", "name": "c", "schema": SCHEMA}}})
    assert [i["type"] for i in r.json()["output"]] == ["reasoning", "message"], r.body
    assert json.loads(r.json()["output"][1]["content"][0]["text"]) == {"c": "red"}, r.body


def test_budgets(ctx):
    """When the budget is spent, the end of thinking is forced, whatever the model says, and the answer continues; in every API."""
    s = ctx.scripted([{"behind": "</think>", "say": "\n\nRed."}, {"behind": ' {"', "say": 'c": "red"}'},
                      {"if": ["Who?"], "say": "Me."},
                      {"if": ["Tags?"], "say": "<think>\none <tool_call> two three four five six seven\n</think>\n\nBlue."},
                      {"say": "<think>\none two three four five six seven\n</think>\n\nBlue."}],
                     *ctx.ARGS, "--reasoning-budget", "2")
    whole = "one two three four five six seven"
    for fields, thought, said in (({"thinking_token_budget": 4}, "one two three", "Red."), ({"thinking_budget": 0}, "", "Red."),
                                  ({}, "one", "Red."), ({"reasoning_budget": -1}, "one", "Red."),
                                  ({"thinking_budget": 100}, whole, "Blue."),
                                  ({"reasoning_budget_tokens": 4, "reasoning_budget_message": " Enough."}, "one two three Enough.", "Red."),
                                  ({"messages": [{"role": "user", "content": "Who?"}]}, "", "Me.")):
        got = chat(s, **fields)
        assert got[:2] == (thought, said), (fields, got)
    tags = {"messages": [{"role": "user", "content": "Tags?"}], "thinking_budget": 4}
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    for fields in ({}, {"tools": [tool]}):   # the start of a tool call without a call is thinking
        thought, said, _ = chat(s, **tags, **fields)
        assert thought.startswith("one") and "seven" not in thought and said == "Red.", (thought, said)
    thought, said, _ = chat(s, thinking_budget=4, response_format=FORM)
    assert thought == "one two three" and json.loads(said) == {"c": "red"}, (thought, said)
    model = s.request("GET", "/v1/models").json()["data"][0]["id"]
    for thinking, expected in (({"type": "enabled", "budget_tokens": 4}, ["one two three", "Red."]), ({"type": "disabled"}, ["Red."]),
                               ({"type": "enabled", "budget_tokens": 1024}, [whole, "Blue."])):
        r = s.post("/v1/messages", {"model": model, "max_tokens": 100, "messages": QUESTION, "thinking": thinking}).json()
        assert [b.get("thinking") or b.get("text") for b in r["content"]] == expected, r
    r = s.post("/v1/responses", {"input": "Which colour?", "thinking_token_budget": 4}).json()
    assert [i["content"][0]["text"] for i in r["output"]] == ["one two three", "Red."], r

