"""A matrix of conversations for whole templates, as transformers' apply_chat_template passes them: each axis below is one
thing that templates look at. conversations() gives rows in which every combination of three axes' values occurs;
everything=True gives the whole product."""
import itertools

from chat_cases import NOOP, TOKENS, WEATHER, assistant, call, tool, user

# transformers puts this after the last message's text, renders, and cuts the text where it stands.
CONTINUE = "CONTINUE_FINAL_MESSAGE_TAG "

AXES = {
    "system": ["none", "text", "empty", "developer"],
    "talk": ["question", "turns", "call", "call pending", "call answered", "calls", "calls answered", "two rounds"],
    "arguments": ["object", "text", "none"],
    "said with a call": ["empty", "null", "absent", "text"],
    "content": ["text", "typed"],
    "tools": ["none", "one", "two", "empty"],
    "end": ["no prompt", "prompt", "continue"],
    "thinking": ["unset", "on", "off"],
    "reasoning": ["none", "field", "in text"],
}
CALLS = ("call", "call pending", "call answered", "calls", "calls answered", "two rounds")


def shape(row, text):
    return [{"type": "text", "text": text}] if row["content"] == "typed" else text


def arguments(row, values):
    if row["arguments"] == "none":
        return {}
    if row["arguments"] == "object":
        return values
    return "{" + ", ".join(f'"{k}": "{v}"' for k, v in values.items()) + "}"


def reply(row, text):
    if row["reasoning"] == "in text":
        return assistant(shape(row, f"<think>\nbecause\n</think>\n\n{text}"))
    more = {"reasoning_content": "because\n", "thinking": "because\n"} if row["reasoning"] == "field" else {}
    return assistant(shape(row, text), **more)


def calling(row, calls):
    message = {**reply(row, "I ask."), "tool_calls": calls}
    if row["said with a call"] == "absent":
        del message["content"]
    elif row["said with a call"] != "text":
        message["content"] = "" if row["said with a call"] == "empty" else None
    return message


def messages(row):
    talk = row["talk"]
    out = {"none": [], "text": [{"role": "system", "content": shape(row, " Be brief.\n")}],
           "empty": [{"role": "system", "content": ""}], "developer": [{"role": "developer", "content": shape(row, "Dev.")}]
           }[row["system"]]
    out = out + [user(shape(row, "Wie ist das Wetter in Zürich? <|im_end|> 日本\n"))]
    one = call("get_weather", arguments(row, {"city": "Zürich", "unit": "celsius"}), "callaaaa1")
    two = call("noop", {} if row["arguments"] != "text" else "{}", "callaaaa2")
    if talk == "turns":
        out += [reply(row, " Cold. "), user(shape(row, "And \"tomorrow\"?"))]
    if talk in CALLS:
        both = talk.startswith("calls")
        out += [calling(row, [one, two] if both else [one])]
        if talk != "call pending":
            out += [tool(shape(row, "{\"temp\": 21.5}"), "callaaaa1", name="get_weather")]
            out += [tool(shape(row, "ok"), "callaaaa2", name="noop")] if both else []
        if "answered" in talk or talk == "two rounds":
            out += [reply(row, "21 degrees."), user(shape(row, "Thanks, & now?"))]
        if talk == "two rounds":
            out += [calling(row, [two]), tool(shape(row, "done"), "callaaaa2", name="noop")]
    if row["end"] == "continue":
        out += [reply(row, "To be")]
        last = out[-1]
        if row["content"] == "typed":
            last["content"][-1]["text"] += CONTINUE
        else:
            last["content"] += CONTINUE
    return out


def context(row):
    tools = {"none": None, "one": [WEATHER], "two": [WEATHER, NOOP], "empty": []}[row["tools"]]
    thinking = {"unset": {}, "on": {"enable_thinking": True, "thinking": True}, "off": {"enable_thinking": False,
                                                                                       "thinking": False}}
    return {"messages": messages(row), "tools": tools, "documents": None, "add_generation_prompt": row["end"] == "prompt",
            **TOKENS, **thinking[row["thinking"]]}


def is_plain(row):
    """Whether the axes that say nothing without a call are at their first value."""
    return row["talk"] in CALLS or (row["arguments"] == "object" and row["said with a call"] == "empty")


def rows(everything):
    names = list(AXES)
    product = (dict(zip(names, values)) for values in itertools.product(*AXES.values()))
    if everything:
        return [row for row in product if is_plain(row)]
    triples = list(itertools.combinations(names, 3))

    def parts(row):
        return {(t, tuple(row[n] for n in t)) for t in triples}

    missing = set().union(*({(t, v) for v in itertools.product(*(AXES[n] for n in t))} for t in triples))
    chosen = []
    while missing:
        axes, values = min(missing)
        row = dict(zip(axes, values))
        for name in names:  # the value that brings the most triples with what stands already
            if name not in row:
                def gain(value):
                    have = {**row, name: value}
                    return sum((t, tuple(have[n] for n in t)) in missing for t in triples if name in t and have.keys() >= set(t))
                row[name] = max(AXES[name], key=gain)
        chosen.append(row)
        missing -= parts(row)
    return chosen


def conversations(name, template, chosen):
    for row in chosen:
        yield {"group": name, "name": ", ".join(f"{k} {v}" for k, v in row.items()), "template": template,
               "whole": True, "context": context(row)}
