"""The drivers of `make bench-http`, with test servers, and `make bench-gpu`: tables, the CSV, and the input that they reject. The
generator of models with random weights."""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import harness

sys.path.insert(0, str(harness.ROOT / "tests/bench"))

import synth  # noqa: E402

DRIVER = harness.ROOT / "tests/bench/http_load.py"
SYNTH = harness.ROOT / "tests/bench/synth.py"


def drive(*args):
    return subprocess.run([sys.executable, DRIVER, "--tests", "1x16x1,3x8x4", "--rounds", "2", *map(str, args)],
                          capture_output=True, text=True, timeout=300)


@harness.in_release
def test_http_load_measures_in_turns(ctx):
    base, path = ctx.server.base, pathlib.Path(ctx.server.dir) / "load.csv"
    before = ctx.server.metrics()["infcgi_generated_tokens_total"]
    run = drive("--csv", path, "--about", "our words", f"a={base}", f"b={base}/v1")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "- our words" in run.stdout and "Not comparable" not in run.stdout, run.stdout
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [(r["server"], r["test"].split(",")[0]) for r in rows[:4]] == [("a", "1 stream")] * 2 + [("b", "1 stream")] * 2, rows
    assert len(rows) == 8 and all(float(r["tokens_s"]) > 0 and float(r["ttft_ms"]) > 0 for r in rows), rows
    assert {int(r["completion_tokens"]) for r in rows} == {1, 12}
    assert sum(line.startswith("| 3 streams, 8 words, 4 tokens | ") for line in run.stdout.splitlines()) == 2, run.stdout
    done = ctx.server.metrics()["infcgi_generated_tokens_total"] - before
    assert done == 2 * 3 * (1 + 12), done   # two names, three rounds including the one that is not counted


@harness.in_release
def test_http_load_says_what_cannot_be_compared(ctx):
    other = ctx.start("--threads", "1", model=harness.ROOT / "tests/golden/models/llama-gqa-tied.gguf")
    run = drive(f"a={ctx.server.base}", f"b={other.base}")
    assert run.returncode == 1 and "Not comparable: 1 stream, 16 words, prefill: prompt tokens differ: a " in run.stdout, run.stdout + run.stderr


@harness.in_release
def test_http_load_refuses(ctx):
    for args, says in ((("x=http://192.0.2.1:80",), "expected a loopback address, found 192.0.2.1"), (("http://127.0.0.1",), "expected NAME="),
                       ((f"a={ctx.server.base}", "--rounds", "101"), "1 to 100 rounds"), ((f"a={ctx.server.base}", "--tests", "1x1"), "expected STREAMSx"),
                       ((f"a=http://127.0.0.1:{harness.free_port()}",), "refused"), ((f"a={ctx.server.base}/nowhere",), "status 404")):
        run = drive(*args)
        assert run.returncode == 2 and run.stdout == "", (args, run.stdout)
        assert run.stderr.startswith("error: ") and says in run.stderr and run.stderr.count("\n") == 1, (args, run.stderr)


PEER = """#!/bin/sh
case "$*" in *"-ngl 99"*) ;; *) echo 'not all layers' >&2; exit 1 ;; esac
echo '[{"n_prompt": 512, "n_gen": 0, "avg_ts": 50.0}, {"n_prompt": 0, "n_gen": 128, "avg_ts": 20.0}]'
"""


@harness.in_long
def test_bench_gpu_measures_in_turns(ctx):
    peer = pathlib.Path(ctx.server.dir) / "llama-bench"
    peer.write_text(PEER)
    peer.chmod(0o755)
    model = harness.ROOT / "tests/golden/models/llama-gqa-tied.gguf"
    command = [sys.executable, harness.ROOT / "tests/bench/gpu.py", "--infcgi", ctx.binary, "--model", model, "--rounds", "2"]
    env = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}   # PoCL and its compiler do not free everything at exit
    run = subprocess.run([*command, "--llama-bench", peer], capture_output=True, text=True, timeout=300, env=env)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "| test | infcgi, tokens/s | llama.cpp, tokens/s | ratio |" in run.stdout, run.stdout
    assert " | 20.0 (20.0 to 20.0) | " in run.stdout and "A decoded token: 22 launches, 0.2 MB of weights" in run.stdout, run.stdout
    run = subprocess.run([*command, "--llama-bench", "/bin/false"], capture_output=True, text=True, timeout=300, env=env)
    assert run.returncode == 1 and "error: bench-gpu: false: exit 1" in run.stderr, run.stderr


@harness.in_release
def test_a_decoded_token_is_nine_launches_a_layer(ctx):
    if ctx.is_slow:
        return
    run = subprocess.run([ctx.binary, "bench", "--model", ctx.model, "--backend", "opencl", "-p", "0", "-n", "2", "-r", "1", "-o", "json"],
                         capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    row, layers = json.loads(run.stdout)[0], 30
    assert row["launches"] / row["n_gen"] == 9 * layers + 4, row["launches"]
    # The embedding is also the head, so a token reads the whole file except vectors, words and the like.
    assert 0.97 < row["weight_bytes"] / row["n_gen"] / row["model_size"] < 1.03, (row["weight_bytes"], row["model_size"])
    assert row["copy_bytes_s"] > 0 and row["queued_launch_us"] > 0 and row["launch_us"] > 0, row


@harness.in_release
def test_bench_uses_the_pack_cache(ctx):
    """The first run writes the packed weights and the second one maps them: the file does not change."""
    with tempfile.TemporaryDirectory(prefix="infcgi-pack.") as folder:
        command = [ctx.binary, "bench", "--model", harness.ROOT / "tests/golden/models/llama-biases.gguf", "--pack-cache", folder,
                   "-p", "4", "-n", "2", "-r", "1", "-o", "json"]
        written = []
        for _ in range(2):
            run = subprocess.run(command, capture_output=True, text=True, timeout=120)
            assert run.returncode == 0 and json.loads(run.stdout), run.stderr
            (pack,) = pathlib.Path(folder).iterdir()
            written.append((pack.name, pack.stat().st_ino, pack.stat().st_mtime_ns))
        assert written[0] == written[1], written


def test_synth_writes_models_that_load(ctx):
    sizes = {"width": 256, "n_heads": 4, "n_kv_heads": 2, "head": 64, "key_heads": 2, "value_heads": 4, "state": 64, "n_vocab": 1024}
    dense = synth.Shape("qwen35", 4, n_ff=512, is_tied=True, **sizes)
    experts = synth.Shape("qwen35moe", 8, n_experts=8, n_used=2, n_expert_ff=256, n_shared_ff=256, **sizes)
    path = pathlib.Path(ctx.server.dir) / "synth.gguf"
    said = {}
    for shape, has_head, kind in ((dense, False, "q4_K"), (dense, True, "q4_K"), (experts, False, "q6_K"), (experts, True, "q6_K")):
        synth.write(path, shape, "small", synth.TYPES[kind], synth.TYPES["q8_0"], has_head)
        listed = infcgi(ctx, "inspect", "--tensors", path)
        wanted = synth.tensors(shape, has_head, synth.TYPES[kind], synth.TYPES["q8_0"])
        assert len(listed.splitlines()) == len(list(wanted)), listed
        head = f"blk.{shape.n_layers}.nextn.eh_proj.weight  {kind.upper()}  [512, 256]"
        assert (head in listed) == has_head, listed
        infcgi(ctx, "inspect", "--verify", path)
        assert ("prediction head" in infcgi(ctx, "inspect", path)) == has_head
        assert ("\na guess: " in infcgi(ctx, "inspect", "--plan", path)) == has_head
        rows = json.loads(infcgi(ctx, "bench", "--model", path, "-p", "8", "-n", "4", "-r", "1", "-t", "1", "-o", "json"))
        assert len(rows) == 2 and all(row["avg_ts"] > 0 for row in rows), rows
        rows = json.loads(infcgi(ctx, "bench", "--model", path, "-p", "0", "-n", "8", "-s", "1,2", "-r", "1", "-t", "1", "-o", "json",
                                 "--accept", "0.5", "--draft-max", "2"))
        assert [(row["n_draft"], row["accept"], row["avg_ts"] > 0) for row in rows] == [(2, 0.5, True)] * 2, rows
        for first, second in (row["accepted_by_position"] for row in rows):
            assert 0 <= second <= first <= 1, rows
        text = infcgi(ctx, "generate", "--model", path, "-n", "16", "--temp", "0", "-t", "1", "-p", "Hi")
        assert said.setdefault(shape.arch, text) == text, (said, text)


def test_synth_writes_other_families(ctx):
    path = pathlib.Path(ctx.server.dir) / "synth.gguf"
    sizes = {"width": 256, "n_heads": 4, "n_kv_heads": 2, "head": 64, "n_vocab": 1024}
    experts = {"n_experts": 8, "n_used": 2, "n_expert_ff": 256}
    for shape, kind, says in ((synth.Shape("llama", 1, n_ff=512, pre="llama-bpe", **sizes), "q4_K", "blk.0.ffn_down.weight  Q4_K  [512, 256]"),
                              (synth.Shape("qwen3moe", 2, **experts, pre="qwen2", **sizes), "q4_K", "blk.1.ffn_down_exps.weight  Q4_K  [256, 256, 8]"),
                              (synth.Shape("kimi-linear", 3, **experts, n_ff=512, n_shared_ff=256, state=64, pattern="KAK", latent=64,
                                           shared_key=32, pre="kimi-k2", **(sizes | {"n_kv_heads": 1})), "q4_0",
                               "blk.2.ssm_conv1d_k.weight  F32  [4, 1, 256]"),
                              (synth.Shape("gpt-oss", 2, **experts, window=128, yarn=(32, 4096), pre="gpt-4o", **sizes), "mxfp4",
                               "blk.1.ffn_down_exps.weight  MXFP4  [256, 256, 8]")):
        synth.write(path, shape, "small", synth.TYPES[kind], synth.TYPES["q8_0"])
        listed = infcgi(ctx, "inspect", "--tensors", path)
        assert says in listed and len(listed.splitlines()) == len(list(synth.tensors(shape, False, synth.TYPES[kind], synth.TYPES["q8_0"]))), listed
        infcgi(ctx, "inspect", "--verify", path)
        rows = json.loads(infcgi(ctx, "bench", "--model", path, "-p", "8", "-n", "4", "-r", "1", "-t", "1", "-o", "json"))
        assert len(rows) == 2 and all(row["avg_ts"] > 0 for row in rows), rows
        infcgi(ctx, "generate", "--model", path, "-n", "4", "--temp", "0", "-t", "1", "-p", "Hi")


def test_a_head_in_a_file_of_its_own(ctx):
    """It is wider than the model and has fewer tokens. Text is the same with it."""
    model, head = (harness.ROOT / f"tests/golden/models/llama-eagle3.{ending}" for ending in ("gguf", "draft.gguf"))
    both = ("--model", model, "--draft-model", head)
    (row,) = json.loads(infcgi(ctx, "bench", *both, "-p", "0", "-n", "8", "-s", "2", "-r", "1", "-t", "1", "-o", "json",
                               "--accept", "0.5", "--draft-max", "2"))
    assert row["n_draft"] == 2 and row["avg_ts"] > 0, row
    ask = ("-n", "32", "--temp", "0", "-t", "1", "-p", "Hi")
    assert infcgi(ctx, "generate", *both, *ask) == infcgi(ctx, "generate", "--model", model, *ask)
    assert "reads layers    1, 2, 4\n" in infcgi(ctx, "inspect", head)
    run = subprocess.run([ctx.binary, "generate", "--model", head, *ask], capture_output=True, text=True, timeout=60)
    assert run.returncode != 0 and "use it with --draft-model" in run.stderr, run.stderr


def infcgi(ctx, *args):
    run = subprocess.run([ctx.binary, *args], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, (args, run.stdout + run.stderr)
    return run.stdout


def test_synth_has_the_sizes_of_published_models(ctx):
    for args, says in ((("--model", "qwen3.5-4b"), "426 tensors, 4,205,751,296 weights, 2,369,040,384 bytes"),
                       (("--model", "qwen3.5-35b-a3b", "--head", "--type", "q8_0"), "753 tensors, 35,505,251,456 weights"),
                       (("--model", "qwen3-30b-a3b"), "579 tensors, 30,532,122,624 weights"),
                       (("--model", "gpt-oss-20b"), "459 tensors, 20,914,757,184 weights"),
                       (("--model", "nemotron-3-nano-30b-a3b"), "401 tensors, 31,577,940,288 weights"),
                       (("--model", "llama-8b"), "291 tensors, 8,030,261,248 weights"),
                       (("--model", "llama-8b", "--layers", "bench", "--name"), "synth-llama-8b-4-layers-q4_K.gguf")):
        run = subprocess.run([sys.executable, SYNTH, *args], capture_output=True, text=True, timeout=60)
        assert run.returncode == 0 and run.stdout.startswith(says), run.stdout + run.stderr
    for args, says in ((("qwen3.5-4b", "--layers", "3"), "--layers: expected 4 to 32, found 3"),
                       (("llama-8b", "--layers", "33"), "--layers: expected 1 to 32, found 33"), (("llama-8b", "--head"), "--head: llama-8b has no"),
                       (("gpt-oss-20b", "--type", "q4_K"), "expected rows of a multiple of 256 weights for this type, found 2880")):
        run = subprocess.run([sys.executable, SYNTH, "--model", *args], capture_output=True, text=True, timeout=60)
        assert run.returncode == 2 and says in run.stderr, run.stderr
