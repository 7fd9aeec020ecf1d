"""The chat page and answers that are hard to show or to keep: nested a thousand times, cut by a reload, empty; lists and tables."""
import json

from page_test import answers, ask, ask_all, asked, is_done, opened, reopened, say, text

MARK = "release"

# Texts on which the Markdown parser recurses, or takes quadratic time or worse.
HARD = {
    "quotes": ">" * 6000, "spaced quotes": "> " * 20000, "lists": "- " * 20000, "numbers": "1. " * 8000, "quotes and lists": "> - " * 8000,
    "stars around a letter": "*" * 20000 + "a" + "*" * 20000, "open emphasis": "**a *b " * 5000 + " c* d**" * 5000, "pairs": "*_" * 3000 + "a" + "_*" * 3000,
    "stars": "a*" * 100000, "an address": "a." * 100000 + "@", "host name": "a-" * 100000 + "@b", "addresses": ("a." * 400 + "@ ") * 300,
    "spaces": "a" + " " * 200000 + "b", "a definition": "[a]:" + " " * 200000 + "x", "quotes of two depths": "> a\n>> b\n" * 20000,
    "lazy lines": ">a\nb\n" * 40000, "brackets": "[" * 50000, "images": "![" * 50000, "tags": "<a href=\"" * 20000, "ticks": "`a " * 40000 + "``",
}
PARSE = """return import('/markdown.js').then(async ({Growing, ready, show, el}) => {
    await ready;
    const [words] = arguments, target = el('div'), whole = el('div'), growing = new Growing(target);
    const said = (e) => e.textContent.replaceAll(/[>\\s*_~`\\-\\d.]/g, '');
    for (const share of [0.3, 0.6, 1]) growing.show(words.slice(0, words.length * share));
    const grown = said(target);
    show(whole, words);
    growing.end();
    return [grown.length, said(target).length, said(whole).length, whole.className, whole.textContent === words];
})"""


def test_hard_text_is_shown(ctx):
    """Within the browser's limit for a script, which is a minute; the parser alone would need up to hours."""
    b = opened(ctx)
    for name, words in HARD.items():
        grown, ended, whole, shown_as, is_same = b.run(PARSE, words)
        assert ended == whole and abs(grown - whole) <= 2, (name, grown, ended, whole)
        assert shown_as != "plain" or is_same, (name, shown_as)
    # The bounds are far from what models write: all of this is formatted.
    rich = "\n".join(["".join("  " * i + f"- item {i}\n" for i in range(8)), "> a\n" * 200, "".join(f"| a{i} | *b* |\n" if i != 1 else "|---|---|\n" for i in range(300)),
                      "Words and **more** words. " * 300, "```\n" + "x = [1, 2, 3]\n" * 5000 + "```\n", "1. a\n" * 500])
    assert b.run(PARSE, rich)[3] == ""
    assert b.run("return import('/markdown.js').then(({show, el}) => { const e = el('div'); show(e, arguments[0]);"
                 "return ['ul ul ul ul ul ul ul ul li', 'blockquote', 'td em', 'strong', 'pre', 'ol li'].filter((s) => !e.querySelector(s)) })", rich) == []


def test_a_library_that_throws_leaves_the_answer(ctx):
    """Whatever the parser or the sanitizer throws: the text is shown and kept, and the page accepts another question."""
    b = opened(ctx)
    quotes = ">" * 6000
    say(b, [{"role": "assistant"}, *({"content": quotes[i:i + 200]} for i in range(0, len(quotes), 200)), "stop"], text("*Fine.*"))
    ask_all(b, "Quotes?")
    assert answers(b) == [quotes] and b.visible("#send") and not b.visible("#stop")
    reopened(ctx, b)
    assert answers(b) == [quotes]
    b.run("""return import('/lib/marked.js').then(({Lexer}) => {
        Lexer.prototype.lex = () => { throw new Error('as if the parser had a fault'); }; })""")
    say(b, text("*Fine.*"))
    ask(b, "And now?")
    b.wait(lambda: len(answers(b)) == 2 and is_done(b), "an answer")
    assert answers(b)[1] == "*Fine.*"
    reopened(ctx, b)
    assert b.text(".message .text") == ["Quotes?", quotes, "And now?", "Fine."]
    assert [m for m in b.console() if not m.startswith("INFO")] == []


def test_numbers_and_columns(ctx):
    """The first number of a list, and the alignment of a column, while it streams and when it is kept."""
    b = opened(ctx)
    steps = "1. First:\n\n```sh\nls\n```\n\n2. Second:\n\n```sh\npwd\n```\n\n3. Third.\n\n| a | b | c | d |\n|:--|--:|:-:|---|\n| 1 | 2 | 3 | 4 |\n"
    say(b, text(steps))
    ask_all(b, "Steps?")
    for again in (False, True):
        if again:
            reopened(ctx, b)
        assert b.run("return [...document.querySelectorAll('.text ol')].map((e) => e.start)") == [1, 2, 3]
        sides = b.run("return [...document.querySelectorAll('.text td')].map((e) => getComputedStyle(e).textAlign)")
        assert [s.replace("-webkit-", "") for s in sides] == ["left", "right", "center", "start"], sides
    found = b.run("""return import('/markdown.js').then(({clean}) => {
        const e = document.createElement('div');
        e.append(clean('<ol start="javascript:1"><li>a</li></ol><a href="javascript:1" align="left">x</a>'));
        return e.querySelector('a').hasAttribute('href'); })""")
    assert found is False


def test_words_in_a_table_stay_whole_on_a_phone(ctx):
    b = opened(ctx)
    b.resize(500, 700)
    b.cdp("Emulation.setDeviceMetricsOverride", width=360, height=640, deviceScaleFactor=2, mobile=True)
    try:
        words = ["Configuration", "Authentication", "Internationalization", "Documentation", "Characteristics"]
        row = "| " + " | ".join(words) + " |\n"
        say(b, text(row + "|---" * 5 + "|\n" + row + row))
        ask_all(b, "A table?")
        split = b.run("""return [...document.querySelectorAll('.text :is(td, th)')].filter((e) => {
            const range = document.createRange();
            range.selectNodeContents(e);
            return range.getClientRects().length > 1; }).map((e) => e.textContent)""")
        assert split == [], split
        assert b.run("const t = document.querySelector('.table'); return t.scrollWidth > t.clientWidth"), "it scrolls"
        assert b.run("return document.documentElement.scrollWidth <= window.innerWidth"), "the page does not"
    finally:
        b.cdp("Emulation.clearDeviceMetricsOverride")


def drip(b):
    """Makes answers that do not end: window.more(delta) adds to the last, whose request is the last of window.asked."""
    b.run("""window.asked = []; window.fetch = (url, o) => Promise.resolve(new Response(new ReadableStream({start(c) {
        window.asked.push(JSON.parse(o.body));
        window.more = (delta, end) => {
            c.enqueue(new TextEncoder().encode('data: ' + JSON.stringify({choices: [{index: 0, delta}]}) + '\\n\\n'));
        };
        o.signal.addEventListener('abort', () => c.error(new DOMException('', 'AbortError')));
    }}), {headers: {'content-type': 'text/event-stream'}}))""")


def test_a_reload_during_an_answer_keeps_it(ctx):
    b = opened(ctx)
    drip(b)
    ask(b, "Before any word?")
    b.wait(lambda: b.visible("#stop"), "the request")
    reopened(ctx, b)
    assert b.text(".message .text") == ["Before any word?"]
    drip(b)
    b.click(".message.user .action:last-child")
    b.wait(lambda: b.run("return window.asked.length") == 1, "the request for an answer")
    assert [m["content"] for m in asked(b)] == ["Before any word?"]
    b.run("window.more({content: 'Half an '})")
    b.run("window.more({content: 'answer'})")
    b.run("window.more({tool_calls: [{index: 0, id: 'c', function: {name: 'f', arguments: '{'}}]})")
    b.wait(lambda: answers(b) == ["Half an answer"], "words")
    reopened(ctx, b)
    assert b.text(".message .text") == ["Before any word?", "Half an answer"] and b.text(".call") == []
    # A page that ends without notice also loses little, and keeps the choice of the conversation in the list.
    drip(b)
    ask(b, "More?")
    b.wait(lambda: b.run("return window.asked.length") == 1, "a request")
    b.run("window.more({content: 'A'})")
    kept = "return Object.keys(localStorage).filter((k) => k.includes('.chat.')).map((k) => JSON.parse(localStorage[k]).at(-1).content)"
    b.wait(lambda: b.run("window.more({content: 'b'})") or b.run(kept)[0].startswith("Ab"), "a save while it streams")
    before = answers(b)[-1]
    b.click("#chats-open")
    b.click("#chat-list .title")
    b.wait(lambda: b.visible("#send"), "the end of the answer")
    assert answers(b)[-1].startswith(before)
    assert json.loads(json.dumps(b.run(kept)))[0].startswith(before)


def test_an_empty_answer_leaves_the_question(ctx):
    b = opened(ctx)
    say(b, ["stop"], text("Words."), ["stop"], ["length"])
    ask_all(b, "Anything?")
    assert b.text(".message.user .text") == ["Anything?"] and answers(b) == [""]
    assert "empty" in b.text("#error")[0] and b.run("return document.querySelector('#input').value") == ""
    reopened(ctx, b)
    assert b.text(".message.user .text") == ["Anything?"]
    say(b, text("Words."), ["stop"], ["length"])
    b.click(".message.assistant .action")
    b.wait(lambda: answers(b) == ["Words."] and is_done(b), "an answer")
    assert not b.visible("#error")
    # An empty retry keeps the earlier answer.
    b.click(".message.assistant .action")
    b.wait(lambda: b.visible("#error") and is_done(b), "an empty answer")
    assert b.text(".message .text") == ["Anything?", "Words."]
    ask(b, "None?")
    b.wait(lambda: len(answers(b)) == 2 and is_done(b), "an answer that was cut before its first word")
    assert b.text(".message.user .text") == ["Anything?", "None?"] and "cut" in b.text("#stats")[0]
