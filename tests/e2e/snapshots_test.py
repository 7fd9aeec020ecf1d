"""Snapshots: after kill -9 a conversation continues with its prompt read from --cache-dir, with the same bits; damaged pages are
computed."""
import os
import pathlib
import tempfile

import harness

URL = "/v1/completions"
TEXT = " ".join(f"Item {i} of the list costs {i * 37 % 101} coins and weighs {i * 13 % 17} pounds." for i in range(24))


def ask(s, prompt=TEXT, **more):
    r = s.post(URL, {"prompt": prompt, "max_tokens": 6, "temperature": 0, "logprobs": 2, "ignore_eos": True, **more})
    assert r.status == 200, r.body
    body = r.json()
    return body["choices"][0], body["usage"]["prompt_tokens"], body["usage"]["prompt_tokens_details"]["cached_tokens"]


def restart(s):
    s.engine.kill()
    s.engine.wait()
    s.start_engine()
    s.wait_ready()


def saved(s):
    assert harness.until(lambda: s.metrics()["infcgi_snapshot_pending"] == 0), s.metrics()


@harness.in_release
def test_a_conversation_goes_on_after_kill_9(ctx):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-kv.")) / "kv"
    s = ctx.start(*ctx.ARGS, "--cache-dir", str(folder), "--cache-disk-mib", "200")
    first, n, cached = ask(s)
    assert cached == 0 and n > 400, (n, cached)
    saved(s)
    assert folder.stat().st_mode & 0o777 == 0o700
    restart(s)
    again, _, cached = ask(s)
    assert cached == (n - 1) // 32 * 32 and again == first, (n, cached)
    m = s.metrics()
    assert m["infcgi_snapshot_tokens_total"] == cached and m["infcgi_snapshot_reads_total"] == cached // 32, m
    assert ask(s, cache_salt="other")[2] == 0
    saved(s)
    n_files = len(list(folder.glob("*.page")))
    assert ask(s, cache_prompt=False)[2] == 0
    saved(s)
    assert len(list(folder.glob("*.page"))) == n_files   # unreachable from now on
    saved(s)
    files = sorted(folder.glob("*.page"), key=lambda p: p.stat().st_mtime)
    for i, path in enumerate(files):   # every second one is truncated, or has a changed byte
        if i % 2 == 0:
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data if i % 4 == 0 else data[:-1])
    restart(s)
    again, _, cached = ask(s)
    assert again == first and cached < n // 2, cached
    assert 1 <= s.metrics()["infcgi_snapshot_refused_total"] <= len(files)


def test_a_folder_that_others_may_read_is_refused(ctx):
    folder = tempfile.mkdtemp(prefix="infcgi-kv.")
    os.chmod(folder, 0o755)
    s = ctx.start(*ctx.ARGS, "--cache-dir", folder, wait=False)
    assert s.engine.wait(60) == 64, s.log()
    assert "cache-dir: " in s.log() and "0700" in s.log(), s.log()
