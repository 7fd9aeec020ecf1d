"""LangChain's standard tests of chat models (langchain_standard.py), for which the script has what they want to hear."""
import json
import os
import re
import subprocess

import harness

PYTHON = harness.ROOT / "build/clients/venv/bin/python"
JOKE = {"setup": "Why do cats purr?", "punchline": "They like it."}


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) + "\n</tool_call>"


def customer(name):
    return {"if": ["unicode_customer", name], "say": call("unicode_customer", customer_name=name, description="A company")}


RULES = [
    {"if": ["magic_function_no_args"], "say": call("magic_function_no_args")},
    {"if": ["magic_function", "<tool_response>"], "say": "It is so."},
    {"if": ["magic_function"], "say": call("magic_function", input=3)},
    {"if": ["greeting_generator"], "say": call("greeting_generator", answer_style="pirate")},
    customer("こんにちは株式会社"), customer("你好啊集团"),
    {"if": ["<tool_response>"], "say": "It is sunny."},
    {"if": ["get_weather"], "say": call("get_weather", location="San Francisco, CA")},
    *({"if": [f'"name": "{name}"'], "say": call(name, **JOKE)} for name in ("Joke", "JokeDict", "joke")),
    {"if": ["joke"], "say": json.dumps(JOKE)},
    {"say": "Hello, brother."},
]


def standard(ctx, name):
    s = ctx.scripted(RULES)
    model = s.request("GET", "/v1/models").json()["data"][0]["id"]
    options = [f"-o{option}" for option in ("asyncio_mode=auto", "asyncio_default_test_loop_scope=session",
                                            "asyncio_default_fixture_loop_scope=session")]
    run = subprocess.run([PYTHON, "-m", "pytest", "-q", "--tb=short", "-pno:cacheprovider", *options, "-k", name,
                          harness.ROOT / "tests/clients/langchain_standard.py"], env={**os.environ, "BASE": s.base, "MODEL": model},
                         capture_output=True, text=True, timeout=900)
    print(name, run.stdout.strip().splitlines()[-1])
    assert run.returncode == 0 and int(re.search(r"(\d+) passed", run.stdout)[1]) >= 30, run.stdout[-6000:]


def test_messages(ctx):
    standard(ctx, "TestMessages")


def test_chat(ctx):
    standard(ctx, "TestChat")


def test_responses(ctx):
    standard(ctx, "TestResponses")
