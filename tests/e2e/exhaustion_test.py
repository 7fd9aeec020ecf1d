"""Resources that run out or are damaged while the server runs: the folder of snapshots, descriptors, the reader of the log, files to
reload. Requests continue, and the server reports what it lacks."""
import concurrent.futures
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

import harness
import master_test
import memory_test
import records_test

URL = "/v1/completions"
TINY = harness.ROOT / "tests/golden/models/llama-biases.gguf"
OTHER = harness.ROOT / "tests/golden/models/llama-yarn.gguf"
ARGS = ("--threads", "1", "--kv-tokens", "16384")
PAGE, HEAD = 32, 256   # tokens per page; bytes before its keys and values


def folder(ctx, prefix):
    path = pathlib.Path(tempfile.mkdtemp(prefix=prefix))
    ctx.cleanups.append(lambda: shutil.rmtree(path))
    return path


def prompt_of(i, pages=3):
    """Returns the i-th prompt: no two share a page."""
    return [3 + i % 200, 3 + i // 200] + [3 + (7 * i + 11 * k) % 200 for k in range(pages * PAGE - 1)]


def ask(s, prompt, **more):
    """Returns the answer with its probabilities, and how many tokens of the prompt were cached."""
    r = s.post(URL, {"prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 2, "ignore_eos": True, **more})
    assert r.status == 200, (r.body, s.log()[-2000:])
    body = r.json()
    return body["choices"][0], body["usage"]["prompt_tokens_details"]["cached_tokens"]


def saved(s):
    assert harness.until(lambda: s.metrics()["infcgi_snapshot_pending"] == 0), s.metrics()


def restart(s):
    s.engine.kill()
    s.engine.wait()
    s.start_engine()
    s.wait_ready()


# --- damaged snapshot files -------------------------------------------------------------------------------------------

def spoilt(good, others):
    """Returns ways to damage a file: name, and a function of its path."""
    def written(data):
        return lambda path: path.write_bytes(data)

    def replaced(how):
        def do(path):
            path.unlink()
            how(path)
        return do

    def changed(at, new):
        return written(good[:at] + new + good[at + len(new):])
    ways = {f"cut to {n}": written(good[:n]) for n in (0, 1, HEAD - 1, HEAD, *range(1024, len(good), 1024), len(good) - 1)}
    ways |= {f"a bit of byte {at}": changed(at, bytes([good[at] ^ 1])) for at in (*range(0, HEAD, 8), *range(HEAD, len(good), 1021))}
    ways |= {f"a huge count at {at}": changed(at, struct.pack("<Q", 2**64 - 1)) for at in range(8, HEAD, 24)}
    ways |= {"one byte more": written(good + b"\0"), "twice": written(good * 2), "zeros": written(bytes(len(good))),
             "no head": written(good[HEAD:] + good[:HEAD]), "FIFO": replaced(os.mkfifo), "gone": pathlib.Path.unlink,
             "link to itself": replaced(lambda p: p.symlink_to(p)), "link to /dev/zero": replaced(lambda p: p.symlink_to("/dev/zero"))}
    ways |= {f"of {name}": written(data) for name, data in others.items()}
    return ways | {"folder": replaced(os.mkdir)}   # the last: it remains, and after a failed write the writer pauses


def page_files(path):
    return {p.name: p for p in path.glob("*.page")}


def test_spoilt_snapshots_are_computed(ctx):
    """R07: one prompt for each way to damage the second of its pages; after one restart each is found up to there, and has the same
    answer."""
    home, elsewhere = folder(ctx, "infcgi-kv."), folder(ctx, "infcgi-kv.")
    strange = ctx.start(*ARGS, "--cache-dir", str(elsewhere), model=OTHER)
    ask(strange, prompt_of(0))
    saved(strange)
    s = ctx.start(*ARGS, "--cache-dir", str(home), model=TINY)

    def keep(i):
        """Asks the i-th prompt; returns its answer, and the files of its pages in order."""
        before = page_files(home)
        answer, cached = ask(s, prompt_of(i))
        saved(s)
        new = [p for name, p in page_files(home).items() if name not in before]
        assert cached == 0 and len(new) == 3, (i, cached, new)
        whole = {p: p.read_bytes() for p in new}
        heads = [struct.pack(f"<{PAGE}i", *prompt_of(i)[k * PAGE:(k + 1) * PAGE]) for k in range(3)]
        return answer, [next(p for p in new if h in whole[p][:HEAD]) for h in heads]
    first, files = keep(0)
    good = files[1].read_bytes()
    ways = spoilt(good, {"the page before": files[0].read_bytes(), "another model": next(elsewhere.glob("*.page")).read_bytes()})
    kept = [(first, files)] + [keep(i + 1) for i in range(len(ways))]
    for (name, spoil), (_, files) in zip(ways.items(), kept[1:]):
        fresh = spoilt(files[1].read_bytes(), {}).get(name, spoil)   # of its own bytes
        fresh(files[1])
    restart(s)
    assert ask(s, prompt_of(0)) == (kept[0][0], 3 * PAGE)
    for i, (name, (answer, _)) in enumerate(zip(ways, kept[1:])):
        again, cached = ask(s, prompt_of(i + 1))
        assert again == answer and cached == PAGE, (name, cached, again, answer)
    saved(s)
    refused = s.metrics()["infcgi_snapshot_refused_total"]
    assert len(ways) - 2 <= refused + s.metrics()["infcgi_snapshot_read_errors_total"] <= len(ways), (refused, len(ways), s.log()[-2000:])
    restart(s)   # files that could be rewritten are as before
    again = [ask(s, prompt_of(i + 1)) for i in range(len(ways))]
    assert [a for a, _ in again] == [answer for answer, _ in kept[1:]]
    late = [(name, cached) for name, (_, cached) in zip(ways, again) if cached != 3 * PAGE]
    assert len(late) <= 1, late


# --- a folder of snapshots that cannot be written ---------------------------------------------------------------------

def no_room(s, path):
    """Limits the engine's files to less than a page; this also affects its log, which loses lines."""
    def limit(n):
        resource.prlimit(s.engine.pid, resource.RLIMIT_FSIZE, (n, resource.RLIM_INFINITY))
    limit(4096)
    return lambda: limit(resource.RLIM_INFINITY)


def removed(s, path):
    shutil.rmtree(path)
    return lambda: path.mkdir(mode=0o700)


def a_file_in_its_place(s, path):
    shutil.rmtree(path)
    path.write_text("x")

    def back():
        path.unlink()
        path.mkdir(mode=0o700)
    return back


def a_link_in_its_place(s, path):
    path.rename(path.with_name("moved"))
    path.symlink_to("/proc/self")
    return path.unlink


def full(s, path):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", path], check=True)
    (path / "filler").write_bytes(bytes(60 << 10))
    return lambda: subprocess.run(["umount", path], check=True)


def may_mount(path):
    run = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", path], capture_output=True)
    return run.returncode == 0 and subprocess.run(["umount", path], check=True).returncode == 0


def test_a_folder_that_cannot_be_written_stops_snapshots_alone(ctx):
    """R06: answers are as without snapshots, failures are counted and logged only a few times, and no partial file remains."""
    home = folder(ctx, "infcgi-kv.")
    s = ctx.start(*ARGS, "--cache-dir", str(home / "kv"), model=TINY)
    ways = [no_room, removed, a_file_in_its_place, a_link_in_its_place, *([full] if may_mount(home) else [])]
    plain = {i: ask(s, prompt_of(i))[0] for i in range(len(ways))}
    for i, way in enumerate(ways):
        half = home / "kv" / (64 * f"{i}" + ".page.tmp")
        half.write_bytes(b"half") # like a kill in the middle of writing
        restart(s)
        assert harness.until(lambda half=half: not half.exists()), way # before the folder is replaced
        errors = s.metrics()["infcgi_snapshot_write_errors_total"]
        back = way(s, home / "kv")
        try:
            for k in range(4):
                assert ask(s, prompt_of(100 + 4 * i + k))[1] == 0
            assert ask(s, prompt_of(i))[0] == plain[i], way
            assert harness.until(lambda: s.metrics()["infcgi_snapshot_write_errors_total"] > errors), (way, s.metrics())
            assert s.engine.poll() is None and s.request("GET", "/health").status == 200
        finally:
            back()
        if (home / "moved").exists():
            (home / "moved").rename(home / "kv")
        left = lambda: [p.name for p in (home / "kv").iterdir() if p.suffix != ".page" and p.name != "key"]
        assert harness.until(lambda: not left()), (way, left()) # except the one being written when there was room again
    told = [line for line in s.log().splitlines() if " snapshot" in line and " warn " in line]
    assert len(told) <= 2 * len(ways), told


# --- descriptors, the log ---------------------------------------------------------------------------------------------

def silent(s, n):
    """Opens n connections to the engine that send nothing; fewer if it accepts no more."""
    opened = []
    for _ in range(n):
        c = socket.socket(socket.AF_UNIX)
        c.connect(f"{s.dir}/infcgi.sock")
        opened.append(c)
    return opened


def test_without_descriptors_it_waits_and_goes_on(ctx):
    """R08, D01: more clients than descriptors, silent, incomplete, or with a request; when they leave, it answers as before."""
    s = ctx.start(*ARGS, model=TINY, prefix=[shutil.which("prlimit"), "--nofile=40"])
    expected = ask(s, prompt_of(1))
    for data in (b"", records_test.begin(), records_test.begin() + records_test.params(**records_test.HEALTH)):
        opened = silent(s, 80)
        for c in opened:
            c.sendall(data)
        assert s.engine.poll() is None
        for c in opened:
            c.close()
        assert harness.until(lambda: s.request("GET", "/health").status == 200, 20), s.log()[-2000:]
        assert ask(s, prompt_of(1))[0] == expected[0]
    assert s.log().count("accept_failed") < 400, "it spins"


def test_more_requests_than_descriptors(ctx):
    """R08: each waits for a descriptor, and is answered."""
    s = ctx.start(*ARGS, model=TINY, prefix=[shutil.which("prlimit"), "--nofile=40"])
    answers = harness.at_once([lambda i=i: s.post(URL, {"prompt": prompt_of(i), "max_tokens": 40, "ignore_eos": True}) for i in range(100)])
    assert {r.status for r in answers} == {200}, [r.body for r in answers if r.status != 200][:3]


def test_silent_connections_make_room(ctx):
    """F15: the maximum number of connections, all silent, delay a client with a request for a moment, not for their ten seconds, and are
    closed."""
    s = ctx.start(*ARGS, "--max-connections", "8", model=TINY)
    def ask_after_them():
        opened = silent(s, 24)
        r = s.request("GET", "/health", timeout=20)
        assert r.status == 200, (r.status, r.body)
        return opened
    opened = harness.quick(10 if ctx.is_slow else 4, ask_after_them)   # three times eight, half a second each
    assert ask(s, prompt_of(1))[0]
    for c in opened[:16]:   # connections whose slots others need; the last can stay for their ten seconds
        c.settimeout(5)
        assert c.recv(1) == b""
    for c in opened:
        c.close()


@harness.in_release
def test_thousands_of_silent_connections(ctx):
    """F15: more than the backlog. The number of accepted connections is bounded, all are closed, and service continues."""
    s = ctx.start(*ARGS, model=TINY)
    files, opened = pathlib.Path(f"/proc/{s.engine.pid}/fd"), []
    until, n_refused = time.monotonic() + 60, 0
    s.engine.send_signal(signal.SIGSTOP)   # until the backlog is full, because it accepts them as fast as they arrive
    while len(opened) < 3000 and time.monotonic() < until:   # backlog and slots take 1,024 each: the others connect as these are closed
        c = socket.socket(socket.AF_UNIX)
        c.setblocking(False)
        try:
            c.connect(f"{s.dir}/infcgi.sock")
            opened.append(c)
        except BlockingIOError:
            c.close()
            n_refused += 1
            s.engine.send_signal(signal.SIGCONT)
            assert len(list(files.iterdir())) < 1024 + 100
            time.sleep(0.001)
    assert len(opened) == 3000 and n_refused > 0 and len(list(files.iterdir())) < 1024 + 100, (len(opened), n_refused)
    assert harness.until(lambda: s.request("GET", "/health").status == 200, 30, 0.1)
    for c in opened[:-1024]:   # no client waits for the slots of the last
        c.settimeout(30)
        assert c.recv(1) == b""
    for c in opened:
        c.close()
    assert ask(s, prompt_of(1))[0]
    assert harness.until(lambda: len(list(files.iterdir())) < 100)


def serve_with_stderr(ctx, s, to, *args):
    """Restarts the server of `s` with its log in that file."""
    s.stop_engine()
    s.engine = subprocess.Popen(["spawn-fcgi", "-n", "-s", f"{s.dir}/infcgi.sock", "--", str(s.binary), "serve", "--model", str(TINY), *ARGS, *args],
                                stdin=subprocess.DEVNULL, stdout=to, stderr=to, start_new_session=True)
    s.wait_ready()


def status_of(s):
    return s.post(URL, {"prompt": [1, 2, 3], "max_tokens": 1}, headers={"X-Request-Id": "x" * 64}).status


def loses_lines(s):
    for _ in range(100):
        assert status_of(s) == 200
    return s.metrics()["infcgi_log_dropped_total"] > 0


def test_a_log_that_nobody_reads_holds_up_nobody(ctx):
    """R13: lines are lost and counted, and nothing waits at the end. With a master, which logs itself, a worker is replaced."""
    s = ctx.start(*ARGS, model=TINY)
    for args in ((), ("--master",)):
        mine, its = os.pipe()
        try:
            serve_with_stderr(ctx, s, its, *args)
            assert harness.until(lambda: loses_lines(s), 60)
            assert s.request("GET", "/health").status == 200
            for _ in range(3 if args else 0):
                begin, worker = time.monotonic(), master_test.worker_of(s)
                os.kill(worker, signal.SIGKILL)
                assert harness.until(lambda: status_of(s) == 200, 20), "no worker took its place"
                assert master_test.worker_of(s) != worker and time.monotonic() - begin < 20
            s.engine.terminate()
            assert s.engine.wait(20) == 0
            assert b" ready " in os.read(mine, 65536)
        finally:
            os.close(mine)
            os.close(its)


def test_a_log_that_cannot_be_written(ctx):
    """R13: a full disk, and a reader that left."""
    s = ctx.start(*ARGS, model=TINY)
    for args in ((), ("--master",)):
        with open("/dev/full", "wb") as full:
            serve_with_stderr(ctx, s, full, *args)
        assert harness.until(lambda: loses_lines(s), 60)
        mine, its = os.pipe()
        serve_with_stderr(ctx, s, its, *args)
        os.close(its)
        os.close(mine)
        assert harness.until(lambda: loses_lines(s), 60)
        if args:
            worker = master_test.worker_of(s)
            os.kill(worker, signal.SIGKILL)
            assert harness.until(lambda: status_of(s) == 200, 20), "no worker took its place"
        s.engine.terminate()
        assert s.engine.wait(20) == 0


# --- requests that never repeat ---------------------------------------------------------------------------------------

@harness.in_release
def test_what_never_comes_again_fills_nothing(ctx):
    """R16: prefixes, salts and schemas of one request each. What is kept of them has a bound."""
    s = ctx.start(*ARGS, "--parallel", "4", model=TINY)
    schema, memory = {"type": "object", "required": ["name"]}, 'infcgi_memory_bytes{purpose="grammar"}'
    sizes, n = [], 100 if ctx.is_slow else 600

    def ask_all(first):
        for i in range(first, first + n):
            names = {"name": {"enum": [f"{i}-{k}" for k in range(40)]}}
            assert s.post(URL, {"prompt": prompt_of(i), "max_tokens": 2, "cache_salt": f"salt {i}", "json_schema": {**schema, "properties": names}}).status == 200
        sizes.append((memory_test.kib_of(s, "VmRSS"), s.metrics()[memory] / 1024))
    for k in range(5):
        ask_all(k * n)
    if not ctx.is_slow:   # a sanitizer keeps freed memory
        assert sizes[4][0] < sizes[1][0] + 8192 and 0 < sizes[4][1] < sizes[1][1] + 8192, sizes
    assert s.idle()


# --- threads and processes -----------------------------------------------------------------------------------------------

def no_process(ctx):
    """Returns no_process.c's environment, and a file that it looks for."""
    path = folder(ctx, "infcgi-process.")
    library = path / "no_process.so"
    subprocess.run(["gcc", "-std=gnu17", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, harness.ROOT / "tests/e2e/no_process.c", "-ldl"], check=True)
    return {"LD_PRELOAD": str(library), "NO_PROCESS_WHILE": str(path / "none"), "ASAN_OPTIONS": "verify_asan_link_order=0"}, path / "none"


@harness.in_release
def test_a_system_that_gives_no_thread_at_the_start(ctx):
    """R09: whichever thread is missing, the start fails and says why."""
    env, _ = no_process(ctx)
    threads = ctx.start(*ARGS, "--threads", "2", "--cache-dir", str(folder(ctx, "infcgi-kept.")), model=TINY).ask("threads")
    for n in range(len([t for t in threads if t["name"] != "request"]) - 1):   # the first was not created
        s = ctx.start(*ARGS, "--threads", "2", "--cache-dir", str(folder(ctx, "infcgi-kept.")), model=TINY, wait=False, env={**env, "NO_THREAD_FROM": str(n)})
        assert s.engine.wait(60) not in (0, 1) and s.engine.returncode > 0, (n, s.engine.returncode, s.log())
        assert s.log().startswith("error: ") or "\nerror: " in s.log(), (n, s.log())
        error = [line for line in s.log().splitlines() if line.startswith("error: ")][-1]   # lines of the log can follow it
        assert re.search("internal_error: cannot start .*thread", error), (n, s.log())


@harness.in_long
def test_a_system_that_gives_no_process_for_a_while(ctx):
    """R09: new requests wait, and are answered when threads are available again; running streams continue."""
    env, file = no_process(ctx)
    s = ctx.start(*ctx.ARGS, "--master", env=env)
    file.touch()
    connection, response = s.stream(URL, {"prompt": [1, 2, 3], "max_tokens": 900, "ignore_eos": True})   # has the only thread
    response.readline()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = [pool.submit(status_of, s) for _ in range(3)]
        assert harness.until(lambda: " no_thread " in s.log(), 20), s.log()
        time.sleep(1)
        assert s.log().count(" no_thread ") == 1, s.log()
        file.unlink()
        assert [w.result() for w in waiting] == [200] * 3
    assert list(harness.events(iter(response.readline, b"")))[-1] is None
    connection.close()
    file.touch()
    os.kill(master_test.worker_of(s), signal.SIGKILL)
    assert harness.until(lambda: s.log().count(" worker_not_started ") >= 3, 20), s.log()
    file.unlink()
    assert harness.until(lambda: status_of(s) == 200, 20), s.log()


# --- reloaded files ---------------------------------------------------------------------------------------------------

def no_files():
    """Returns what can be in the place of a text file: name, and a function that puts it there."""
    return {"nothing": lambda p: None, "a folder": os.mkdir, "a FIFO": os.mkfifo, "a link to itself": lambda p: p.symlink_to(p),
            "/dev/zero": lambda p: p.symlink_to("/dev/zero"), "NUL bytes": lambda p: p.write_bytes(b"\0" * 100),
            "64 MiB": lambda p: p.write_bytes(b"x" * (64 << 20)),
            "noise": lambda p: p.write_bytes(bytes(range(255, 0, -1)) * 20), "a long line": lambda p: p.write_bytes(b"[" + b"a" * 70000 + b"]\n")}


def away(path):
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink(missing_ok=True)


def test_what_is_no_file_keeps_the_old(ctx):
    """SIGHUP for options, keys and tenants: each is kept and reported with its path, and no request is delayed."""
    home = folder(ctx, "infcgi-files.")
    texts = {"infcgi.conf": "body-limit = 64\n", "keys": "sk-key\n", "tenants": "[anna]\nkey = sk-anna\nweight = 3\n"}
    for name, text in texts.items():
        (home / name).write_text(text)
    s = ctx.start(*ARGS, "--config", str(home / "infcgi.conf"), "--api-key-file", str(home / "keys"), "--tenants", str(home / "tenants"), model=TINY)
    says = {"infcgi.conf": "options_kept", "keys": "api_keys_kept", "tenants": "tenants_kept"}

    def works():
        for key in "sk-key", "sk-anna":
            r = s.post(URL, {"prompt": [1, 2, 3], "max_tokens": 1}, headers={"Authorization": f"Bearer {key}"})
            assert r.status == 200, (key, r.status, r.body, s.log()[-2000:])
        assert s.request("GET", "/v1/models", headers={"Authorization": "Bearer sk-other"}).status == 401
    works()
    for name, text in texts.items():
        path = home / name
        for what, put in no_files().items():
            n = s.log().count(says[name])
            away(path)
            put(path)
            s.engine.send_signal(signal.SIGHUP)
            assert harness.until(lambda: s.log().count(says[name]) == n + 1), (name, what, s.log()[-1500:])
            line = [x for x in s.log().splitlines() if says[name] in x][-1]
            assert str(path) in line and len(line) < 1500, (name, what, line)
            works()
        away(path)
        path.write_text(text)
    s.engine.send_signal(signal.SIGHUP)
    assert harness.until(lambda: s.log().splitlines()[-3:] and "tenants_reloaded" in s.log()), s.log()[-1500:]
    works()


def test_a_reload_without_its_file_keeps_the_worker(ctx):
    """SIGUSR2, with the same instead of the options: the worker continues, and once the file is back the next one takes over."""
    home = folder(ctx, "infcgi-reload.")
    s, write = master_test.configured(ctx, home, model=TINY, alias="old", threads=1)
    path, worker = home / "infcgi.conf", master_test.worker_of(s)
    for what, put in no_files().items():
        n = s.log().count("reload_failed")
        away(path)
        put(path)
        s.engine.send_signal(signal.SIGUSR2)
        assert harness.until(lambda: s.log().count("reload_failed") == n + 1), (what, s.log()[-1500:])
        assert master_test.names(s) == ["old"] and master_test.workers_of(s.engine.pid) == [worker], what
    away(path)
    write(alias="new")
    s.engine.send_signal(signal.SIGUSR2)
    assert harness.until(lambda: master_test.names(s) == ["new"], 30), s.log()[-1500:]
