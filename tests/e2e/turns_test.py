"""One request takes neither the server nor its queue: many sequences share with others, and all of them run."""
import threading
import time

import harness

COMPLETIONS = "/v1/completions"
WORDS = "One two three four five six seven eight nine ten"
MOST = 16 * 24   # tokens of 16 slots in the steps of the late requests; if they waited for a slot, 1,900 for each


def light(s, i):
    return s.post(COMPLETIONS, {"prompt": f"{WORDS} {i}", "max_tokens": 24, "ignore_eos": True, "temperature": 0,
                                "cache_salt": str(time.monotonic_ns())}, timeout=600)


def lights(s):
    """Returns how many tokens were generated, for all requests, until three small requests, sent together, were answered, and their
    texts."""
    before = s.metrics()["infcgi_generated_tokens_total"]
    replies = harness.at_once([lambda i=i: light(s, i) for i in range(3)], seconds=600)
    assert [r.status for r in replies] == [200] * 3, [r.body for r in replies]
    return s.metrics()["infcgi_generated_tokens_total"] - before, [r.json()["choices"][0]["text"] for r in replies]


@harness.in_long
def test_many_sequences_do_not_hold_up_others(ctx):
    s = ctx.start(*ctx.ARGS)
    n, texts = lights(s)
    assert n == 3 * 24, n
    heavy = [s.stream(COMPLETIONS, {"prompt": f"{WORDS}, a story:", "n": 128, "max_tokens": 1900, "ignore_eos": True})
             for _ in range(2)]
    assert harness.until(lambda: s.metrics()["infcgi_requests_running"] == 16, 60)
    time.sleep(3)
    busy, busy_texts = harness.tried(lambda: lights(s), lambda got: got[0] <= MOST)
    wait = s.metrics()["infcgi_estimated_wait_milliseconds"]
    for connection, response in heavy:
        response.close()
        connection.close()
    print(f"     tokens of all meanwhile {busy:.0f}, estimated {wait / 1000:.0f} s", flush=True)
    assert busy <= MOST and busy_texts == texts, busy
    assert wait > 2000, wait   # dozens of sequences of 1,900 tokens; by their number it was one second
    assert s.idle(30)


@harness.in_release
def test_sizes_beyond_the_queue_run_in_turns(ctx):
    s = ctx.server
    for n_prompts, n in ((3, 86), (8, 128)):
        body = {"prompt": [[1000 + i] for i in range(n_prompts)], "n": n, "max_tokens": 1, "temperature": 1, "seed": 1,
                "ignore_eos": True}
        r = s.post(COMPLETIONS, body, timeout=600)
        assert r.status == 200, r.body
        choices = r.json()["choices"]
        assert [c["index"] for c in choices] == list(range(n_prompts * n))
        assert all(c["finish_reason"] == "length" for c in choices) and len({c["text"] for c in choices}) > n_prompts
        assert r.json()["usage"]["completion_tokens"] == n_prompts * n
        texts = [""] * len(choices)
        connection, response = s.stream(COMPLETIONS, body, timeout=600)
        for event in harness.events(response):
            for c in event["choices"] if event else []:
                texts[c["index"]] += c["text"]
        connection.close()
        assert texts == [c["text"] for c in choices]
    r = s.post(COMPLETIONS, {"prompt": ["x"] * 9, "n": 128, "max_tokens": 1})
    assert r.status == 400 and r.error()["param"] == "n", r.body
    assert s.idle()


@harness.in_release
def test_a_flood_of_large_requests_leaves_room(ctx):
    """Ten per second, of large sizes, and a client with small requests: none of these is rejected."""
    s = ctx.start(*ctx.ARGS)
    end = time.monotonic() + (6 if ctx.is_slow else 4)

    def large():
        try:
            s.post(COMPLETIONS, {"prompt": [f"{WORDS} {i}" for i in range(8)], "n": 64, "max_tokens": 400, "ignore_eos": True},
                   timeout=3)
        except OSError:
            pass   # it disconnects after three seconds

    def small():
        statuses.append(light(s, 1).status)
    threads, statuses = [], []
    while time.monotonic() < end:
        threads += [threading.Thread(target=f, daemon=True) for f in (large, small)]
        for t in threads[-2:]:
            t.start()
        time.sleep(0.1)
    for t in threads:
        t.join(300)
    assert len(statuses) == len(threads) // 2 and set(statuses) == {200}, statuses
    assert s.idle(30)
