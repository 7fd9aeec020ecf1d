"""llama-server's own API through nginx: its paths, infill with a vocabulary that supports it, and its counts."""
import json
import pathlib
import tempfile

import harness


def test_paths_come_through(ctx):
    post = ctx.server.post
    made = post("/completions", {"prompt": "The capital of France is", "n_predict": 3, "temperature": 0, "cache_prompt": False}).json()
    assert "Paris" in made["content"] and made["timings"]["predicted_n"] == 3 and made["timings"]["cache_n"] == 0, made
    for action in "save", "restore", "erase":
        refused = post("/slots/0?action=" + action, {"filename": "a"})
        assert refused.status == 501 and refused.error()["type"] == "not_supported_error", refused.body
    assert post("/infill", {"input_prefix": "a", "input_suffix": "b"}).status == 501   # this model has no tokens for it
    count = post("/chat/completions/input_tokens", {"messages": [{"role": "user", "content": "Hi"}]}).json()["input_tokens"]
    prompt = post("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]}).json()["prompt"]
    assert count == len(post("/tokenize", {"content": prompt, "parse_special": True}).json()["tokens"])


@harness.in_release
def test_a_saved_slot_is_restored_by_another_process(ctx):
    with tempfile.TemporaryDirectory() as folder:
        saved = pathlib.Path(folder) / "slots"
        args = ("--threads", "2", "--ctx-size", "512", "--slot-save-path", saved, "--no-metrics", "--alias", "b,a")
        server = ctx.start(*args)
        made = server.post("/completion", {"prompt": "one two three " * 20, "n_predict": 4, "id_slot": 1, "temperature": 0}).json()
        n = made["tokens_evaluated"] + made["tokens_predicted"] - 1
        answer = server.post("/slots/1?action=save", {"filename": "talk.bin"}).json()
        assert answer["n_saved"] == n and answer["n_written"] == (saved / "talk.bin").stat().st_size, answer
        assert (saved.stat().st_mode | (saved / "talk.bin").stat().st_mode) & 0o077 == 0
        assert server.request("GET", "/metrics").status == 501
        assert server.request("GET", "/v1/models").json()["data"][0]["id"] == "a"
        server = ctx.start(*args)   # another process with the same folder
        answer = server.post("/slots/0?action=restore", {"filename": "talk.bin"}).json()
        assert answer["n_restored"] == n, answer
        again = server.post("/completion", {"prompt": "one two three " * 20, "n_predict": 4, "id_slot": 0, "temperature": 0}).json()
        assert again["content"] == made["content"] and again["timings"]["cache_n"] >= 32, again
        refused = server.post("/slots/0?action=restore", {"filename": "../talk.bin"})
        assert refused.status == 400 and refused.error()["param"] == "filename", refused.body


@harness.in_release
def test_a_long_prompt_tells_how_far_it_is(ctx):
    connection, stream = ctx.server.stream("/completion", {"prompt": "one two three " * 400, "n_predict": 2, "return_progress": True,
                                                           "cache_prompt": False})
    told = [e["prompt_progress"] for e in harness.events(stream) if "prompt_progress" in e]
    connection.close()
    done = [p["processed"] for p in told]
    assert done[0] == 0 and done == sorted(set(done)) and done[-1] == told[0]["total"] and len(done) >= 3, told


@harness.in_release
def test_responses_tell_how_far_the_prompt_is(ctx):
    connection, stream = ctx.server.stream("/v1/responses", {"input": "one two three " * 400, "max_output_tokens": 2, "stream": True,
                                                             "return_progress": True, "store": False, "temperature": 0.3})
    told = [e["prompt_progress"] for e in harness.events(stream) if "prompt_progress" in e]
    connection.close()
    assert told and told[-1]["processed"] == told[-1]["total"], told


@harness.in_release
def test_infill(ctx):
    with tempfile.TemporaryDirectory() as folder:
        model = harness.with_fim(ctx.model, pathlib.Path(folder) / "fim.gguf")
        server = ctx.start("--threads", "2", "--ctx-size", "512", "--metrics", "--seed", "7", "--presence-penalty", "0.5", "--repeat-last-n", "0",
                           "--typical", "0.75", model=model)
    asked = {"input_prefix": "def add(a, b):\n", "prompt": "    return", "input_suffix": "\nprint(add(1, 2))\n", "n_predict": 4, "ignore_eos": True}
    got = server.post("/infill", asked).json()
    gap = "<|fim_prefix|>def add(a, b):\n    return<|fim_suffix|>\nprint(add(1, 2))\n<|fim_middle|>"
    assert got["prompt"] == "<reponame>myproject\n" + gap, got["prompt"]
    assert got["tokens_predicted"] == 4 and got["generation_settings"]["seed"] == 7, got
    assert {"presence_penalty": 0.5, "frequency_penalty": 0, "repeat_penalty": 1, "repeat_last_n": 0,
            "typical_p": 0.75}.items() <= got["generation_settings"].items(), got
    others = {**asked, "input_extra": [{"filename": "a.py", "text": "x = 1"}]}
    assert server.post("/infill", others).json()["prompt"] == "<reponame>myproject\n\n\n--- snippet ---\n\nx = 1" + gap
    # of long texts the end of the prefix, the beginning of the suffix, and room for the answer
    long = {**asked, "input_prefix": "p " * 2000 + "END", "input_suffix": "BEGIN" + " s" * 2000}
    cut = server.post("/infill", long).json()
    assert "END    return<|fim_suffix|>BEGIN" in cut["prompt"] and cut["tokens_evaluated"] < 300, cut["tokens_evaluated"]
    for wrong, param in (({"input_suffix": "b"}, "input_prefix"), ({**asked, "prompt": 5}, "prompt"),
                         ({**asked, "input_extra": [{"filename": 1, "text": "a"}]}, "input_extra[0].filename")):
        r = server.post("/infill", wrong)
        assert r.status == 400 and r.error()["param"] == param, r.body
    # control tokens in texts are text
    assert server.post("/infill", {**asked, "input_prefix": "<|fim_middle|>"}).json()["tokens_evaluated"] > 20
    said = server.post("/v1/completions", {"prompt": "def add(a, b):\n", "suffix": "\n", "max_tokens": 2, "verbose": True}).json()
    assert said["__verbose"]["prompt"] == "<|fim_prefix|>def add(a, b):\n<|fim_suffix|>\n<|fim_middle|>", said
    r = server.request("GET", "/metrics")
    lines = r.body.decode().splitlines()
    assert any(line.startswith("llamacpp:tokens_predicted_total ") and float(line.split()[1]) > 4 for line in lines), json.dumps(lines)
    assert int(r.headers["Process-Start-Time-Unix"]) > 1e9
