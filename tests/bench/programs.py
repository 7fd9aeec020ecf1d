"""Running infcgi and llama.cpp: one process for several tests where a program can, so that a long context is computed
once; and one process from its start to its first token."""
import itertools
import json
import os
import select
import statistics
import subprocess
import time

STREAM_PROMPT = 16  # tokens in front of each of many streams
FIRST_PROMPT = "The capital of France is"  # start to first token
FIRST_CONTEXT = 2048  # of both programs, as it decides their memory
FIRST_TIMEOUT_S = 300


class Failed(Exception):
    """A program that did not do what was asked; the text says what it said."""


def environment():
    # llama.cpp reads options from LLAMA_ARG_*; what the caller has there must not decide the race.
    return {k: v for k, v in os.environ.items() if not k.startswith(("LLAMA_", "INFCGI_"))}


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), check=False)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
        raise Failed(f"{os.path.basename(command[0])}: exit {done.returncode}: {said[:200]}")
    return done.stdout


def listed(values):
    return ",".join(str(v) for v in sorted(set(values))) or "0"


def first_token(command):
    """Milliseconds from the start of a process to the first byte it writes, and its peak resident MiB."""
    with open(os.devnull, "wb") as null:
        start = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=null, env=environment())
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
    if not first or process.returncode != 0:
        raise Failed(f"{os.path.basename(command[0])}: exit {process.returncode}, {len(first)} bytes of output")
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


class Llama:
    """llama.cpp's programs; a setting is a tuple of (option, value)."""

    def __init__(self, folder, threads):
        self.folder, self.threads = folder, threads

    def has(self, program):
        return os.access(f"{self.folder}/{program}", os.X_OK)

    def bench(self, model, cells, setting, runs):
        """As Infcgi.bench."""
        if cells[0].seqs > 1:
            return self.streams(model, cells, dict(setting), runs)
        depth, kv = cells[0].depth, cells[0].kv
        command = [f"{self.folder}/llama-bench", "-m", model, "-t", str(self.threads), "-ctk", kv, "-ctv", kv, "-d", str(depth),
                   "-p", listed(c.prompt for c in cells if c.prompt), "-n", listed(c.gen for c in cells if c.gen),
                   *itertools.chain.from_iterable(setting), "-r", str(runs), "-o", "json"]
        speeds = {}
        for row in json.loads(run(command)):
            for cell in cells:
                if (row["n_prompt"], row["n_gen"]) == (cell.prompt, cell.gen):
                    speeds[cell] = [cell.tokens() * 1e9 / ns for ns in row["samples_ns"]]
        return speeds

    def streams(self, model, cells, setting, runs):
        """llama-batched-bench has no repeats, but takes the same number of streams many times. The first warms up."""
        most, gen = max(c.seqs for c in cells), cells[0].gen
        counts = list(itertools.chain.from_iterable([c.seqs] * (runs + 1) for c in cells))
        command = [f"{self.folder}/llama-batched-bench", "-m", model, "-t", str(self.threads), "-tb", str(self.threads),
                   "-ctk", "f16", "-ctv", "f16", "-fa", setting["-fa"],
                   "--repack" if setting["--repack"] == "1" else "--no-repack",
                   "--kv-unified" if setting["-kvu"] == "1" else "--no-kv-unified",
                   "-c", str(most * (STREAM_PROMPT + gen)), "-npp", str(STREAM_PROMPT), "-ntg", str(gen),
                   "-npl", ",".join(str(n) for n in counts), "--output-format", "jsonl"]
        rows = [json.loads(line) for line in run(command).splitlines() if line.startswith("{")]
        if len(rows) != len(counts):
            raise Failed(f"llama-batched-bench: expected {len(counts)} rows, found {len(rows)}")
        return {cell: [r["speed_tg"] for r in rows[i * (runs + 1) + 1:(i + 1) * (runs + 1)]] for i, cell in enumerate(cells)}

    def first_token(self, model, setting):
        return first_token([f"{self.folder}/llama-completion", "-m", model, "-t", str(self.threads), "-tb", str(self.threads),
                            "-no-cnv", "-p", FIRST_PROMPT, "-n", "1", "--temp", "0", "-c", str(FIRST_CONTEXT), "--no-warmup",
                            "--no-display-prompt", "--simple-io",
                            "--repack" if dict(setting)["--repack"] == "1" else "--no-repack"])


def median(values):
    return statistics.median(values)
