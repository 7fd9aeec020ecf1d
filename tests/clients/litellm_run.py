"""What litellm_test.py runs: litellm_run.py generation|embeddings|rerank BASE MODEL. A line for each test; ends with 1 when one fails."""
import asyncio
import json
import sys
import traceback

import litellm
import pydantic

WHAT, BASE, MODEL = sys.argv[1:]
OPENAI = {"model": f"openai/{MODEL}", "api_base": f"{BASE}/v1", "api_key": "none", "max_retries": 0}
HOSTED = {**OPENAI, "model": f"hosted_vllm/{MODEL}"}
ANTHROPIC = {"model": f"anthropic/{MODEL}", "api_base": BASE, "api_key": "none", "max_retries": 0}
OLLAMA = {"model": f"ollama_chat/{MODEL}", "api_base": BASE}
ANSWER = "Take an umbrella ☂ to Paris."
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"], "additionalProperties": False}}}

litellm.suppress_debug_info = True


class City(pydantic.BaseModel):
    city: str


def user(text):
    return [{"role": "user", "content": text}]


def chat(to):
    r = litellm.completion(**to, messages=user("Hello"), max_tokens=50)
    message = r.choices[0].message
    assert message.content == "Good day." and r.choices[0].finish_reason == "stop", r
    assert to is OLLAMA or message.reasoning_content.strip() == "Hm", r
    assert r.usage.prompt_tokens > 0 < r.usage.completion_tokens, r


def stream(to):
    chunks = list(litellm.completion(**to, messages=user("Hello"), max_tokens=50, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Good day.", chunks
    whole = litellm.stream_chunk_builder(chunks)
    assert whole.choices[0].message.content == "Good day." and whole.usage.total_tokens > 0, whole


def tools(to):
    messages = user("Paris or Kyiv?")
    first = litellm.completion(**to, messages=messages, tools=[WEATHER], max_tokens=300).choices[0]
    calls = first.message.tool_calls
    assert [json.loads(c.function.arguments) for c in calls] == [{"city": "Paris"}, {"city": "Київ"}], calls
    assert first.finish_reason == "tool_calls", first
    messages += [first.message.model_dump()] + [{"role": "tool", "tool_call_id": c.id, "content": "RAIN"} for c in calls]
    last = litellm.completion(**to, messages=messages, tools=[WEATHER], max_tokens=300)
    assert last.choices[0].message.content == ANSWER, last


def schema(to):
    r = litellm.completion(**to, messages=user("Where, as JSON?"), response_format=City, max_tokens=100)
    assert City.model_validate_json(r.choices[0].message.content).city == "Paris", r


def responses():
    r = litellm.responses(**OPENAI, input="Hello", max_output_tokens=50)
    assert r.output[-1].content[0].text == "Good day." and r.usage.total_tokens > 0, r
    kinds = [e.type for e in litellm.responses(**OPENAI, input="Hello", stream=True)]
    assert "response.output_text.delta" in kinds and kinds[-1] == "response.completed", kinds


def anthropic_messages():
    """Its own endpoint of that form, as its proxy has it for Claude Code."""
    r = asyncio.run(litellm.anthropic_messages(**ANTHROPIC, messages=user("Hello"), max_tokens=50))
    assert r["content"][-1]["text"] == "Good day." and r["stop_reason"] == "end_turn", r


def errors():
    for more, kind in (({"model": "openai/other"}, litellm.NotFoundError), ({"temperature": 9}, litellm.BadRequestError)):
        try:
            litellm.completion(**{**OPENAI, **more}, messages=user("Hello"))
        except kind:
            continue
        raise AssertionError(f"{more} was taken")


def embedding(to, **more):
    r = litellm.embedding(**to, input=["a cat", "a dog"], **more)
    assert [d["index"] for d in r.data] == [0, 1] and len(r.data[1]["embedding"]) == 48 and r.usage.prompt_tokens > 0, r


def rerank(provider):
    r = litellm.rerank(model=f"{provider}/{MODEL}", api_base=f"{BASE}/v1/rerank" if provider == "jina_ai" else BASE, api_key="none",
                       query="which", documents=["a text", "another", "a third"], top_n=2)
    scores = [x["relevance_score"] for x in r.results]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True), r


def tests():
    if WHAT == "embeddings":
        yield "openai", lambda: embedding(OPENAI, encoding_format="float")
        yield "hosted_vllm", lambda: embedding(HOSTED)
    elif WHAT == "rerank":
        for provider in "hosted_vllm", "jina_ai":
            yield provider, lambda: rerank(provider)
    else:
        for name, to in (("openai", OPENAI), ("anthropic", ANTHROPIC), ("ollama", OLLAMA)):
            for test in (chat, stream, tools, schema)[:4 if to is not OLLAMA else 3]:
                yield f"{name} {test.__name__}", lambda: test(to)
        for test in responses, anthropic_messages, errors:
            yield test.__name__, test


failed = False
for title, check in tests():
    try:
        check()
        print(f"ok   {WHAT} {title}")
    except Exception:  # noqa: BLE001 each is told
        failed = True
        print(f"FAIL {WHAT} {title}\n{traceback.format_exc()[-3000:]}")
sys.exit(failed)
