#!/usr/bin/python3
"""Renders the same chat templates with Python's jinja2 and with infcgi's interpreter and compares byte for byte.

    chat_oracle.py CHAT_RENDER [--templates FOLDER] [--matrix all] [--seed N] [--fuzz N] [-v]

jinja2 is set up as Hugging Face transformers does it (utils/chat_template_utils.py): sandboxed, trim_blocks,
lstrip_blocks, loopcontrols, {% generation %}, tojson without HTML escapes, raise_exception, strftime_now. Where one side
fails the other must fail too, and with the same words where the template raised them. --templates adds the *.jinja files
of a folder, each over the conversations of chat_cases.py and the matrix of chat_matrix.py, and compares named formats with
the published templates among them. The last line is `N passed, N failed`.
"""
import argparse
import datetime
import functools
import json
import pathlib
import re
import subprocess
import sys
import unicodedata
import warnings

import jinja2
import jinja2.ext
import jinja2.sandbox
import markupsafe

import chat_cases
import chat_fuzz
import chat_matrix
import chat_named

NOW = 1767323045  # Fri Jan  2 03:04:05 2026 UTC: each field of strftime differs from the others

UNICODE = "14.0.0"  # of the interpreter's tables (engine/jinja/jinja_unicode.c); utf8proc knows all its characters

# What infcgi documents as its own limit (docs/internals/chat_template.md); such a failure is no difference.
OWN_LIMITS = re.compile(r"does not fit in 64 bits|takes more than \d+ steps|nested more than \d+ levels|bytes of memory"
                        r"|longer than \d+|are not supported|not a finite number|object cannot be sliced")
BATCH = 5000  # cases sent to the program at once

# What Python prints as the address of an object, which nobody can compare.
ADDRESS = re.compile(r" at 0x[0-9a-f]+>")


class Generation(jinja2.ext.Extension):
    """{% generation %}...{% endgeneration %}: a scope of its own, otherwise transparent."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    @jinja2.pass_eval_context
    def _support(self, context, caller):
        return caller()


class Raised(jinja2.exceptions.TemplateError):
    """What raise_exception throws; transformers throws TemplateError itself."""


def raise_exception(message):
    raise Raised(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def strftime_now(form):
    return datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc).replace(tzinfo=None).strftime(form)


class Namespace(jinja2.utils.Namespace):
    """transformers refuses attributes with an underscore in front."""

    def __setitem__(self, name, value):
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(name)
        super().__setitem__(name, value)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals.update(raise_exception=raise_exception, strftime_now=strftime_now, namespace=Namespace)
    return env


@functools.lru_cache(16)
def compiled(env, source):
    return env.from_string(source)


def render_python(env, case):
    """The text, or None and the exception; jinja2's own parser is asked whether the template is one at all."""
    try:  # a copy of the context, because jinja2 3.1.2 lets templates change lists by pop
        return compiled(env, case["template"]).render(**json.loads(json.dumps(case["context"]))), None
    except (Exception, RecursionError) as e:  # whatever a template does wrong
        return None, e


def render_all(program, cases):
    lines = "".join(json.dumps({"template": c["template"], "context": c["context"], "now": NOW}) + "\n" for c in cases)
    done = subprocess.run([program], input=lines.encode(), capture_output=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or len(answers) != len(cases):
        print(done.stderr.decode(errors="replace")[-4000:])
        print(f"{program} ended with {done.returncode} after {len(answers)} of {len(cases)} cases")
        if len(answers) < len(cases):
            print("in the case:", json.dumps(cases[len(answers)])[:3000])
        return answers, False
    return answers, True


def strings_of(data):
    if isinstance(data, str):
        return {data}
    if isinstance(data, dict):
        return set(data).union(*map(strings_of, data.values()))
    return set().union(*map(strings_of, data)) if isinstance(data, list) else set()


def wrong_marks(text, spans, context):
    """Where the ranges of user text are wrong. Users write in ideographs: each must be marked, and a range holds nothing
    else, unless it is a part of one string of the user's data (a role, a key), as it is, as JSON, as HTML or in capitals."""
    data = text.encode()
    user = strings_of([v for k, v in context.items() if k not in ("bos_token", "eos_token")])
    user |= {json.dumps(u, ensure_ascii=ascii) for u in user for ascii in (False, True)}
    user = "\0".join(user | {u.upper() for u in user} | {str(markupsafe.escape(u)) for u in user})
    marked = bytearray(len(data))
    for a, b in spans:
        part = data[a:b].decode()
        if part not in user and re.search("[^\u4e00-\u9fff]", part):
            return f"bytes {a} to {b}, {part!r}, are marked"
        marked[a:b] = b"\x01" * (b - a)
    at = 0
    for char in text:
        n = len(char.encode())
        if "\u4e00" <= char <= "\u9fff" and 0 in marked[at:at + n]:
            return f"byte {at}, {char!r}, is not marked"
        at += n
    return None


def wrong_error(error, answer, is_whole):
    """Both failed: where a template raised its own words they must be the same; a whole template is one for both, though
    one of few words may be refused before it runs."""
    if isinstance(error, Raised):
        expected, found = str(error), re.sub(r"^\d+:\d+: ", "", answer["error"])
        cut = len(expected.encode()) > 480 and expected.startswith(found[:480])  # an err_info holds 511 bytes
        return None if (found == expected or cut) and answer["parsed"] else f"expected {expected!r}\nfound    {found!r}"
    is_syntax = isinstance(error, jinja2.exceptions.TemplateSyntaxError)
    if is_whole and not is_syntax and not answer["parsed"]:
        return f"expected {type(error).__name__}: {error}\nfound    {answer['error']}, not a template at all"
    return None


def check_named(formats, folder, render):
    """Named formats against the texts they must give, and against published templates. Yields (name, what is wrong)."""
    tokens = {**chat_cases.TOKENS, "bos_token": chat_named.BOS, "eos_token": chat_named.EOS}
    if set(formats) != set(chat_named.EXPECTED):
        yield "names", f"expected texts for {sorted(formats)}, found {sorted(chat_named.EXPECTED)}"
        return
    cases = [{"template": formats[name], "context": {"messages": chat_named.TALK, "add_generation_prompt": True, **tokens}}
             for name in formats]
    for name, answer in zip(formats, render(cases)):
        same = answer.get("ok") == chat_named.EXPECTED[name]
        yield name, None if same else f"expected {chat_named.EXPECTED[name]!r}\nfound    {answer}"
    for name, (file, without, with_system) in chat_named.PUBLISHED.items():
        path = next((f / file for f in folder if (f / file).exists()), None)
        if path is None:
            continue
        talks = [t for t in chat_named.TALKS if (with_system if t[0]["role"] == "system" else without)]
        pairs = [{"template": template, "context": {"messages": talk, "add_generation_prompt": prompt, **tokens}}
                 for talk in talks for prompt in ([True, False] if talk[-1]["role"] != "user" else [True])
                 for template in (formats[name], path.read_bytes().decode())]
        answers = render(pairs)
        for i in range(0, len(pairs), 2):
            ours, theirs = answers[i], answers[i + 1]
            same = "ok" in theirs and ours.get("ok") == theirs["ok"]
            yield f"{name} as {file}", None if same else f"expected {theirs}\nfound    {ours}\nof {pairs[i]['context']}"


def check(env, case, answer):
    """None when both agree, else what differs. 'skip' when they cannot be compared."""
    if case.get("refused"):
        refused = answer.get("code") == "template_error"
        return None if refused else f"expected a refusal\nfound    {answer.get('ok')!r}"
    text, error = render_python(env, case)
    if "error" in answer:
        if answer["code"] != "template_error":
            return f"failed with {answer['code']}: {answer['error']}"
        if error is not None:
            return wrong_error(error, answer, case.get("whole"))
        return "skip" if OWN_LIMITS.search(answer["error"]) else f"expected {text!r}\nfound    {answer['error']}"
    if error is not None:
        return f"expected {type(error).__name__}: {error}\nfound    {answer['ok']!r}"
    if ADDRESS.search(text):
        return "skip"
    if text != answer["ok"]:
        return f"expected {text!r}\nfound    {answer['ok']!r}"
    if case.get("marks"):
        wrong = wrong_marks(text, answer["user"], case["context"])
        return f"{wrong} in {text!r}" if wrong else None
    return None


def main():
    args = argparse.ArgumentParser()
    args.add_argument("program")
    args.add_argument("--templates", type=pathlib.Path, help="a folder of more *.jinja files")
    args.add_argument("--matrix", choices=["triples", "all"], default="triples",
                      help="conversations with every three values of the axes together, or the whole product (an hour)")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--fuzz", type=int, default=1500, help="how many generated cases of each kind")
    args.add_argument("--every", type=int, default=1, help="of all cases each so-manieth")
    args.add_argument("-v", action="store_true", help="a line for each template file")
    args = args.parse_args()

    here = pathlib.Path(__file__).resolve().parent.parent / "data" / "templates"
    folders = [here] + ([args.templates] if args.templates else [])
    files = [f for folder in folders for f in sorted(folder.glob("*.jinja"))]
    if args.templates and len(files) < 71:
        print(f"expected 71 published templates or more in {args.templates}, found {len(files)}\n0 passed, 1 failed")
        return 1
    named = subprocess.run([args.program, "--named"], capture_output=True, check=True).stdout.splitlines()
    formats = {row["name"]: row["template"] for row in map(json.loads, named)}
    chosen = chat_matrix.rows(args.matrix == "all")
    texts = {f.name: f.read_bytes().decode() for f in files}
    cases = [c for name, text in texts.items() for c in chat_cases.conversations(name, text)]
    n_talks = len(chat_cases.CONVERSATIONS) * len(chat_cases.SETTINGS) + len(chosen)
    texts.update({f"format {name}": text for name, text in formats.items()})
    cases += [c for name, text in texts.items() for c in chat_matrix.conversations(name, text, chosen)]
    cases += chat_cases.features()
    if unicodedata.unidata_version == UNICODE:
        cases += chat_cases.characters()
    cases += chat_fuzz.generate(args.seed, args.fuzz)
    cases = cases[::args.every]

    warnings.simplefilter("ignore", SyntaxWarning)  # of the code that jinja2 generates
    env = environment()
    alive = True
    passed = failed = skipped = both_failed = 0
    groups = {}
    for name, wrong in check_named(formats, folders, lambda some: render_all(args.program, some)[0]):
        passed += wrong is None
        failed += wrong is not None
        if wrong is not None:
            print(f"FAILED format {name}\n{wrong[:1500]}")
    for start in range(0, len(cases), BATCH):
        batch = cases[start:start + BATCH]
        answers, well = render_all(args.program, batch)
        alive = alive and well
        for case, answer in zip(batch, answers):
            wrong = check(env, case, answer)
            both_failed += wrong is None and "error" in answer
            skipped += wrong == "skip"
            bad = wrong is not None and wrong != "skip"
            passed += wrong is None
            failed += bad
            count = groups.setdefault(case["group"], [0, 0, 0])
            for i, hit in enumerate((wrong is None, bad, wrong is None and "error" in answer)):
                count[i] += hit
            if bad and failed <= 400:
                print(f"FAILED {case['group']}: {case['name']}")
                if len(case["template"]) < 400:
                    print("template", repr(case["template"]))
                print(wrong[:1500])
    for group, (ok, bad, errors) in groups.items():
        if args.v or bad > 0:
            print(f"{group:52} {ok:5} equal ({errors} failed on both sides), {bad} not")
    whole = [groups.get(f.name, [0, 0, 0]) for f in files]
    print(f"{len(files)} template files of {n_talks} conversations each: {sum(g[0] for g in whole)} equal "
          f"({sum(g[2] for g in whole)} failed on both sides), {sum(g[1] for g in whole)} not; {len(formats)} named formats")
    print(f"{both_failed} of them failed on both sides, {skipped} could not be compared")
    failed += not alive
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
