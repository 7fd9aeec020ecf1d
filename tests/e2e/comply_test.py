"""llm-comply compares answers with the documents of three APIs; the model answers from a script. All tests pass except images, which a
text model rejects (media_test)."""
import json
import subprocess

import harness

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"location": "Paris"}}\n</tool_call>'
THOUGHT = "<think>\nHm\n</think>\n\nHello."


def comply(ctx, form, model, says, *options):
    """Runs all of its tests, some of which apply to models of certain names; returns the ids of those that fail."""
    s = ctx.scripted([{"if": ["eather"], "say": CALL}, {"say": says}], *ctx.ARGS, "--alias", model, "--strict-api")
    run = subprocess.run([harness.ROOT / "build/venv/bin/llm-comply", "--format", form, "-u", f"{s.base}/v1", "-k", "none", "-m", model,
                          "--json", *options], capture_output=True, text=True, timeout=120)
    results = json.loads(run.stdout)["results"]
    for r in results:
        if r["status"] != "passed":
            print(form, r["id"], r["status"], r.get("errors"))
    assert len(results) >= 9 and not any(r["status"] == "skipped" for r in results), results
    return {r["id"] for r in results if r["status"] != "passed"}


def test_chat(ctx):
    assert comply(ctx, "openai-chat", "gpt-5", THOUGHT) == {"chat-image-input"}


def test_responses(ctx):
    """Its document does not yet have the text of thinking."""
    assert comply(ctx, "open-responses", "gpt-5", "Hello.") == {"image-input"}


def test_messages(ctx):
    failed = comply(ctx, "anthropic", "claude-opus-4-6", THOUGHT, "--auth-header", "x-api-key", "--no-bearer")
    assert failed == {"anth-image-input"}, failed
