"""Packages of npm: openai, @anthropic-ai/sdk, and the AI SDK over three APIs (javascript.mjs)."""
import json
import shutil
import subprocess

import harness

FOLDER = harness.ROOT / "build/clients"


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False) + "\n</tool_call>"


def test_packages(ctx):
    rules = [{"if": ["RAIN"], "say": "Take an umbrella ☂ to Paris."},
             {"if": ["Paris or"], "say": "A moment.\n" + call("get_weather", city="Paris") + "\n" + call("get_weather", city="Київ")},
             {"if": ["as JSON", '"json"'], "say": call("json", city="Paris")},   # a form that is asked for as a tool
             {"if": ["as JSON"], "say": '{"city": "Paris"}'},
             {"say": "Good day."}]
    s = ctx.scripted(rules)
    model = s.request("GET", "/v1/models").json()["data"][0]["id"]
    script = shutil.copy(harness.ROOT / "tests/clients/javascript.mjs", FOLDER)   # packages are found from where a script lies
    run = subprocess.run(["node", script, s.base, model], capture_output=True, text=True, timeout=120)
    print(run.stdout, end="")
    assert run.returncode == 0 and run.stdout.count("ok ") == 11, run.stdout + run.stderr + s.log()[-3000:]
