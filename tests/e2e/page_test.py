"""The chat page in headless Chromium: streaming, stop, keyboard, settings, errors."""
import re

import harness
from browser import ENTER, ESCAPE, SHIFT, Browser

LONG = "Write the numbers from 1 to 1000, one a line."


def opened(ctx, server=None):
    b = Browser()
    ctx.cleanups.append(b.close)
    b.open((server or ctx.server).base + "/")
    b.wait(lambda: b.text("#model")[0] not in ("", "connecting…"), "the page finds the model")
    return b


def set_greedy(b):
    b.run("document.querySelector('#temperature').value = 0; document.querySelector('#temperature').dispatchEvent(new Event('input'))")


def set_short(b):
    """Sampled answers are as long as they like, which takes a sanitizer its time."""
    b.run("document.querySelector('#max-tokens').value = 8; document.querySelector('#max-tokens').dispatchEvent(new Event('input'))")


def answers(b):
    return b.text(".message.assistant .text")


def ask(b, text):
    """Types a question into the input, which gets the focus back by itself after a dialog or a button."""
    b.wait(lambda: b.run("return document.activeElement.id") == "input", "the focus on the input")
    b.keys(text + ENTER)


def never_end(b):
    """Answers go on until they are stopped: the page's requests, until it is loaded again, ask to pass over the model's end."""
    b.run("const f = window.fetch; window.fetch = (url, o) => f(url, o && o.body ? "
          "{...o, body: JSON.stringify({...JSON.parse(o.body), ignore_eos: true})} : o)")


def is_done(b):
    return bool(answers(b)) and b.visible("#send")


def test_thinking_is_folded(ctx):
    """Beside the answer, not in it; kept, and sent with the next question."""
    b = opened(ctx)
    b.run("""window.asked = []; const f = window.fetch; window.fetch = (url, o) => {
        if (!o || !o.body) return f(url, o);
        window.asked.push(JSON.parse(o.body).messages);
        const deltas = [{role: 'assistant', content: null}, {reasoning_content: 'They ask '}, {reasoning_content: 'for <b>blue</b>.'},
                        {content: 'It is blue.'}];
        const events = deltas.map((delta) => 'data: ' + JSON.stringify({choices: [{index: 0, delta, finish_reason: null}]}) + '\\n\\n');
        return Promise.resolve(new Response(events.join('') + 'data: [DONE]\\n\\n', {headers: {'content-type': 'text/event-stream'}}));
    }""")
    ask(b, "What color is the sky?")
    b.wait(lambda: is_done(b), "an answer")
    assert answers(b) == ["It is blue."], answers(b)
    assert b.visible(".message.assistant .thinking summary") and not b.visible(".message.assistant .thoughts")
    assert not b.visible(".message.user .thinking")
    b.run("document.querySelector('.message.assistant .thinking').open = true")
    assert b.text(".message.assistant .thoughts") == ["They ask for <b>blue</b>."], b.text(".message.assistant .thoughts")
    ask(b, "And the sea?")
    b.wait(lambda: len(answers(b)) == 2 and b.visible("#send"), "a second answer")
    assert b.run("return window.asked[1][1].reasoning_content") == "They ask for <b>blue</b>."


def test_ask_with_the_keyboard(ctx):
    b = opened(ctx)
    set_greedy(b)
    assert b.run("return document.activeElement.id") == "input", "the input has the focus from the start"
    ask(b, "What is the capital" + SHIFT + ENTER + "of France?")
    assert b.text(".message.user .text")[0] == "What is the capital\nof France?"
    b.wait(lambda: is_done(b), "an answer")
    assert "Paris" in answers(b)[0], answers(b)
    assert re.fullmatch(r"\d+ tokens · \d+\.\d tokens/s · first after \d+\.\d\d s", b.text("#stats")[0]), b.text("#stats")
    assert b.run("return document.activeElement.id") == "input"
    assert "Answer complete" in b.text("#status")[0]
    # The second question sees the first; both outlive a reload.
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
        assert len(kept) >= len(first) and b.text("#stats")[0].endswith("stopped")
        assert harness.until(s.idle, 10), "the engine goes on after a stop"
        assert answers(b)[0] == kept
    assert [m for m in b.console() if not m.startswith("INFO")] == []


def test_markup_stays_text(ctx):
    b = opened(ctx)
    evil = "<img src=x onerror=\"document.title='owned'\"> ```js"
    b.run("localStorage.setItem('infcgi.history', JSON.stringify([{role: 'user', content: arguments[0]},"
          "{role: 'assistant', content: 'Look:\\n```html\\n<script>document.title=\"owned\"</script>\\n```\\nand `<b>x</b>`'}]))", evil)
    b.open(ctx.server.base + "/")
    b.wait(lambda: len(b.text(".message")) == 2, "the stored conversation")
    assert b.text(".message.user .text")[0] == evil
    assert b.text(".message.assistant pre code") == ['<script>document.title="owned"</script>']
    assert b.text(".message.assistant p code") == ["<b>x</b>"]
    assert b.run("return document.title") == "infcgi chat" and b.run("return document.querySelectorAll('main img, main script').length") == 0
    b.run("localStorage.clear()")


def test_scripts_of_others_are_refused(ctx):
    policy = ctx.server.request("GET", "/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy and "unsafe" not in policy
    for path in ("/", "/chat.js", "/chat.css", "/icon.svg"):
        r = ctx.server.request("GET", path)
        assert r.status == 200 and r.headers["X-Content-Type-Options"] == "nosniff"
        assert not re.search(rb"(?:src|href|url)\s*[=(]\s*[\"']?(?:https?:)?//", r.body), f"{path} fetches from elsewhere"


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
    b.run("localStorage.clear()")


def test_errors_are_shown_and_the_question_comes_back(ctx):
    s = ctx.start()
    b = opened(ctx, s)
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
