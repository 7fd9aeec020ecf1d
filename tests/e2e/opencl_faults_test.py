"""An OpenCL driver that fails while a model is loaded or computed (tests/support/fake_opencl.h): the messages for the operator, and that
the process ends as its manager expects, or continues."""
import glob
import os
import pathlib
import subprocess
import tempfile

import harness

URL = "/v1/completions"
BODY = {"prompt": [3, 7], "max_tokens": 200, "ignore_eos": True}
ARGS = ("--backend", "opencl", "--batch-size", "8", "--ctx-size", "512", "--parallel", "2")


def told(rules):
    """Returns the environment of a process with these rules, and only PoCL: other drivers leak when they are loaded."""
    return {"OCL_ICD_VENDORS": "/etc/OpenCL/vendors/pocl.icd", "FAKE_OPENCL": rules}


def model(name):
    return str(harness.ROOT / "tests/golden/models" / f"{name}.gguf")


def generate(ctx, rules, *args, name="llama-biases"):
    """Runs infcgi generate with the rules; returns (status, answer, errors)."""
    run = subprocess.run([harness.ROOT / "build" / ctx.variant / "infcgi_faulty", "generate", "--model", model(name), "--backend", "opencl",
                          "--batch-size", "8", "--prompt", "abc", "--n-predict", "6", "--temp", "0", *args],
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300,
                         env={**os.environ, **told(rules)})
    err = run.stderr.decode(errors="replace")
    report = harness.SANITIZER_REPORT.search(err)
    assert not report, err[report.start():report.start() + 6000]
    return run.returncode, run.stdout, err


@harness.in_release
def test_a_device_that_is_gone_ends_the_process(ctx):
    """Like any lost back end: streams end with the error, others have status 500, the process ends with 69. Also with two devices."""
    for devices in ((), ("--device", "0,1")):
        s = ctx.start(*ARGS, *devices, model=model("llama-biases"), program="infcgi_faulty",
                      env={**told("clEnqueueNDRangeKernel:3000!:CL_OUT_OF_RESOURCES"), "POCL_DEVICES": "pthread pthread"})
        connection, response = s.stream(URL, BODY)
        got = list(harness.events(iter(response.readline, b"")))
        assert None not in got and got[-1]["error"]["code"] == "backend_lost", got[-2:]
        assert "CL_OUT_OF_RESOURCES" in got[-1]["error"]["message"], got[-1]
        connection.close()
        assert s.engine.wait(30) == 69, s.log()
        failed = [line for line in s.log().splitlines() if " batch_failed " in line]
        assert len(failed) == 1 and " code=backend_lost " in failed[0] and "CL_OUT_OF_RESOURCES" in failed[0], s.log()


@harness.in_release
def test_a_batch_without_memory_ends_its_requests_alone(ctx):
    s = ctx.start(*ARGS, model=model("llama-biases"), program="infcgi_faulty",
                  env=told("clEnqueueNDRangeKernel:3000:CL_MEM_OBJECT_ALLOCATION_FAILURE"))
    reply = s.post(URL, BODY)
    assert reply.status == 500 and reply.error()["code"] == "out_of_memory", (reply.status, reply.body)
    assert s.post(URL, {**BODY, "max_tokens": 5}).status == 200 and s.idle()


@harness.in_release
def test_what_fails_while_a_model_is_loaded(ctx):
    for rules, status, words in (
            ("clCreateBuffer:1:CL_MEM_OBJECT_ALLOCATION_FAILURE", 65, ("out_of_memory: clCreateBuffer: CL_MEM_OBJECT_ALLOCATION_FAILURE",)),
            ("clCreateContext:1:CL_DEVICE_NOT_AVAILABLE", 69, ("backend_lost: clCreateContext: CL_DEVICE_NOT_AVAILABLE",)),
            ("clEnqueueWriteBuffer:2!:CL_OUT_OF_RESOURCES", 69, ("backend_lost: clEnqueueWriteBuffer: CL_OUT_OF_RESOURCES",)),
            ("clBuildProgram@attention.cl:1:CL_BUILD_PROGRAM_FAILURE", 64, ("unsupported_device: attention.cl: the OpenCL compiler of ",))):
        got, _, err = generate(ctx, rules)
        assert got == status and all(word in err for word in words), (rules, got, err)


@harness.in_release
def test_a_driver_that_crashes_while_it_is_asked(ctx):
    """In a separate process: the engine reports it, and another back end is not affected."""
    for rules, words in (("clGetPlatformIDs:1+:crash", "one of the OpenCL drivers crashed (Aborted) while they were loaded"),
                         ("clGetDeviceIDs:1+:crash", " crashed (Aborted)")):
        status, _, err = generate(ctx, rules)
        assert status == 64 and "expected an OpenCL device, and there is none" in err and words in err, (rules, status, err)
        assert generate(ctx, rules, "--backend", "cpu")[0] == 0


@harness.in_long
def test_dot_products_that_are_refused_or_wrong(ctx):
    """Plain dot products replace them, which is reported; the answer is the same."""
    args = ("--quantize", "q8_0")
    status, good, err = generate(ctx, "", *args, name="llama-gqa-tied")
    assert status == 0 and "replaced" not in err, err
    for rules, words in (("dot:none", "dot products of kind khr are replaced by plain ones: "),
                         ("dot:wrong", "computes products with Q8_0 weights wrongly: dot products of kind khr are replaced by plain ones")):
        status, answer, err = generate(ctx, rules, *args, name="llama-gqa-tied")
        assert (status, answer) == (0, good) and err.count("replaced") == 1 and words in err, (rules, status, answer, good, err)


@harness.in_long
def test_layers_that_are_computed_wrongly_go_to_the_cpu(ctx):
    """A step that is wrong and has no plainer form: only its layers, or all, go to the CPU; the answer is the CPU's."""
    for name, word, step, where in (("qwen35-delta", "scan", "delta", "0-1,3"), ("llama-biases", "attention", "attention", "0-1")):
        args = ("--high-precision", "--cache-type-k", "f16", "--cache-type-v", "f16")
        status, good, err = generate(ctx, "", *args, name=name)
        assert status == 0, err
        status, answer, err = generate(ctx, f"dot:right,clEnqueueNDRangeKernel@{word} -:1+:skip", *args, name=name)
        assert (status, answer) == (0, good), (status, answer, good, err)
        told = [line for line in err.splitlines() if f"computes steps of kind '{step}' wrongly" in line]
        assert len(told) == 1 and told[0].endswith(f": the CPU computes layers {where}"), err


@harness.in_release
def test_a_damaged_program_never_reaches_the_driver(ctx):
    with tempfile.TemporaryDirectory(prefix="infcgi-e2e.") as folder:
        args = ("--pack-cache", folder)
        status, good, err = generate(ctx, "", *args)
        assert status == 0 and "note: compiling " in err, err
        files = glob.glob(f"{folder}/*.infcgi-program")
        status, answer, err = generate(ctx, "clCreateProgramWithSource:1+:CL_INVALID_VALUE", *args)   # nothing is compiled
        assert (status, answer) == (0, good) and "note" not in err, (status, err)
        for file in files:
            data = bytearray(pathlib.Path(file).read_bytes())
            data[len(data) // 2] ^= 1
            pathlib.Path(file).write_bytes(data)
        status, answer, err = generate(ctx, "clCreateProgramWithBinary:1+:CL_INVALID_BINARY", *args)
        assert (status, answer) == (0, good), (status, err)
        assert f"compiling {len(files)} OpenCL programs" in err and "it is damaged" in err, err
