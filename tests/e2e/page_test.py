"""The chat page in headless Chromium: streaming, stop, keyboard, Markdown, files, conversations, settings, errors."""
import atexit
import json
import os
import pathlib
import re
import subprocess
import tempfile

import harness
from browser import ENTER, ESCAPE, SHIFT, Browser

MARK = "release"

LONG = "Write the numbers from 1 to 1000, one a line."
_browser = None


def opened(ctx, server=None):
    """Opens the page as on a first visit. One browser serves all tests."""
    global _browser
    if not _browser:
        _browser = Browser()
        atexit.register(_browser.close)
    b, base = _browser, (server or ctx.server).base
    b.open(base + "/icon.svg")
    b.run("localStorage.clear(); sessionStorage.clear()")
    b.resize(900, 700)
    b.console()
    reopened(ctx, b, base)
    b.wait(lambda: b.text("#model")[0] not in ("", "connecting…"), "the page finds the model")
    return b


def reopened(ctx, b, base=None):
    b.open((base or ctx.server.base) + "/")
    b.wait(lambda: b.run("return document.querySelector('#log').ariaBusy") == "false", "the page")


def say(b, *answers):
    """Sets the page's next answers, each a list of deltas with a final finish_reason; window.asked has the bodies."""
    b.run("""window.asked = []; window.answers = arguments[0]; const f = window.fetch; window.fetch = (url, o) => {
        if (!o || !o.body) return f(url, o);
        window.asked.push(JSON.parse(o.body));
        const parts = window.answers.shift(), finish_reason = parts.pop();
        const choices = [...parts.map((delta) => ({index: 0, delta, finish_reason: null})), {index: 0, delta: {}, finish_reason}];
        const events = choices.map((c) => 'data: ' + JSON.stringify({choices: [c]}) + '\\n\\n');
        return Promise.resolve(new Response(events.join('') + 'data: [DONE]\\n\\n', {headers: {'content-type': 'text/event-stream'}}));
    }""", [list(a) for a in answers])


def text(words, finish="stop"):
    return [{"role": "assistant", "content": ""}, {"content": words}, finish]


def asked(b, i=-1):
    """Returns the messages of a request to say()."""
    return b.run("return window.asked.at(arguments[0]).messages", i)


def ask_all(b, *questions):
    for n, q in enumerate(questions, len(answers(b)) + 1):
        ask(b, q)
        b.wait(lambda n=n: len(answers(b)) == n and is_done(b), "an answer")


def set_greedy(b):
    b.run("document.querySelector('#temperature').value = 0; document.querySelector('#temperature').dispatchEvent(new Event('input'))")


def set_short(b):
    """Limits sampled answers, whose length takes long with a sanitizer."""
    b.run("document.querySelector('#max-tokens').value = 8; document.querySelector('#max-tokens').dispatchEvent(new Event('input'))")


def answers(b):
    return b.text(".message.assistant .text")


def ask(b, text):
    """Types a question into the input, which regains the focus after a dialog or a button."""
    b.wait(lambda: b.run("return document.activeElement.id") == "input", "the focus on the input")
    b.keys(text + ENTER)


def never_end(b):
    """Makes answers continue until they are stopped: the page's requests, until it is reloaded, ignore the model's end."""
    b.run("const f = window.fetch; window.fetch = (url, o) => f(url, o && o.body ? "
          "{...o, body: JSON.stringify({...JSON.parse(o.body), ignore_eos: true})} : o)")


def is_done(b):
    return bool(answers(b)) and b.visible("#send")


def test_thinking_is_folded(ctx):
    """Next to the answer, not in it; kept, and sent with the next question."""
    b = opened(ctx)
    thought = [{"role": "assistant", "content": None}, {"reasoning_content": "They ask "}, {"reasoning_content": "for <b>blue</b>."}]
    say(b, [*thought, {"content": "It is blue."}, "stop"], text("So is it."))
    ask(b, "What color is the sky?")
    b.wait(lambda: is_done(b), "an answer")
    assert answers(b) == ["It is blue."], answers(b)
    assert b.visible(".message.assistant .thinking summary") and not b.visible(".message.assistant .thoughts")
    assert not b.visible(".message.user .thinking")
    b.run("document.querySelector('.message.assistant .thinking').open = true")
    assert b.text(".message.assistant .thoughts") == ["They ask for <b>blue</b>."], b.text(".message.assistant .thoughts")
    ask(b, "And the sea?")
    b.wait(lambda: len(answers(b)) == 2 and b.visible("#send"), "a second answer")
    assert asked(b)[1]["reasoning_content"] == "They ask for <b>blue</b>."


def test_ask_with_the_keyboard(ctx):
    b = opened(ctx)
    set_greedy(b)
    assert b.run("return document.activeElement.id") == "input", "the input has the focus from the start"
    ask(b, "What is the capital" + SHIFT + ENTER + "of France?")
    assert b.text(".message.user .text")[0] == "What is the capital\nof France?"
    b.wait(lambda: is_done(b), "an answer")
    assert "Paris" in answers(b)[0], answers(b)
    # There is no speed if all tokens come at once, as on a busy machine; the test of streaming expects it.
    assert re.fullmatch(r"\d+ tokens( · \d+\.\d tokens/s)? · first after \d+\.\d\d s", b.text("#stats")[0]), b.text("#stats")
    assert b.run("return document.activeElement.id") == "input"
    assert "Answer complete" in b.text("#status")[0]
    # The second question includes the first; both survive a reload.
    ask(b, "And of Italy?")
    b.wait(lambda: len(answers(b)) == 2 and b.visible("#send"), "a second answer")
    b.open(ctx.server.base + "/")
    b.wait(lambda: len(b.text(".message")) == 4, "the conversation after a reload")
    b.click("#new")
    assert b.text(".message") == [] and b.visible("#hello")
    assert [m for m in b.console() if not m.startswith("INFO")] == []


def test_text_appears_as_it_streams_and_stop_stops(ctx):
    s = ctx.start("--threads", "1", "--ctx-size", "8192")   # an answer of many seconds
    b = opened(ctx, s)
    set_greedy(b)
    never_end(b)
    for how in ("button", "key"):
        b.click("#new")
        ask(b, LONG)
        b.wait(lambda: answers(b) and answers(b)[0], "the first words")
        first = answers(b)[0]
        b.wait(lambda: len(answers(b)[0]) > len(first), "more words")
        assert b.visible("#stop") and not b.visible("#send")
        b.click("#stop") if how == "button" else b.keys(ESCAPE)
        b.wait(lambda: b.visible("#send"), "the stop")
        kept = answers(b)[0]
        assert len(kept) >= len(first) and re.search(r"^\d+ tokens · \d+\.\d tokens/s .*stopped$", b.text("#stats")[0]), b.text("#stats")
        assert s.idle(10), "the engine goes on after a stop"
        assert answers(b)[0] == kept
    assert [m for m in b.console() if not m.startswith("INFO")] == []


HOSTILE = [
    "<script>document.title='owned'</script>", "<img src=x onerror=\"document.title='owned'\">", "<svg onload=\"document.title='owned'\"></svg>",
    "<iframe srcdoc=\"<script>parent.document.title='owned'</script>\"></iframe>", "<style>body{display:none}</style>",
    "<form action=https://example.com><input name=q></form>", "<a href=\"javascript:document.title='owned'\">x</a>", "<base href=//example.com>",
    "<div><p>\n\n<img src=x onerror=\"document.title='owned'\">", "[x](javascript:document.title='owned')", "[x]( JaVaScRiPt:document.title='owned')",
    "[x](java&#x0A;script:document.title='owned')", "[x](data:text/html,<script>1</script>)", "[x](/v1/models)", "<javascript:document.title='owned'>",
    "![x](https://example.com/spy.png)", "![x](x\"onerror=\"document.title='owned')", "![\"><img src=x onerror=\"document.title='owned'\">](x)",
    "[x][r]\n\n[r]: javascript:document.title='owned'", "[x](https://a.b \"\" onclick=document.title='owned' \"\")",
    "```\"><img/src=x/onerror=document.title='owned'>\n<script>document.title='owned'</script>\n```", "- <img src=x onerror=\"document.title='owned'\">",
    "| a |\n|---|\n| <img src=x onerror=\"document.title='owned'\"> |", "<math><mi//xlink:href=\"data:x,<script>document.title='owned'</script>\">",
    "<noscript><p title=\"</noscript><img src=x onerror=document.title='owned'>\">", "`<b>x</b>`", "<details open ontoggle=\"document.title='owned'\">",
]
# Returns what is wrong with the nodes below an element.
HARM = """const harm = (root) => [...root.querySelectorAll('*')].flatMap((e) => [
    ...(e.matches('a, article, b, blockquote, br, button, code, del, details, div, em, h1, h2, h3, h4, h5, h6, hr, kbd, li, ol, p, pre, span, '
                  + 'strong, summary, table, tbody, td, th, thead, tr, ul') && !e.matches('b') ? [] : ['<' + e.nodeName + '>']),
    ...[...e.attributes].filter((a) => !['align', 'class', 'href', 'hidden', 'id', 'open', 'rel', 'start', 'tabindex', 'target', 'title', 'type']
        .includes(a.name)).map((a) => a.name),
    ...(e.hasAttribute('href') && !/^(https?|mailto):/.test(e.getAttribute('href')) ? [e.getAttribute('href')] : [])]);"""


def test_hostile_markup_stays_text(ctx):
    """Kept, and streamed; and HTML that the Markdown parser would let through."""
    b = opened(ctx)
    evil = "\n\n".join(HOSTILE)
    say(b, [{"role": "assistant"}, *({"content": evil[i:i + 7]} for i in range(0, len(evil), 7)), {"reasoning_content": evil}, "stop"])
    ask(b, HOSTILE[1])
    b.wait(lambda: is_done(b), "an answer")
    assert b.text(".message.user .text")[0] == HOSTILE[1]
    for again in (False, True):
        if again:
            reopened(ctx, b)
        assert b.run(HARM + "return harm(document.querySelector('#log'))") == []
        assert HOSTILE[0] in b.text(".message.assistant .text")[0] and HOSTILE[0] in b.text(".message.assistant .thoughts")[0]
        assert "<b>x</b>" in b.text(".message.assistant p code")
        links = b.run("return [...document.querySelectorAll('.text a[href]')].map((a) => [a.target, a.rel, a.host])")
        assert links == [["_blank", "noopener noreferrer nofollow", host] for host in ("example.com", "a.b")], links   # an image's, a link's
        assert b.run("return document.title") == "infcgi chat"
    refused = [m for m in b.console() if not m.startswith("INFO")]
    assert refused == [], refused   # by the policy, which had nothing to reject
    # Only the sanitizer, which parses in a separate document, where the policy reports its finds.
    found = b.run(HARM + """return import('/markdown.js').then(({clean}) => arguments[0].flatMap((html) => {
        const box = document.createElement('div');
        box.append(clean(html));
        document.querySelector('#log').append(box);
        return harm(box).map((h) => h + ' of ' + html);
    }))""", HOSTILE)
    assert found == [] and b.run("return document.title") == "infcgi chat", found


SAMPLE = """# Sky

It is *blue*, **mostly**: `rgb(0, 0, 255)`, ~~red~~, [why](https://example.com/why).
A second line.

- one
- two

  still two

  ```js
  let x = "```";
  ```
- [x] three

1. first
2. second

> said
> so

```python
def f(x):
    return `x`

~~~
```

| a | b |
|---|--:|
| 1 | 2 |

~~~~
```
~~~~
last \\
words
"""
GROW = """return import('/markdown.js').then(async ({Growing, ready, show, el}) => {
    await ready;
    const {Lexer} = await import('/lib/marked.js');
    const lex = Lexer.prototype.lex;
    let lexed = 0;
    Lexer.prototype.lex = function (src) { lexed += src.length; return lex.call(this, src); };
    const [text, step] = arguments, target = el('div'), whole = el('div'), growing = new Growing(target);
    const html = (e) => e.innerHTML.replace(/<div class="tail">|\\s+(?=<)|\\s+$/g, '').replaceAll('</div></div>', '</div>').replace(/(<\\/div>)+$/, '');
    for (let n = step; n < text.length + step; n += step) growing.show(text.slice(0, n));
    Lexer.prototype.lex = lex;
    const grown = html(target), share = lexed / text.length;
    show(whole, text);
    growing.end();
    return {grown, ended: html(target), whole: html(whole), share};
})"""


def test_markdown_as_it_streams(ctx):
    """It grows to the same result as in one piece, however it is cut; and shown text is not parsed again for each token."""
    b = opened(ctx)
    for sample in (SAMPLE, SAMPLE.replace("\n", "\r\n"), "no end\n\n```c\nint x;\n``"):
        for step in (1, 2, 3, 7, 1000):
            got = b.run(GROW, sample, step)
            assert got["ended"] == got["whole"], got
            if "no end" not in sample:
                assert got["grown"] == got["whole"], (step, got["grown"], got["whole"])
    assert "<h1>Sky</h1>" in got["whole"] or "no end" in got["whole"]
    many = b.run(GROW, SAMPLE * 300, 16)["share"]   # 100 KB
    code = b.run(GROW, "```\n" + "x = 1\n" * 20000 + "```\n", 16)["share"]
    assert many < 20 and code < 0.1, (many, code)   # once per token: 3500


def test_code_has_a_copy_button(ctx):
    b = opened(ctx)
    b.run("navigator.clipboard.writeText = (t) => { window.copied = t; return Promise.resolve(); }")
    say(b, text("Look:\n\n```python\nprint('<b>')\n```\n"))
    ask_all(b, "Code?")
    assert b.text(".code .bar span") == ["python"]
    b.click(".code .bar button")
    assert b.run("return window.copied") == "print('<b>')"
    b.click(".message.assistant .tools button")
    assert b.run("return window.copied") == "Look:\n\n```python\nprint('<b>')\n```\n"


def test_without_libraries_text_is_plain(ctx):
    """Like after a build without npm, which reports it."""
    b = opened(ctx)
    b.cdp("Network.enable")
    b.cdp("Network.setBlockedURLs", urls=["*/lib/*"])
    try:
        reopened(ctx, b)
        say(b, text("*a* <img src=x onerror=alert(1)>\n\n- b"))
        ask_all(b, "Hi")
        assert answers(b) == ["*a* <img src=x onerror=alert(1)>\n\n- b"], answers(b)
        b.click("#settings-open")
        assert b.visible("#plain")
        reopened(ctx, b)
        assert answers(b) == ["*a* <img src=x onerror=alert(1)>\n\n- b"], answers(b)
    finally:
        b.cdp("Network.setBlockedURLs", urls=[])
        b.cdp("Network.disable")


def test_page_sh_without_libraries(ctx):
    """No npm, an npm that does not answer, and a package with another checksum: a page without libraries, and the reason."""
    with tempfile.TemporaryDirectory() as folder:
        npm = pathlib.Path(folder) / "npm"
        for script, why in (("echo 'npm error code ENOTFOUND' >&2; exit 1", "npm cannot fetch marked"),
                            ("echo x > marked-$(sed -n 's/^marked|\\([^|]*\\).*/\\1/p' \"$PAGE_SH\").tgz", "has another SHA-512")):
            npm.write_text("#!/bin/sh\n" + script + "\n")
            npm.chmod(0o755)
            out = pathlib.Path(folder) / "html"
            page_sh = harness.ROOT / "nginx/page.sh"
            run = subprocess.run(["bash", page_sh, out], capture_output=True, text=True,
                                 env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "PAGE_SH": str(page_sh)})
            assert run.returncode == 0 and "shows plain text" in run.stderr and why in run.stderr, run
            assert (out / "index.html").read_text() and not (out / "lib").exists() and not (out / ".ok").exists()


def test_regenerate_and_edit(ctx):
    b = opened(ctx)
    say(b, text("One."), text("Two."), text("Three."), text("Four."))
    ask_all(b, "First?", "Second?")
    assert len(b.text(".message.assistant .action")) == 1 and len(b.text(".message.user .action")) == 1   # only of the last
    b.click(".message.assistant .action")
    b.wait(lambda: answers(b) == ["One.", "Three."] and is_done(b), "another answer")
    assert [m["content"] for m in asked(b)] == ["First?", "One.", "Second?"]
    b.click(".message.user .action")
    assert b.visible("#editing") and b.run("return document.querySelector('#input').value") == "Second?"
    b.keys(ESCAPE)
    assert not b.visible("#editing") and b.run("return document.querySelector('#input').value") == ""
    b.click(".message.user .action")
    ask(b, " Or third?")
    b.wait(lambda: answers(b) == ["One.", "Four."] and is_done(b), "the answer to the new question")
    assert [m["content"] for m in asked(b)] == ["First?", "One.", "Second? Or third?"]
    reopened(ctx, b)
    assert b.text(".message .text") == ["First?", "One.", "Second? Or third?", "Four."]
    # A failed answer leaves the old one.
    b.run("window.fetch = () => Promise.reject(new TypeError('gone'))")
    b.click(".message.assistant .action")
    b.wait(lambda: b.visible("#error"), "an error")
    assert answers(b) == ["One.", "Four."]


def test_text_files_go_with_a_question(ctx):
    b = opened(ctx)
    say(b, text("Read."), text("Read again."))
    with tempfile.TemporaryDirectory() as folder:
        paths = {name: pathlib.Path(folder) / name for name in ("notes.md", "pic.png", "big.txt")}
        paths["notes.md"].write_text("a ``` fence\n")
        paths["pic.png"].write_bytes(b"\x89PNG\0")
        paths["big.txt"].write_text("x" * (256 * 1024 + 1))
        for name, why in (("pic.png", "not a text file"), ("big.txt", "larger than 256 KiB")):
            b.choose("#files", paths[name])
            b.wait(lambda: b.visible("#error"), "an error")
            assert name in b.text("#error")[0] and why in b.text("#error")[0] and not b.visible("#chips")
        b.choose("#files", paths["notes.md"])
        b.wait(lambda: b.text("#chips .chip span") == ["notes.md"], "a chip")
        assert not b.visible("#error")
    b.run("""const d = new DataTransfer(); d.items.add(new File(['int x;'], 'x.c')); d.items.add(new File(['y'], 'y'));
        for (const type of ['dragover', 'drop']) document.body.dispatchEvent(new DragEvent(type, {dataTransfer: d, bubbles: true, cancelable: true}))""")
    b.wait(lambda: b.text("#chips .chip span") == ["notes.md", "x.c", "y"], "dropped files")
    b.click("#chips li:last-child button")
    ask_all(b, "What is it?")
    assert asked(b) == [{"role": "user", "content": "notes.md:\n````md\na ``` fence\n````\n\nx.c:\n```c\nint x;\n```\n\nWhat is it?"}]
    assert b.text(".message.user .text") == ["What is it?"] and b.text(".message.user .chip") == ["notes.md", "x.c"] and not b.visible("#chips")
    first = asked(b)[0]
    reopened(ctx, b)
    say(b, text("Read again."))
    ask_all(b, "And now?")
    assert asked(b)[0] == first


def test_tool_calls(ctx):
    """Shown as they arrive; the next input is their result."""
    b = opened(ctx)
    b.click("#settings-open")
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    b.run("const t = document.querySelector('#tools'); t.value = arguments[0]; t.dispatchEvent(new Event('input'))", "[{")
    assert not b.run("return document.querySelector('#tools').checkValidity()")
    b.run("const t = document.querySelector('#tools'); t.value = arguments[0]; t.dispatchEvent(new Event('input'))", json.dumps(tools))
    b.click("#settings-close")

    def call(i, name="", arguments=""):
        return {"tool_calls": [{"index": i, **({"id": f"call_{i}", "type": "function"} if name else {}),
                                "function": {**({"name": name} if name else {}), "arguments": arguments}}]}
    say(b, [{"role": "assistant", "content": None}, call(0, "weather"), call(0, "", '{"city":'), call(0, "", '"<b>Rome"}'), call(1, "weather", "{}"),
            "tool_calls"], text("Sunny."), [{"role": "assistant", "content": "I"}, call(0, "weather", '{"ci'), "length"])
    ask(b, "Weather?")
    b.wait(lambda: b.text(".call summary") == ["Calls weather", "Calls weather"] and is_done(b), "calls")
    assert b.run("return window.asked[0].tools") == tools
    assert b.text(".call code") == ['{\n  "city": "<b>Rome"\n}', "{}"]
    assert b.run("return document.querySelector('#input').placeholder") == "Result of weather"
    ask(b, "20 degrees")
    ask(b, "none")
    b.wait(lambda: len(answers(b)) == 2 and is_done(b), "an answer to the results")
    calls = [{"id": f"call_{i}", "type": "function", "function": {"name": "weather", "arguments": a}} for i, a in enumerate(('{"city":"<b>Rome"}', "{}"))]
    assert asked(b)[1:] == [{"role": "assistant", "content": "", "tool_calls": calls},
                            *({"role": "tool", "tool_call_id": f"call_{i}", "name": "weather", "content": c} for i, c in enumerate(("20 degrees", "none")))]
    assert answers(b)[1] == "Sunny."
    ask(b, "Again?")   # an incomplete call is dropped
    b.wait(lambda: len(answers(b)) == 3 and is_done(b), "an answer that is cut")
    assert len(b.text(".call")) == 2 and answers(b)[2] == "I"


def test_conversations_are_kept(ctx):
    b = opened(ctx)
    say(b, text("A."), text("B."), text("C."))
    ask_all(b, "First conversation")
    b.click("#new")
    ask_all(b, "Second <b>conversation</b>")
    b.click("#chats-open")
    titles = lambda: b.text("#chat-list .title")   # noqa: E731
    assert titles() == ["Second <b>conversation</b>", "First conversation"], titles()
    b.click("#chat-list li:last-child .title")
    b.wait(lambda: b.text(".message .text") == ["First conversation", "A."], "the first conversation")
    assert not b.visible("#chats")   # it covered the page
    reopened(ctx, b)
    assert b.text(".message .text") == ["First conversation", "A."]
    b.click("#chats-open")
    assert b.text("[aria-current]") == ["First conversation"]
    b.click("#chat-list li:last-child [title=Rename]")
    b.keys("My own" + ENTER)
    b.wait(lambda: titles() == ["Second <b>conversation</b>", "My own"], "a new title")
    # The exported file.
    b.run("URL.createObjectURL = (blob) => { blob.text().then((t) => { window.saved = t; }); return 'blob:x'; };"
          "HTMLAnchorElement.prototype.click = function () { window.saved_as = this.download; }")
    b.click("#chat-list li:last-child [title=Export]")
    b.wait(lambda: b.run("return window.saved"), "the file")
    saved = json.loads(b.run("return window.saved"))
    assert b.run("return window.saved_as") == "My-own.json" and saved["title"] == "My own"
    assert saved["messages"] == [{"role": "user", "content": "First conversation"}, {"role": "assistant", "content": "A."}]
    b.click("#chat-list li:last-child .remove")
    assert len(titles()) == 2 and b.text("#chat-list li:last-child .remove") == ["Delete?"]
    b.click("#chat-list li:last-child .remove")
    b.wait(lambda: titles() == ["Second <b>conversation</b>"], "one conversation")
    assert b.text(".message") == [] and b.visible("#hello")
    # A conversation that is deleted during its answer does not come back when the answer ends.
    b.run("""window.fetch = (url, o) => Promise.resolve(new Response(new ReadableStream({start(c) {
        c.enqueue(new TextEncoder().encode('data: {"choices":[{"index":0,"delta":{"content":"On and"}}]}\\n\\n'));
        o.signal.addEventListener('abort', () => { c.error(new DOMException('', 'AbortError')); window.has_ended = true; });
    }})))""")
    b.click("#chats-open")
    b.click("#chat-list .title")
    ask(b, "More?")
    b.wait(lambda: answers(b)[-1:] == ["On and"], "words")
    b.click("#chats-open")
    b.click("#chat-list .remove")
    b.click("#chat-list .remove")
    b.wait(lambda: b.run("return window.has_ended") and titles() == [] and b.text(".message") == [], "nothing")
    say(b, text("D."))
    ask_all(b, "Third")
    reopened(ctx, b)
    assert titles() == ["Third"] and b.run("return Object.keys(localStorage).filter((k) => k.includes('.chat.')).length") == 1


def test_old_conversations_make_room(ctx):
    b = opened(ctx)
    kept = """return import('/store.js').then((store) => {
        const big = [{role: 'user', content: 'x'.repeat(arguments[0])}];
        const saved = Array.from({length: arguments[1]}, (_, i) => store.save('id' + i, 'title ' + i, big));
        const list = store.list().map((c) => c.id);
        return [saved.every(Boolean), list, list.every((id) => store.messages(id).length === 1), Object.keys(localStorage).length];
    })"""
    well, ids, whole, n_keys = b.run(kept, 1, 210)
    assert well and whole and ids == [f"id{i}" for i in range(209, 9, -1)] and n_keys <= 203, (well, whole, len(ids), n_keys)
    b.run("localStorage.clear()")
    well, ids, whole, n_keys = b.run(kept, 1000000, 8)   # the browser keeps 5 MiB
    assert well and whole and 2 <= len(ids) <= 5 and ids[0] == "id7" and n_keys <= len(ids) + 2, (well, whole, ids, n_keys)
    assert b.run(kept, 6000000, 1)[0] is False
    b.run("localStorage.clear()")
    # Data of an older page, and invalid conversations.
    b.run("localStorage.setItem('infcgi.history', JSON.stringify([{role: 'user', content: 'Old?'}, {role: 'assistant', content: 'Yes.'}]))")
    reopened(ctx, b)
    assert b.text(".message .text") == ["Old?", "Yes."] and b.text("#chat-list .title") == ["Old?"]
    b.run("localStorage.setItem(Object.keys(localStorage).find((k) => k.includes('.chat.')), '[{\"role\":\"king\"}]')")
    reopened(ctx, b)
    assert b.text(".message") == []


def test_colours_and_names(ctx):
    b = opened(ctx)
    back = lambda: b.run("return getComputedStyle(document.body).backgroundColor")   # noqa: E731
    seen = []
    for theme in ("light", "dark"):
        b.run("const t = document.querySelector('#theme'); t.value = arguments[0]; t.dispatchEvent(new Event('input'))", theme)
        seen.append(back())
        reopened(ctx, b)
        assert back() == seen[-1], "the choice is kept"
    assert len(set(seen)) == 2
    b.run("const t = document.querySelector('#theme'); t.value = ''; t.dispatchEvent(new Event('input'))")
    for i, theme in enumerate(("light", "dark")):
        b.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        assert back() == seen[i], theme
    b.cdp("Emulation.setEmulatedMedia", features=[])
    say(b, text("A.\n\n```\nx\n```"))
    ask_all(b, "Q")
    b.click("#settings-open")
    nameless = b.run("""return [...document.querySelectorAll('button, input, textarea, select')].filter((e) =>
        !e.textContent.trim() && !e.getAttribute('aria-label') && !(e.labels && e.labels.length)).map((e) => e.outerHTML)""")
    assert nameless == []
    b.click("#settings-close")


def test_scripts_of_others_are_refused(ctx):
    policy = ctx.server.request("GET", "/").headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy and "script-src 'self'" in policy and "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy and "*" not in policy
    own = sorted(p.name for p in (harness.ROOT / "nginx/html").iterdir())
    assert len(own) > 8
    for path in ("/", *("/" + name for name in own)):
        r = ctx.server.request("GET", path)
        assert r.status == 200 and r.headers["X-Content-Type-Options"] == "nosniff", path
        assert not re.search(rb"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", r.body), f"{path} fetches from elsewhere"
        assert path.endswith(".svg") or not re.search(rb"<script>|<style|\son\w+=|\sstyle=|innerHTML|insertAdjacentHTML|\beval\(", r.body), path
    for name, kind in (("marked.js", "text/javascript"), ("purify.js", "text/javascript"), ("licenses.txt", "text/plain")):
        r = ctx.server.request("GET", "/lib/" + name)
        assert r.status == 200 and r.headers["Content-Type"].startswith(kind), "run `make page`"
    assert b"marked" in r.body and b"Apache License" in r.body and b"Permission is hereby granted" in r.body
    for path in ("/lib/", "/lib/other.js", "/.ok", "/lib/../chat.js.map"):
        assert ctx.server.request("GET", path).status == 404, path


def test_the_temperature_is_the_servers_unless_set(ctx):
    b = opened(ctx)
    set_short(b)
    b.run("window.bodies = []; const f = window.fetch; window.fetch = (url, o) => { "
          "if (o && o.body) window.bodies.push(JSON.parse(o.body)); return f(url, o); }")
    for n, want in enumerate((None, 0, None), 1):
        b.run(f"const t = document.querySelector('#temperature'); t.value = {'0' if want == 0 else chr(39) * 2}; "
              "t.dispatchEvent(new Event('input'))")
        ask(b, "Say hello.")
        b.wait(lambda n=n: b.run("return window.bodies.length") == n and is_done(b), "a request")
        assert b.run("return window.bodies[window.bodies.length - 1].temperature ?? null") == want
        b.click("#new")


def test_narrow_screen_and_settings(ctx):
    b = opened(ctx)
    b.resize(380, 640)
    assert b.run("return document.documentElement.scrollWidth <= window.innerWidth"), "it scrolls sideways"
    b.click("#settings-open")
    assert b.visible("#settings")
    b.click("#max-tokens")
    b.keys("3")
    b.click("#settings-close")
    assert not b.visible("#settings")
    ask(b, LONG)
    b.wait(lambda: is_done(b), "an answer")
    assert "cut at the longest answer" in b.text("#stats")[0] and b.text("#stats")[0].startswith("3 tokens")


def test_errors_are_shown_and_the_question_comes_back(ctx):
    s = ctx.start()
    b = opened(ctx, s)
    set_short(b)
    s.engine.kill()
    s.engine.wait()
    ask(b, "Hello?")
    b.wait(lambda: b.visible("#error"), "an error")
    assert "engine is not running" in b.text("#error")[0], b.text("#error")
    assert b.run("return document.querySelector('#input').value") == "Hello?"
    s.start_engine()
    s.wait_ready()
    b.keys(ENTER)
    b.wait(lambda: is_done(b), "an answer after the restart")
    assert not b.visible("#error")


def test_engine_killed_during_an_answer(ctx):
    s = ctx.start()
    b = opened(ctx, s)
    never_end(b)
    ask(b, LONG)
    b.wait(lambda: answers(b) and answers(b)[0], "the first words")
    s.engine.kill()
    s.engine.wait()
    b.wait(lambda: b.visible("#error") and b.visible("#send"), "an error")
    assert "broke off" in b.text("#error")[0] or "reached" in b.text("#error")[0], b.text("#error")
    assert answers(b)[0]


def test_api_key(ctx):
    import tempfile
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("sk-page\n")
        keys.flush()
        s = ctx.start(*ctx.ARGS, "--api-key-file", keys.name)
        b = opened(ctx, s)
        set_short(b)
        assert b.text("#model")[0] == "needs an API key"
        ask(b, "Hi")
        b.wait(lambda: b.visible("#error"), "an error")
        assert "API key" in b.text("#error")[0] and "Settings" in b.text("#error")[0]
        b.click("#settings-open")
        b.click("#key")
        b.keys("sk-page")
        b.click("#settings-close")
        b.wait(lambda: b.text("#model")[0] != "needs an API key", "the model's name")
        b.keys(ENTER)
        b.wait(lambda: is_done(b), "an answer")
        assert b.run("return localStorage.getItem('infcgi.key')") is None
