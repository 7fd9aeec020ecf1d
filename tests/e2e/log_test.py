"""The log's destinations and lines: the journal's priorities, a file that is moved away, tenants, reloads; and --check-config."""
import os
import pathlib
import re
import signal
import subprocess
import tempfile

import harness
from master_test import TINY, is_alive, worker_of

COMPLETIONS = "/v1/completions"
SMALL = ("--threads", "1", "--ctx-size", "256")
LINE = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (info|warn|error) \w"


def test_lines_to_the_journal_have_a_priority(ctx):
    """Of log lines, of the error that ends the process, and of a master's workers; other streams do not change."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "journal"
        for is_journal in (True, False):
            with open(path, "wb") as err:
                st = os.fstat(err.fileno())
                stream = f"{st.st_dev}:{st.st_ino}" if is_journal else f"{st.st_dev}:{st.st_ino + 1}"
                run = subprocess.Popen([ctx.binary, "serve", "--master", *SMALL, "--model", TINY, "--socket", f"{folder}/s"], stdin=subprocess.DEVNULL,
                                       stderr=err, env={**os.environ, "JOURNAL_STREAM": stream})
                assert harness.until(lambda: " ready model=" in path.read_text(), 60), path.read_text()
                run.send_signal(signal.SIGTERM)
                assert run.wait(60) == 0
                lines = path.read_text().splitlines()
                assert any("worker_started" in line for line in lines) and len(lines) > 4, lines
                for line in lines:
                    assert re.match(("<[46]>" if is_journal else "") + LINE, line), line
                    assert not is_journal or line.startswith("<4>") == (" warn " in line[:40]), line
                bad = subprocess.run([ctx.binary, "serve", "--model", "/nowhere.gguf", "--socket", f"{folder}/s"], stdin=subprocess.DEVNULL,
                                     stderr=err, env={**os.environ, "JOURNAL_STREAM": stream})
                assert bad.returncode == 65
                last = path.read_text().splitlines()[-1]
                assert last.startswith("<3>error: " if is_journal else "error: "), last


def test_a_log_file_that_is_moved_away(ctx):
    """Master and worker append to it; after SIGUSR1 both write to the new file, and no line is lost or truncated."""
    for master in ((), ("--master",)):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "infcgi.log"
            path.write_text("before\n")
            s = ctx.start(*SMALL, *master, "--log-file", str(path), model=TINY)
            assert path.read_text().startswith("before\n") and " ready model=" in path.read_text() and s.log() == "", s.log()
            for i in range(3):
                assert s.post(COMPLETIONS, {"prompt": [1, 2], "max_tokens": 1}).status == 200
                assert harness.until(lambda: path.read_text().count(" request id=") == 1, 10), path.read_text()
                old = path.rename(pathlib.Path(folder) / f"old{i}")
                s.engine.send_signal(signal.SIGUSR1)
                n_openers = 2 if master else 1
                assert harness.until(lambda: path.exists() and path.read_text().count("log_file_reopened") == n_openers, 30), path.read_text()
                assert old.read_text().count(" request id=") == 1
            path.unlink()
            os.mkdir(path)   # cannot be opened: the old file, now without a name, stays open
            s.engine.send_signal(signal.SIGUSR1)
            assert s.post(COMPLETIONS, {"prompt": [1, 2], "max_tokens": 1}).status == 200
            os.rmdir(path)
            s.engine.send_signal(signal.SIGUSR1)
            assert harness.until(lambda: path.exists() and path.read_text().count("log_file_reopened") == n_openers, 30)
            text = "".join(p.read_text() for p in pathlib.Path(folder).iterdir()).replace("before\n", "")
            assert all(re.match(LINE, line) for line in text.splitlines()), text
    bad = subprocess.run([ctx.binary, "serve", "--model", TINY, "--log-file", "/nowhere/log"], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert bad.returncode == 78 and "/nowhere/log" in bad.stderr, bad


def test_lines_of_requests_name_the_tenant(ctx):
    with tempfile.TemporaryDirectory() as folder:
        tenants = pathlib.Path(folder) / "tenants"
        tenants.write_text("[anna]\nkey = sk-secret-anna\n[bert]\nkey = sk-secret-bert\nrequests-per-minute = 1\n")
        s = ctx.start(*SMALL, "--tenants", str(tenants), model=TINY)
        auth = {"Authorization": "Bearer sk-secret-anna"}
        assert s.post(COMPLETIONS, {"prompt": [1, 2], "max_tokens": 1}, headers=auth).status == 200
        assert s.post(COMPLETIONS, {"prompt": [1, 2], "max_tokens": 1}, headers={"Authorization": "Bearer sk-wrong"}).status == 401
        assert s.request("POST", COMPLETIONS, b"{}", {**auth, "Content-Type": "text/plain"}).status == 415
        busy = {"Authorization": "Bearer sk-secret-bert"}
        assert [s.post(COMPLETIONS, {"prompt": [1, 2], "max_tokens": 1}, headers=busy).status for _ in range(2)] == [200, 429]
        for line in (r" request id=\S+ route=/v1/completions tenant=anna status=200 ", r" generation id=\S+ tenant=anna ",
                     r" request id=\S+ route=/v1/completions tenant=- status=401 ",
                     r" request id=\S+ route=/v1/completions tenant=anna status=415 ", r" request id=\S+ route=/v1/completions tenant=bert status=429 "):
            assert harness.until(lambda line=line: re.search(line, s.log()), 10), (line, s.log())
        assert "secret" not in s.log() and "sk-wrong" not in s.log()


def test_a_reload_says_what_it_changes(ctx):
    """Nothing, and why: the environment overrides the file, at each start and at each reload."""
    with tempfile.TemporaryDirectory() as folder:
        options = pathlib.Path(folder) / "infcgi.conf"
        options.write_text("timeout = 7\nbody-limit = 64\n")
        s = ctx.start(*SMALL, "--master", "--config", str(options), model=TINY, env={"INFCGI_TIMEOUT": "9", "INFCGI_BODY_LIMIT": "64"})
        says = f'warn environment_overrides variables="INFCGI_TIMEOUT" file="{options}"'
        assert s.log().count(says) == 1, s.log()
        first = worker_of(s)
        s.engine.send_signal(signal.SIGHUP)
        assert harness.until(lambda: s.log().count("info options_unchanged") == 1 and s.log().count(says) == 2, 10), s.log()
        options.write_text("timeout = 8\nbody-limit = 64\n")   # the environment overrides it
        s.engine.send_signal(signal.SIGHUP)
        assert harness.until(lambda: s.log().count("info options_unchanged") == 2 and s.log().count(says) == 3, 10), s.log()
        s.engine.send_signal(signal.SIGUSR2)
        assert harness.until(lambda: 'reload asked=SIGUSR2 changed="nothing"' in s.log(), 10), s.log()
        assert harness.until(lambda: f"worker_left pid={first}\n" in s.log(), 60), s.log()   # else the next reload waits for it
        assert harness.until(lambda: s.log().count(says) == 4, 10), s.log()
        second = worker_of(s)
        options.write_text("timeout = 8\nbody-limit = 64\nbatch-size = 64\n")
        s.engine.send_signal(signal.SIGHUP)
        assert harness.until(lambda: 'options_wait names="batch-size"' in s.log(), 10), s.log()
        s.engine.send_signal(signal.SIGUSR2)
        assert harness.until(lambda: 'reload asked=SIGUSR2 changed="batch-size"' in s.log(), 10), s.log()
        assert harness.until(lambda: not is_alive(second), 60)


def test_check_config_touches_nothing(ctx):
    """Next to a running server it creates no file, allocates no memory for weights, and reports checks that it skips because this user
    lacks permission."""
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        home.chmod(0o755)
        (home / "keys").write_text("sk-a\n")
        (home / "infcgi.conf").write_text("timeout = 7\n")
        paths = {name: str(home / name) for name in ("pack", "cache", "usage", "log", "socket", "admin", "slow")}

        def check(*args, env=None, user=None, **more):
            return subprocess.run([ctx.binary, "serve", "--check-config", "--config", home / "infcgi.conf", "--model", more.get("model", TINY),
                                   "--api-key-file", home / "keys", "--pack-cache", paths["pack"], "--cache-dir", paths["cache"],
                                   "--usage-log", paths["usage"], "--log-file", paths["log"], "--socket", paths["socket"],
                                   "--admin-socket", paths["admin"], "--slow-log", "1", "--slow-log-file", paths["slow"], *args],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, env={**os.environ, **(env or {})}, user=user)
        ok = check(env={"INFCGI_TIMEOUT": "9"})
        assert ok.returncode == 0 and "configuration ok" in ok.stdout and "INFCGI_TIMEOUT" in ok.stdout and ok.stderr == "", ok
        assert sorted(p.name for p in home.iterdir()) == ["infcgi.conf", "keys"]
        assert check("--ctx-size", "128", "--kv-tokens", "100000000").returncode == 65   # exceeds the machine's memory
        assert check("--memory-limit", "1").returncode == 65
        assert check("--pooling", "rank").returncode == 64
        assert check(model=harness.ROOT / "README.md").returncode == 65
        if os.getuid() == 0 and os.access(ctx.binary, os.X_OK):
            (home / "keys").chmod(0o600)
            binary = home / "infcgi"   # where another user can read it
            binary.write_bytes(pathlib.Path(ctx.binary).read_bytes())
            binary.chmod(0o755)
            model = home / "model.gguf"
            model.write_bytes(TINY.read_bytes())
            run = subprocess.run([binary, "serve", "--check-config", "--model", model, "--api-key-file", home / "keys"], stdin=subprocess.DEVNULL,
                                 capture_output=True, text=True, timeout=60, user=65534, cwd="/")
            assert run.returncode == 0 and f"not checked: api-key-file {home}/keys" in run.stdout and "configuration ok" in run.stdout, run
