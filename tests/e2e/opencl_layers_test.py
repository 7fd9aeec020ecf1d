"""Part of a model on a device: the same text wherever it is computed, and parts that do not fit."""
import os
import re
import subprocess

import harness

ENV = {**os.environ, "OCL_ICD_VENDORS": "/etc/OpenCL/vendors/pocl.icd"}   # only PoCL: other drivers leak when they are loaded
SMALL = {**ENV, "POCL_MEMORY_LIMIT": "1"}   # GiB
TWO = {"POCL_DEVICES": "pthread pthread"}   # both on the same CPU


def generate(ctx, *args, model=None, env=ENV):
    return subprocess.run([ctx.binary, "generate", "--model", model or ctx.model, "--backend", "opencl", "--high-precision", "--batch-size", "8",
                           "--prompt", "The capital of France is", "--n-predict", "8", "--temp", "0", *args],
                          capture_output=True, text=True, timeout=600, env=env)


@harness.in_long
def test_any_number_of_layers_gives_the_same_text(ctx):
    if ctx.is_slow:
        raise harness.Skip("minutes; nothing of it is compiled for the device")
    runs = {n: generate(ctx, "--ctx-size", "256", "--gpu-layers", n) for n in ("0", "1", "15", "all", "auto")}
    for n, run in runs.items():
        assert run.returncode == 0 and run.stdout == runs["0"].stdout and len(run.stdout) > 10, (n, run.stdout, run.stderr)
    assert "note: 30 of 30 layers fit in the " in runs["auto"].stderr, runs["auto"].stderr


@harness.in_release
def test_what_has_no_room_is_told_what_has(ctx):
    """A cache that is a quarter larger than the memory of the device: 23,040 bytes per token, 768 per layer."""
    run = generate(ctx, "--kv-tokens", str((1 << 30) * 5 // 4 // 23040), env=SMALL)
    m = re.search(r"memory_limit: gpu-layers: .+ has (\d+) MiB free, and 30 of 30 layers need more: weights (\d+) MiB, a KV cache of (\d+) tokens "
                  r"(\d+), recurrent states 0 and activations \d+; there is room for --gpu-layers (\d+)\n", run.stderr)
    assert run.returncode == 65 and m, (run.returncode, run.stderr)
    free, weights, told, cache, n = map(int, m.groups())
    assert 50 < weights < 200 and cache == told * 23040 >> 20 and free == 1024 < cache, run.stderr
    assert 0 < n < 30 and n * cache / 30 < free, run.stderr


@harness.in_release
def test_a_number_of_layers_wants_a_device(ctx):
    for args, status, words in ((("--backend", "cpu", "-ngl", "3"), 64, "gpu-layers: the back end cpu has no such option; add --backend opencl"),
                                (("--gpu-layers", "some"), 64, "gpu-layers (command line): expected a number of layers, auto or all; found 'some'"),
                                (("--backend", "opencl:0-2,cpu", "-ngl", "3"), 64, "gpu-layers: expected no value, because backend assigns")):
        run = generate(ctx, *args)
        assert run.returncode == status and words in run.stderr, (args, run.returncode, run.stderr)


@harness.in_release
def test_memory_of_the_device_is_told_by_purpose(ctx):
    """For one layer of two, and for a server without a device."""
    model = str(harness.ROOT / "tests/golden/models/llama-biases.gguf")
    args = ("--ctx-size", "128", "--kv-tokens", "256", "--parallel", "2", "--batch-size", "8")
    taken = {}
    for n in ("1", "all"):
        s = ctx.start("--backend", "opencl", "--gpu-layers", n, *args, model=model, env=ENV)
        h, m = s.request("GET", "/health").json(), s.metrics()
        assert h["backend"] == ("opencl:0-0,cpu:1-1" if n == "1" else "opencl"), h
        d = h["device_memory"]
        assert {p: m[f'infcgi_device_memory_bytes{{device="0",purpose="{p}"}}'] for p in ("weights", "kv", "states", "activations")} == d, (d, m)
        (device,) = h["devices"]
        assert device == {"device": "0", "name": device["name"], **d} and device["name"], h
        taken[n] = d
        assert (m['infcgi_memory_bytes{purpose="weights"}'] > 0) == (n == "1"), m
    assert taken["1"]["kv"] * 2 == taken["all"]["kv"] == h["kv_bytes"], taken
    assert 0 < taken["1"]["weights"] < taken["all"]["weights"] and taken["all"]["states"] == 0 < taken["1"]["activations"], taken
    s = ctx.start(*args, model=model)
    h = s.request("GET", "/health").json()
    assert set(h["device_memory"].values()) == {0} and h["devices"] == [], h


@harness.in_release
def test_two_devices_answer_as_one(ctx):
    """Each has one of two layers; the answer has the bits of one device, and both devices are reported."""
    model = str(harness.ROOT / "tests/golden/models/llama-biases.gguf")
    body = {"prompt": [5, 3, 8, 2], "max_tokens": 8, "temperature": 0, "logprobs": 3}
    answers, taken = {}, {}
    for which in ("0", "0,1", "1,0"):
        s = ctx.start("--backend", "opencl", "--device", which, "--ctx-size", "128", "--kv-tokens", "256", "--batch-size", "8",
                      model=model, env={**ENV, **TWO})
        answers[which] = s.request("POST", "/v1/completions", body).json()["choices"]
        h, m = s.request("GET", "/health").json(), s.metrics()
        assert h["backend"] == ("opencl" if which == "0" else "opencl:0-0,opencl:1-1"), h
        assert [d["device"] for d in h["devices"]] == which.split(","), h
        for d in h["devices"]:
            assert {p: m[f'infcgi_device_memory_bytes{{device="{d["device"]}",purpose="{p}"}}'] for p in h["device_memory"]}.items() <= d.items(), (d, m)
        for p, n in h["device_memory"].items():
            assert n == sum(d[p] for d in h["devices"]), h
        assert s.log().count(" device choice=\"device ") == len(h["devices"]), s.log()
        taken[which] = h["device_memory"]
    assert answers["0"] == answers["0,1"] == answers["1,0"], answers
    assert taken["0"]["kv"] == taken["0,1"]["kv"] and taken["0"]["weights"] <= taken["0,1"]["weights"], taken


@harness.in_release
def test_two_devices_have_room_for_what_one_has_not(ctx):
    """640 bytes per token in five layers: 1.1 GiB fit on two devices together; 2.2 GiB do not."""
    def of(gib, *args):
        return generate(ctx, "--ctx-size", "64", "--kv-tokens", str(int(gib * (1 << 30) / 640)), *args, env={**SMALL, **TWO},
                        model=str(harness.ROOT / "tests/golden/models/smollm3-nope.gguf"))

    one = of(1.1)
    assert one.returncode == 65 and "(device 0) has 1024 MiB free, and 5 of 5 layers need more" in one.stderr, one.stderr
    both = of(2.2, "--device", "0,1")
    m = re.search(r"\(device 1\) has 1024 MiB free, and (\d+) of 5 layers need more: .*; there is room for --gpu-layers 4\n", both.stderr)
    assert both.returncode == 65 and m and int(m[1]) < 5, both.stderr
    auto = of(1.1, "--device", "0,1", "--gpu-layers", "auto")
    assert auto.returncode == 0 and "note: 5 of 5 layers fit in the 2048 MiB that 2 devices have free" in auto.stderr, auto.stderr
