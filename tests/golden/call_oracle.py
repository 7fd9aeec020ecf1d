#!/usr/bin/python3
"""Calls of tools written by published chat templates and read back from the answers that they show.

    call_oracle.py CHAT_RENDER FOLDER [N]

Each template of the folder that shows tools writes a conversation with an answer of one call or two, N random ones (names, nested
arguments, quotes, Unicode, newlines); what stands after the prompt is the answer, which must read back the same: whole, byte by byte,
and in two pieces cut at every place. Byte by byte, arguments come in pieces, each of which goes on with JSON. Templates that write no answer after their prompt, or no calls, are named and passed over. The last line is
`N passed, N failed`.
"""
import json
import pathlib
import random
import sys

import chat_oracle

ENDS = ["<|im_end|>", "<|eot_id|>", "<|eom_id|>", "</s>", "<\uff5cend\u2581of\u2581sentence\uff5c>", "<|end_of_text|>", "<end_of_turn>", "<|call|>",
        "<turn|>", "[e~[", "<|return|>", "<|user|>", "<|observation|>", "<|endoftext|>", "<eos>", "<|eot|>", "<|END_OF_TURN_TOKEN|>", "<seed:eos>",
        "<SPECIAL_12>", "<|assistant_end|>"]
# Formats of calls that have no row: what they write stays text.
WITHOUT_ROW = {"Apriel-1.6-15b-Thinker-fixed", "CohereForAI-c4ai-command-r-plus-tool_use",
               "GigaChat3-10B-A1.8B", "GigaChat3.1-10B-A1.8B", "Kimi-K3", "MiniMax-M1", "MiniMax-M3",
               "Reka-Edge", "Spark2.5", "StepFun3.5-Flash", "fireworks-ai-llama-3-firefunction-v2",
               "meetkai-functionary-medium-v3.1", "meetkai-functionary-medium-v3.2", "llm-jp-llm-jp-4.1-8b-thinking", "muse-glimmer",
               "openbmb-MiniCPM5-1B", "tencent-Hy3", "unsloth-Apriel-1.5", "upstage-Solar-Open-100B", "Bielik-11B-v3.0-Instruct"}
WORDS = ["a", "Paris", 'say "hi"', "it's", "two\nlines", "caf\u00e9", "\u65e5\u672c", "{x}", "[1, 2]", "a, b=c", "5", "true", "\\n", "<b>", "", " x "]


# Rows of which no published template shows an answer with calls: a sign of the row, and how its models write them.
WRITTEN = {"generic": ("{{ messages }}", lambda calls: "\n".join("<tool_call>\n" + json.dumps(c) + "\n</tool_call>" for c in calls)),
           "granite3": ("<|tool_call|>", lambda calls: "<|tool_call|>" + json.dumps(calls, ensure_ascii=False)),
           "llama4": ("<|header_start|>", lambda calls: "[" + ", ".join(
               "%s(%s)" % (c["name"], ", ".join(f"{k}={v!r}" for k, v in c["arguments"].items())) for c in calls) + "]")}


def value(r, depth):
    kind = r.randrange(7 if depth > 0 else 5)
    if kind < 2:
        return r.choice(WORDS)
    if kind == 2:
        return r.choice([0, -3, 17, 2.5, 123456789])
    if kind == 3:
        return r.choice([True, False])
    if kind == 4:
        return None if depth == 2 else r.choice(WORDS)
    if kind == 5:
        return [value(r, depth - 1) for _ in range(r.randrange(3))]
    return {r.choice(["k", "key_2", "Key"]) + str(i): value(r, depth - 1) for i in range(r.randrange(3))}


TYPES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", list: "array", dict: "object"}


# Templates that write lists, objects, booleans and null as Python does: what their models write is not known.
PLAIN = {"ByteDance-Seed-OSS"}


def call(r, i, has_escapes, is_plain):
    """A call, and its tool."""
    arguments = {name: value(r, 2) for name in r.sample(["city", "unit_1", "n", "deep"], r.randrange(1, 4))}
    while is_plain and any(type(v) not in (str, int, float) for v in arguments.values()):
        arguments = {name: value(r, 0) for name in arguments}
    while not has_escapes and "\\\\" in json.dumps(arguments):  # a backslash, written as itself
        arguments = {name: value(r, 2) for name in arguments}
    name = r.choice(["get_weather", "f", "Run-2", "x_y_z"]) + str(i)
    tool = {"type": "function", "function": {"name": name, "description": "Does it.", "parameters": {
        "type": "object", "properties": {k: {"type": TYPES[type(v)], "description": "One."} for k, v in arguments.items()}, "required": sorted(arguments)}}}
    return {"id": f"callabc{i:02}", "type": "function", "function": {"name": name, "arguments": arguments}}, tool


def answer_of(env, source, calls, tools):
    """What the template shows of an assistant that makes the calls, behind the prompt; and whether that began to think."""
    asked = [{"role": "user", "content": "Please."}]
    for content, strings in ("", False), (None, False), ("", True):
        said = [{**c, "function": {**c["function"], "arguments": json.dumps(c["function"]["arguments"])}} if strings else c for c in calls]
        context = {"messages": asked, "tools": tools, "add_generation_prompt": True, "bos_token": "", "eos_token": ""}
        prompt, _ = chat_oracle.render_python(env, {"template": source, "context": context})
        whole, _ = chat_oracle.render_python(env, {"template": source, "context": {
            **context, "messages": asked + [{"role": "assistant", "content": content, "tool_calls": said}], "add_generation_prompt": False}})
        if prompt is None or whole is None:
            continue
        at = len(prompt)
        while at > 0 and not whole.startswith(prompt[:at]):
            at -= 1
        if at < len(prompt):  # it began something that the answer has not: back to where a mark or a line ended
            at = max(whole.rfind(c, 0, at) for c in ">]\n") + 1
        text = whole[at:]
        cuts = [text.find(e, 1) for e in ENDS if text.find(e, 1) > 0]
        text = text[:min(cuts)] if cuts else text
        if all(c["function"]["name"] in text for c in calls):
            return text, at == len(prompt) and prompt.rstrip().endswith("<think>")
    return None, False


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 20
    env = chat_oracle.environment()
    passed = failed = 0
    sources = [(path.stem, path.read_text(), None) for path in sorted(folder.glob("*.jinja"))]
    for stem, source, write in sources + [(name, *row) for name, row in WRITTEN.items()]:
        lines, wanted = [], []
        r = random.Random(stem)
        for _ in range(n):
            made = [call(r, i, not stem.startswith("LFM2"), stem in PLAIN) for i in range(r.choice([1, 1, 2]))]
            calls, tools = [c for c, _ in made], [t for _, t in made]
            text, thinks = answer_of(env, source, calls, tools) if write is None else (write([c["function"] for c in calls]), False)
            if text is None and len(made) == 2:  # some say one at a time
                calls, tools = calls[:1], tools[:1]
                text, thinks = answer_of(env, source, calls, tools)
            if text is None:
                continue
            for step in 1, len(text.encode()) + 1:
                lines.append(json.dumps({"template": source, "answer": text, "tools": tools, "step": step, "thinks": thinks}))
                wanted.append([(c["function"]["name"], c["function"]["arguments"]) for c in calls])
        if not lines or stem in WITHOUT_ROW:
            print(f"none {stem}: {'no calls behind its prompt' if not lines else 'a format without a row'}")
            continue
        done = chat_oracle.subprocess.run([program], input="\n".join(lines).encode(), capture_output=True)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        wrong = [(json.loads(line)["answer"], a, w) for line, a, w in zip(lines, answers, wanted)
                 if a.get("wrong", True) or [(name, json.loads(arguments)) for name, arguments in a["calls"]] != w]
        most = max((a.get("most", 0) for a in answers), default=0)
        if not wrong and most < 10:
            wrong = [("", f"{most} pieces of arguments at most", "")]
        if len(answers) != len(lines):
            most, wrong = 0, [("", done.stderr.decode(errors="replace")[-500:], "")] * len(lines)
        print(f"{'ok  ' if not wrong else 'FAIL'} {stem}: {answers[0].get('format') if answers else '-'}, {len(lines) - len(wrong)} of {len(lines)}, arguments in up to {most} pieces")
        for text, a, w in wrong[:2]:
            print(f"   {text!r}\n   gave {a}\n   for  {w}")
        passed += len(lines) - len(wrong)
        failed += len(wrong)
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


sys.exit(main())
