"""Claude Code mends a program over /v1/messages: the model says what a script has, the agent reads and edits the file."""
import json
import os
import pathlib
import subprocess
import tempfile

import harness

CLAUDE = harness.ROOT / "build/clients/node_modules/.bin/claude"
TASK = "Fix the bug in add.py"


def call(name, **arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


def agent(server, folder, home, *args):
    """Runs the agent to its end; its last words, as JSON."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("CLAUDE", "ANTHROPIC"))}
    model = server.request("GET", "/v1/models").json()["data"][0]["id"]
    env |= {"HOME": home, "ANTHROPIC_BASE_URL": server.base, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_MODEL": model,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
    run = subprocess.run([CLAUDE, "-p", TASK, "--allowedTools", "Read,Edit", "--output-format", "json", *args], cwd=folder, env=env,
                         stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert run.returncode in (0, 1) and run.stdout, (run.stdout, run.stderr)
    return json.loads(run.stdout)


def test_knows_that_a_prompt_is_too_long(ctx):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        s = ctx.scripted([{"say": "OK"}], "--threads", "2", "--ctx-size", "4096", "--kv-tokens", "4096")
        said = agent(s, folder, home)
        assert said["is_error"] and said["terminal_reason"] == "prompt_too_long" and "limit 4096" in said["result"], said


def test_reads_and_edits_a_file(ctx):
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as home:
        file = pathlib.Path(folder) / "add.py"
        file.write_text("def add(a, b):\n    return a - b\n")
        rules = [{"if": [TASK, "has been updated"], "say": "Mended: it adds now."},
                 {"if": [TASK, "return a - b"], "say": "It subtracts.\n" + call(
                     "Edit", file_path=str(file), old_string="return a - b", new_string="return a + b")},
                 {"if": [TASK], "say": "<think>\nRead it first.\n</think>\n\nI look.\n" + call("Read", file_path=str(file))},
                 {"say": "OK"}]
        s = ctx.scripted(rules, "--threads", "2", "--ctx-size", "65536", "--kv-tokens", "65536",
                         model=harness.with_context(ctx.model, 131072, pathlib.Path(home)))
        said = agent(s, folder, home)
        assert not said["is_error"] and said["result"] == "Mended: it adds now." and said["num_turns"] == 3, said
        assert file.read_text() == "def add(a, b):\n    return a + b\n"
        usage = said["usage"]   # of three prompts of which each goes on from the one before
        assert usage["cache_read_input_tokens"] > 1.8 * usage["input_tokens"] > 0, usage
