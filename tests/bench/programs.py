"""Running programs, and infcgi: one process for several tests where a program can, so that a long context is computed once; and one
process from its start to its first token. peers.py has the other programs."""
import json
import os
import re
import select
import signal
import statistics
import subprocess
import tempfile
import time

STREAM_PROMPT = 16  # tokens in front of each of many streams
FIRST_PROMPT = "The capital of France is"  # start to first token
FIRST_CONTEXT = 2048  # of both programs, as it decides their memory
FIRST_TIMEOUT_S = 300


class Failed(Exception):
    """A program that did not do what was asked; the text says what it said."""


class Died(Failed):
    """A program that a signal ended."""


def environment():
    # llama.cpp reads options from LLAMA_ARG_*; what the caller has there must not decide the race.
    return {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "INFCGI_"))}


def check_end(name, status, said=""):
    """Raises Died or Failed, with the first line of its errors, unless the program ended well."""
    lines = said.strip().splitlines()
    first = next((line.strip()[:200] for line in lines if re.search("error|assert", line, re.IGNORECASE)), "")
    if status < 0:
        first = re.sub(r"^\S*/", "", first)  # a path of the machine that built it
        raise Died(f"{name}: {signal.strsignal(-status)} (signal {-status})" + (f": {first}" if first else ""))
    if status != 0:
        raise Failed(f"{name}: exit {status}: {first or (lines[-1].strip()[:200] if lines else 'nothing on stderr')}")


def run(command, with_stderr=False):
    """What the program writes to stdout, or to both."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace", env=environment(),
                          check=False)
    check_end(os.path.basename(command[0]), done.returncode, done.stderr)
    return done.stdout + (done.stderr if with_stderr else "")


def listed(values):
    return ",".join(str(v) for v in sorted(set(values))) or "0"


def first_token(command):
    """Milliseconds from the start of a process to the first byte it writes, and its peak resident MiB."""
    name = os.path.basename(command[0])
    with tempfile.TemporaryFile() as said:
        start = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=said, env=environment())
        ready, _, _ = select.select([process.stdout], [], [], FIRST_TIMEOUT_S)
        first = os.read(process.stdout.fileno(), 4096) if ready else b""
        elapsed_ms = (time.monotonic() - start) * 1000
        while ready and os.read(process.stdout.fileno(), 4096):
            pass
        if not ready:
            process.kill()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        process.stdout.close()
        if not ready:
            raise Failed(f"{name}: no output within {FIRST_TIMEOUT_S} s")
        said.seek(0)
        check_end(name, process.returncode, said.read().decode(errors="replace"))
    if not first:
        raise Failed(f"{name}: exit 0 without output")
    return elapsed_ms, usage.ru_maxrss / 1024


class Infcgi:
    """One setting: as it comes."""

    def __init__(self, binary, threads):
        self.binary, self.threads = binary, threads
        self.bench_help, self.generate_help = run([binary, "bench", "--help"]), run([binary, "generate", "--help"])

    def takes_kv_types(self):
        return "-ctk" in self.bench_help

    def packs_to_cache(self):
        return "--pack-cache" in self.generate_help

    def bench(self, model, cells, runs):
        """{cell: tokens a second of each run} for cells of one depth and KV type; notes in each what a run has to do."""
        depth, kv = cells[0].depth, cells[0].kv
        command = [self.binary, "bench", "-m", model, "-t", str(self.threads), "-d", str(depth), "-r", str(runs), "-o", "json",
                   "-p", listed(c.prompt for c in cells if c.prompt), "-n", listed(c.gen for c in cells if c.gen),
                   "-s", listed(c.seqs for c in cells)]
        if kv != "f16":
            command += ["-ctk", kv, "-ctv", kv]
        speeds = {}
        for row in json.loads(run(command)):
            for cell in cells:
                if (row["n_prompt"], row["n_gen"], row.get("n_seqs", 1)) == (cell.prompt, cell.gen, cell.seqs):
                    cell.read_bytes, cell.matmul_ops, cell.our_kv = row["read_bytes"], row["matmul_ops"], row["type_k"]
                    speeds[cell] = [cell.tokens() * 1e9 / ns for ns in row["samples_ns"]]
        return speeds

    def first_token(self, model, pack_cache):
        command = [self.binary, "generate", "-m", model, "-t", str(self.threads), "-p", FIRST_PROMPT, "-n", "1", "--temp", "0",
                   "-c", str(FIRST_CONTEXT), "--kv-tokens", str(FIRST_CONTEXT)]
        if self.packs_to_cache():
            command += ["--pack-cache", pack_cache or "off"]
        return first_token(command)


def median(values):
    return statistics.median(values)
