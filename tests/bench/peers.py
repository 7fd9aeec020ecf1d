"""The programs that `make bench-peer` measures infcgi against. To add one, write a class with the methods of LlamaCpp, add it to PEERS, and
teach peer_build.sh to build it."""
import itertools
import json
import os
import pathlib

import machine
from programs import FIRST_CONTEXT, FIRST_PROMPT, STREAM_PROMPT, Failed, first_token, listed, run

HERE = pathlib.Path(__file__).resolve().parent
TRIAL_PROMPT, TRIAL_GEN = 64, 2
NO_AMX = "no-amx"  # peer_build.sh knows it


def flatten(setting):
    return list(itertools.chain.from_iterable(setting))


class LlamaCpp:
    """llama.cpp's programs in a folder. A setting is a tuple of (option, value)."""
    NAME, VARIABLE = "llama.cpp", "PEER_BIN"
    ON, OFF, REPACK = "on", "off", "--repack"  # values of -fa, and the option that repacks weights
    FIRST = "llama-completion"

    def __init__(self, folder, threads):
        self.folder, self.threads, self.build = folder, threads, ""

    @classmethod
    def builds(cls):
        """Names of the builds, the best one first. A later one runs on CPUs where an earlier one crashes."""
        return ["native", NO_AMX] if "amx" in machine.cpu()[1] else ["native"]

    def has(self, program):
        return os.access(f"{self.folder}/{program}", os.X_OK)

    def program(self, name):
        return f"{self.folder}/{name}"

    def kept_version(self):
        try:
            return pathlib.Path(self.folder, "version").read_text(encoding="utf-8").strip()
        except OSError:
            return ""

    def version(self):
        """A line about the build."""
        return self.kept_version() or f"{self.title()}, a build of the caller's ({self.VARIABLE})"

    def title(self):
        """Name and version, short."""
        return self.kept_version().split(" (")[0] or f"{self.NAME} {self.build}".strip()

    def trial(self, model):
        """Raises Died or Failed if the program cannot run the model; notes its version. --verbose, because only then it says why."""
        said = run([self.program("llama-bench"), "-m", model, "-t", str(self.threads), "-p", str(TRIAL_PROMPT), "-n", str(TRIAL_GEN),
                    "-r", "1", "-o", "json", "--verbose"])
        self.build = self.build_name(json.loads(said)[0])

    def build_name(self, row):
        return f"b{row['build_number']}" if row.get("build_number") else ""

    def lacks(self, cell):
        """Why the program cannot measure a cell; empty if it can."""
        if cell.is_start() and not self.has(self.FIRST):
            return f"there is no {self.FIRST} in {self.VARIABLE}"
        return ""

    def settings(self, cell, shallow):
        """Settings to try for a cell. shallow(): the best one of the same kind of work without depth."""
        both = itertools.product((self.ON, self.OFF), ("1", "0"))
        if cell.is_start():
            return [((self.REPACK, repack),) for repack in ("1", "0")]
        if cell.seqs > 1:
            return [(("-fa", fa), (self.REPACK, repack), *more) for fa, repack in both for more in self.stream_settings()]
        if cell.depth:  # only with flash attention can V be quantised
            return [tuple((option, fa if option == "-fa" else value) for option, value in shallow())
                    for fa in ((self.ON,) if cell.kv != "f16" else (self.ON, self.OFF))]
        batches = [(("-ub", n),) for n in ("512", "256", "128")] if cell.prompt else [()]
        return [(("-fa", fa), (self.REPACK, repack), *more) for fa, repack in both for more in batches]

    def stream_settings(self):
        return [(("-kvu", "0"),), (("-kvu", "1"),)]

    def bench(self, model, cells, setting, runs):
        """{cell: tokens a second of each run} for cells of one depth and KV type."""
        if cells[0].seqs > 1:
            return self.streams(model, cells, dict(setting), runs)
        speeds = {}
        for row in self.rows(model, cells, setting, runs):
            for cell in cells:
                if (row["n_prompt"], row["n_gen"]) == (cell.prompt, cell.gen):
                    speeds[cell] = [cell.tokens() * 1e9 / ns for ns in row["samples_ns"]]
        return speeds

    def rows(self, model, cells, setting, runs):
        depth, kv = cells[0].depth, cells[0].kv
        return json.loads(run([self.program("llama-bench"), "-m", model, "-t", str(self.threads), "-ctk", kv, "-ctv", kv, "-d", str(depth),
                               "-p", listed(c.prompt for c in cells if c.prompt), "-n", listed(c.gen for c in cells if c.gen),
                               *flatten(setting), "-r", str(runs), "-o", "json"]))

    def streams(self, model, cells, setting, runs):
        """llama-batched-bench has no repeats, but takes the same number of streams many times. The first warms up."""
        most, gen = max(c.seqs for c in cells), cells[0].gen
        counts = list(itertools.chain.from_iterable([c.seqs] * (runs + 1) for c in cells))
        speeds = self.stream_speeds([self.program("llama-batched-bench"), "-m", model, "-t", str(self.threads), "-tb", str(self.threads),
                                     "-ctk", "f16", "-ctv", "f16", "-fa", setting["-fa"], "-c", str(most * (STREAM_PROMPT + gen)),
                                     "-npp", str(STREAM_PROMPT), "-ntg", str(gen), "-npl", ",".join(str(n) for n in counts)], setting)
        if len(speeds) != len(counts):
            raise Failed(f"llama-batched-bench: expected {len(counts)} rows, found {len(speeds)}")
        return {cell: speeds[i * (runs + 1) + 1:(i + 1) * (runs + 1)] for i, cell in enumerate(cells)}

    def stream_speeds(self, command, setting):
        command += [self.repack(setting), "--kv-unified" if setting["-kvu"] == "1" else "--no-kv-unified", "--output-format", "jsonl"]
        return [json.loads(line)["speed_tg"] for line in run(command).splitlines() if line.startswith("{")]

    @staticmethod
    def repack(setting):
        return "--repack" if setting["--repack"] == "1" else "--no-repack"

    def first_command(self, model):
        return [self.program(self.FIRST), "-m", model, "-t", str(self.threads), "-tb", str(self.threads), "-p", FIRST_PROMPT, "-n", "1",
                "--temp", "0", "-c", str(FIRST_CONTEXT), "--no-warmup", "--no-display-prompt", "--simple-io"]

    def first_token(self, model, setting):
        return first_token([*self.first_command(model), "-no-cnv", self.repack(dict(setting))])


class IkLlamaCpp(LlamaCpp):
    """ik_llama.cpp: a fork with programs of the same names and other options."""
    NAME, VARIABLE = "ik_llama.cpp", "IK_BIN"
    ON, OFF, REPACK = "1", "0", "-rtr"
    FIRST, SWEEP = "llama-cli", "llama-sweep-bench"

    @classmethod
    def builds(cls):
        return ["native"]

    def build_name(self, row):
        return "" if row.get("build_commit", "unknown") == "unknown" else row["build_commit"]

    def lacks(self, cell):
        if cell.prompt and cell.depth and not self.has(self.SWEEP):
            return f"there is no {self.SWEEP} in {self.VARIABLE}"
        return super().lacks(cell)

    def settings(self, cell, shallow):
        if cell.prompt and cell.depth:  # SWEEP's micro-batch is the prompt
            return super().settings(cell, lambda: tuple(pair for pair in shallow() if pair[0] != "-ub"))
        return super().settings(cell, shallow)

    def stream_settings(self):
        return [()]

    def rows(self, model, cells, setting, runs):
        """llama-bench has no depth, but times generation after a prompt (-gp)."""
        kv, depth = cells[0].kv, cells[0].depth
        found, what = [], ["-p", listed(c.prompt for c in cells if c.prompt), "-n", listed(c.gen for c in cells if c.gen)]
        if depth:
            found = [{"n_prompt": c.prompt, "n_gen": 0, "samples_ns": self.sweep(model, c, dict(setting), runs)} for c in cells if c.prompt]
            what = ["-p", "0", "-n", "0", *flatten(("-gp", f"{depth},{c.gen}") for c in cells if c.gen)]
            if all(c.prompt for c in cells):
                return found
        said = run([self.program("llama-bench"), "-m", model, "-t", str(self.threads), "-ctk", kv, "-ctv", kv, *what, *flatten(setting),
                    "-r", str(runs), "-o", "json"])
        return found + [row | {"n_prompt": row["n_prompt"] - depth} for row in json.loads(said)]

    def sweep(self, model, cell, setting, runs):
        """Nanoseconds of a prompt after a context that SWEEP computes in steps of the prompt's length, of which it times this one alone."""
        command = [self.program(self.SWEEP), "-m", model, "-t", str(self.threads), "-tb", str(self.threads), "-ctk", cell.kv, "-ctv", cell.kv,
                   "-c", str(cell.depth + cell.prompt), "-ub", str(cell.prompt), "-n", "1", "--sweep-stride", str(cell.depth // cell.prompt),
                   "-fa", setting["-fa"], *self.repack(setting), "--output-format", "jsonl"]
        times = []
        for _ in range(runs):
            rows = [json.loads(line) for line in run(command, with_stderr=True).splitlines() if line.startswith("{")]
            times += [row["t_pp"] * 1e9 for row in rows if row["n_kv"] == cell.depth]
        if len(times) != runs:
            raise Failed(f"{self.SWEEP}: expected {runs} rows at {cell.depth} tokens, found {len(times)}")
        return times

    def stream_speeds(self, command, setting):
        said = run([*command, *self.repack(setting)], with_stderr=True).splitlines()
        rows = [[part.strip() for part in line.strip().strip("|").split("|")] for line in said if line.startswith("|")]
        return [float(row[7]) for row in rows if row[0].isdigit()]  # PP, TG, B, N_KV, T_PP, S_PP, T_TG, S_TG, T, S

    @staticmethod
    def repack(setting):
        return (["-rtr"] if setting["-rtr"] == "1" else []) + ["--log-disable"]  # no log file in the current folder

    def first_token(self, model, setting):
        return first_token([*self.first_command(model), *self.repack(dict(setting))])


class OpenVino(LlamaCpp):
    """OpenVINO GenAI, in a virtual environment whose Python runs openvino_bench.py. A setting is a tuple of (property, value)."""
    NAME, VARIABLE = "openvino", "OV_BIN"
    KV = {"f16": "f16", "q8_0": "u8"}

    @classmethod
    def builds(cls):
        return ["native"]

    def title(self):
        return self.kept_version().split(" (")[0] or f"OpenVINO GenAI {self.build}".strip()

    def command(self, model, setting, *more):
        return [self.program("python3"), str(HERE / "openvino_bench.py"), "--model", model, "--threads", str(self.threads),
                "--properties", json.dumps(dict(setting)), *more]

    def trial(self, model):
        self.build = json.loads(run(self.command(model, ())))["version"].split("-")[0]

    def lacks(self, cell):
        return ""

    def settings(self, cell, shallow):
        """Both kinds of attention. Only the paged one keeps the context before a prompt."""
        attention = ["PA"] if cell.prompt and cell.depth else ["PA", "SDPA"]
        kv = () if cell.is_start() else (("KV_CACHE_PRECISION", self.KV[cell.kv]),)
        return [(("ATTENTION_BACKEND", a), *kv) for a in attention]

    def bench(self, model, cells, setting, runs):
        asked = [{"prompt": c.prompt, "gen": c.gen, "depth": c.depth, "seqs": c.seqs} for c in cells]
        said = json.loads(run(self.command(model, setting, "--runs", str(runs), "--cells", json.dumps(asked))))
        return dict(zip(cells, said["speeds"]))

    def first_token(self, model, setting):
        return first_token(self.command(model, setting, "--first", FIRST_PROMPT))


PEERS = {kind.NAME: kind for kind in (LlamaCpp, IkLlamaCpp, OpenVino)}
