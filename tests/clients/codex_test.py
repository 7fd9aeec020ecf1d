"""Codex mends a program over /v1/responses: the model says what a script has, the agent runs commands and patches the file."""
import json
import os
import pathlib
import subprocess
import tempfile

import harness

CODEX = harness.ROOT / "build/clients/node_modules/.bin/codex"
TASK = "Fix the bug in add.py"
PATCH = "*** Begin Patch\n*** Update File: add.py\n@@\n-    return a - b\n+    return a + b\n*** End Patch"


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def agent(server, folder, home):
    """Runs the agent to its end; its events."""
    listed = server.request("GET", "/v1/models").json()
    model = listed["data"][0]["id"]
    (pathlib.Path(home) / "infcgi.json").write_text(json.dumps(listed))   # it asks for the list itself only where it is signed in at OpenAI
    (pathlib.Path(home) / "config.toml").write_text(
        f'model = "{model}"\nmodel_provider = "infcgi"\nmodel_catalog_json = "infcgi.json"\n[model_providers.infcgi]\nname = "infcgi"\n'
        f'base_url = "{server.base}/v1"\nwire_api = "responses"\nrequest_max_retries = 0\nstream_max_retries = 0\n')
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CODEX", "OPENAI"))}
    env |= {"HOME": home, "CODEX_HOME": home}
    run = subprocess.run([CODEX, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", TASK],
                         cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, (run.stdout, run.stderr)
    assert "failed to" not in run.stderr, run.stderr
    assert "metadata" not in run.stdout, run.stdout
    return [json.loads(line) for line in run.stdout.splitlines()]


def test_reads_and_patches_a_file(ctx):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        file = pathlib.Path(folder) / "add.py"
        file.write_text("def add(a, b):\n    return a - b\n")
        rules = [{"if": ["unsupported call"], "say": "There is no such tool."},
                 {"if": [TASK, "return a - b", "Success"], "say": "Mended: it adds now."},
                 {"if": [TASK, "return a - b"], "say": "It subtracts.\n" + call("apply_patch", input=PATCH)},
                 {"if": [TASK], "say": "<think>\nRead it first.\n</think>\n\nI look.\n" + call("exec_command", cmd="cat add.py")},
                 {"say": "OK"}]
        s = ctx.scripted(rules, "--threads", "2", "--ctx-size", "65536", "--kv-tokens", "65536",
                         model=harness.with_context(ctx.model, 131072, pathlib.Path(home)))
        events = agent(s, folder, home)
        assert file.read_text() == "def add(a, b):\n    return a + b\n", events
        said = [e["item"]["text"] for e in events if e["type"] == "item.completed" and e["item"]["type"] == "agent_message"]
        assert said[-1] == "Mended: it adds now.", events
        usage = events[-1]["usage"]
        assert usage["cached_input_tokens"] > usage["input_tokens"] / 2 > 0, usage
