"""The OpenAI Agents SDK over /v1/responses and /v1/chat/completions (agents_run.py)."""
import subprocess

import harness
from javascript_test import call

PYTHON = harness.ROOT / "build/clients/venv/bin/python"


def test_runs(ctx):
    rules = [{"if": ["RAIN"], "say": "Take an umbrella ☂ to Paris."},
             {"if": ["Paris or"], "say": "A moment.\n" + call("get_weather", city="Paris") + "\n" + call("get_weather", city="Київ")},
             {"if": ["Bonjour", "<tool_response>"], "say": "Bonjour."},
             {"if": ["Bonjour"], "say": call("transfer_to_french")},
             {"if": ["as JSON"], "say": '{"city": "Paris"}'},
             {"say": "Good day."}]
    s = ctx.scripted(rules)
    model = s.request("GET", "/v1/models").json()["data"][0]["id"]
    run = subprocess.run([PYTHON, harness.ROOT / "tests/clients/agents_run.py", s.base, model], capture_output=True, text=True, timeout=200)
    print(run.stdout, end="")
    assert run.returncode == 0 and run.stdout.count("ok ") == 8, run.stdout + run.stderr[-6000:] + s.log()[-3000:]
