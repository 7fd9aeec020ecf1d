"""Models at the terminal, without a server: `infcgi perplexity` and `infcgi chat`."""
import fcntl
import json
import math
import os
import pathlib
import pty
import re
import select
import shutil
import subprocess
import tempfile
import termios
import time

import harness
from harness import until


def run(ctx, *words, stdin=None):
    command, *more = words
    return subprocess.run([ctx.binary, command, "-m", ctx.model, "--threads", "2", *more], input=stdin, capture_output=True, text=True, timeout=300)


def folder(ctx):
    path = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-terminal."))
    ctx.cleanups.append(lambda: shutil.rmtree(path))
    return path


@harness.in_release
def test_perplexity_is_that_of_the_api_s_log_probabilities(ctx):
    """By the definition of llama-perplexity, from the log-probabilities of /v1/completions for each token of a window."""
    size, text = 64, (harness.ROOT / "LICENSE").read_text()[:1500]
    path = folder(ctx) / "text"
    path.write_text(text + "\n")   # the last newline does not count
    ids = ctx.server.post("/tokenize", {"content": text, "add_special": True}).json()["tokens"]
    nlls, after = [], []
    for w in range(3):
        r = ctx.server.post("/v1/completions", {"prompt": ids[w * size:(w + 1) * size], "echo": True, "logprobs": 1, "max_tokens": 1}).json()
        nlls += [-p for p in r["choices"][0]["logprobs"]["token_logprobs"][size // 2 + 1:size]]
        after.append(math.exp(sum(nlls) / len(nlls)))
    n, mean = len(nlls), sum(nlls) / len(nlls)
    error = math.sqrt((sum(x * x for x in nlls) / n - mean * mean) / (n - 1)) * math.exp(mean)
    got = json.loads(run(ctx, "perplexity", "-c", str(size), "--chunks", "3", "--json", str(path)).stdout)
    assert got["tokens"] == n == 3 * (size // 2 - 1) and got["windows"] == 3 and got["ctx"] == size, got
    for a, b in zip(got["ppl_after_window"] + [got["ppl"], got["error"]], after + [math.exp(mean), error]):
        assert abs(a - b) < 1e-4 * b, (got, after, error)
    said = run(ctx, "perplexity", "-c", str(size), "--chunks", "1", "-f", str(path)).stdout
    found = re.match(r"\[1\](\d+\.\d{4}),\nFinal estimate: PPL = (\d+\.\d{4}) \+/- \d+\.\d{5}\n31 tokens scored in 1 windows of 64\n", said)
    assert found and all(abs(float(p) - after[0]) < 1e-3 for p in found.groups()), (said, after)


def test_perplexity_of_what_is_no_text(ctx):
    path = folder(ctx) / "short"
    path.write_text("Too short.")
    short = run(ctx, "perplexity", "-c", "64", str(path))
    assert short.returncode == 64 and "expected a text of at least 128 tokens" in short.stderr, short
    none = run(ctx, "perplexity", str(path) + ".none")
    assert none.returncode == 78 and "none" in none.stderr, none
    assert run(ctx, "perplexity").returncode == 64


@harness.in_release
def test_chat_lines_from_a_pipe(ctx):
    where = folder(ctx) / "kept.json"
    script = f"Say hello.\n\nAnd now?\n/regen\n/save {where}\n/reset\n/load {where}\n/quit\nNever answered.\n"
    r = run(ctx, "chat", "-c", "1024", "--temp", "0", "-n", "8", "--system", "You are kind.", stdin=script)
    assert r.returncode == 0, r
    kept = json.loads(where.read_text())
    assert [m["role"] for m in kept] == ["system", "user", "assistant", "user", "assistant"], kept
    assert kept[0]["content"] == "You are kind." and r.stdout.count(kept[4]["content"]) >= 2 and "5 messages" in r.stdout, r.stdout
    body = {"messages": kept[:4], "temperature": 0, "max_tokens": 8}
    assert ctx.server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"] == kept[4]["content"]
    where.write_text('{"no": "conversation"}')
    bad = run(ctx, "chat", "-c", "1024", stdin=f"/load {where}\n/regen\n/save\n/nonsense\n")
    assert bad.returncode == 65 and bad.stderr.count("error: ") == 4, bad


def test_chat_at_a_terminal(ctx):
    main, other = pty.openpty()
    p = subprocess.Popen([ctx.binary, "chat", "-m", ctx.model, "--threads", "2", "-c", "2048", "--temp", "0"], stdin=other, stdout=other, stderr=other,
                         env={**os.environ, "TERM": "xterm", "ASAN_OPTIONS": "detect_leaks=0"},   # libedit does not free two strings
                         start_new_session=True,
                         preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    os.close(other)
    ctx.cleanups.append(lambda: p.poll() is None and p.kill())
    got = b""

    def read_until(pattern, seconds=120):
        nonlocal got
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, got)):
            assert select.select([main], [], [], max(0, end - time.monotonic()))[0], (pattern, got)
            got += os.read(main, 4096)
        got = got[found.end():]
    read_until(rb"/help lists commands")
    read_until(rb"> $")
    os.write(main, b"Write a very long story about a fox.\n")
    read_until(rb"fox\.\r\n[^\r]*\w+ \w+ \w+")   # the answer has begun
    os.write(main, b"\x03")
    read_until(rb"\r\n> $")                        # and ends by Ctrl-C
    os.write(main, b"not this\x03")
    read_until(rb"> $")
    os.write(main, b"\x04")
    assert until(lambda: p.poll() is not None, 30) is True and p.returncode == 0
    os.close(main)
