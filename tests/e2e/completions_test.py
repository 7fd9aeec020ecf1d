"""/v1/completions: every prompt shape, echo with logprobs, max_tokens 0; /tokenize and /detokenize."""
import math
import subprocess

import harness

TEXT = "The capital of France is"


def tokens_of(ctx, text, **fields):
    r = ctx.server.post("/tokenize", {"content": text, **fields})
    assert r.status == 200, r.body
    return r.json()["tokens"]


def complete(ctx, **body):
    r = ctx.server.post("/v1/completions", {"temperature": 0, "max_tokens": 4, **body})
    assert r.status == 200, r.body
    return r.json()


@harness.in_release
def test_openai_package(ctx):
    r = ctx.server.client().completions.create(model=ctx.server.client().models.list().data[0].id, prompt=TEXT, temperature=0, max_tokens=4)
    assert "Paris" in r.choices[0].text, r
    assert r.object == "text_completion" and r.id.startswith("cmpl-")


def test_prompt_shapes_agree(ctx):
    ids = tokens_of(ctx, TEXT)
    want = complete(ctx, prompt=TEXT)["choices"][0]["text"]
    assert complete(ctx, prompt=[TEXT])["choices"][0]["text"] == want
    assert complete(ctx, prompt=ids)["choices"][0]["text"] == want
    assert complete(ctx, prompt=[ids])["choices"][0]["text"] == want
    both = complete(ctx, prompt=[TEXT, "Two and two make"])["choices"]
    assert [c["index"] for c in both] == [0, 1] and both[0]["text"] == want
    both = complete(ctx, prompt=[ids, tokens_of(ctx, "Two and two make")], n=2)["choices"]
    assert [c["index"] for c in both] == [0, 1, 2, 3] and both[0]["text"] == both[1]["text"] == want


def test_stream(ctx):
    client = ctx.server.client()
    model = client.models.list().data[0].id
    chunks = list(client.completions.create(model=model, prompt=TEXT, temperature=0, max_tokens=12, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == complete(ctx, prompt=TEXT, max_tokens=12)["choices"][0]["text"]
    assert chunks[-1].choices[0].finish_reason == "length"


def test_echo_logprobs_of_the_prompt(ctx):
    ids = tokens_of(ctx, TEXT)
    r = complete(ctx, prompt=TEXT, echo=True, logprobs=1, max_tokens=0)
    choice = r["choices"][0]
    assert choice["text"] == TEXT and r["usage"]["completion_tokens"] == 0
    lp = choice["logprobs"]
    assert len(lp["tokens"]) == len(lp["token_logprobs"]) == len(lp["text_offset"]) == len(ids)
    assert "".join(lp["tokens"]) == TEXT and lp["token_logprobs"][0] is None
    assert all(v <= 0 for v in lp["token_logprobs"][1:])
    assert [TEXT[o:o + len(t)] for o, t in zip(lp["text_offset"], lp["tokens"])] == lp["tokens"]
    # Generated tokens must have the same log-probabilities as when they are echoed.
    made = complete(ctx, prompt=TEXT, logprobs=0, max_tokens=3)["choices"][0]
    again = complete(ctx, prompt=TEXT + made["text"], echo=True, logprobs=0, max_tokens=0)["choices"][0]
    if "".join(again["logprobs"]["tokens"][-3:]) == made["text"]:
        for a, b in zip(made["logprobs"]["token_logprobs"], again["logprobs"]["token_logprobs"][-3:]):
            assert math.isclose(a, b, abs_tol=1e-6), (a, b)


def test_echo_with_generation(ctx):
    plain = complete(ctx, prompt=TEXT)["choices"][0]["text"]
    assert complete(ctx, prompt=TEXT, echo=True)["choices"][0]["text"] == TEXT + plain


def test_max_tokens_zero(ctx):
    r = complete(ctx, prompt=TEXT, max_tokens=0)
    assert r["choices"][0]["text"] == "" and r["usage"]["completion_tokens"] == 0
    assert r["usage"]["prompt_tokens"] == len(tokens_of(ctx, TEXT))


def test_return_token_ids(ctx):
    choice = complete(ctx, prompt=TEXT, return_token_ids=True)["choices"][0]
    assert choice["prompt_token_ids"] == tokens_of(ctx, TEXT)
    assert len(choice["token_ids"]) == 4
    text = ctx.server.post("/detokenize", {"tokens": choice["token_ids"]}).json()
    assert text.get("content", text.get("prompt")) == choice["text"]


def test_tokenize_round_trip(ctx):
    for text in ["", "Hello, world!", "Größe — naïve", "日本語のテキスト", "👩‍👩‍👧‍👦 emoji", "a\u0000b", "\tif x:\n\t\treturn 1\n", "<|im_start|>"]:
        r = ctx.server.post("/detokenize", {"tokens": tokens_of(ctx, text)})
        assert r.status == 200, r.body
        answer = r.json()
        assert answer.get("content", answer.get("prompt")) == text, (text, answer)


def test_text_of_users_holds_no_special_tokens(ctx):
    assert len(tokens_of(ctx, "<|im_start|>", parse_special=False)) > 1
    def prompt_tokens(text):
        r = ctx.server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 1})
        return r.json()["usage"]["prompt_tokens"]
    assert prompt_tokens("<|im_start|>") > prompt_tokens("a")


def test_detokenize_bad_id(ctx):
    for ids in ([10**9], [-1]):
        r = ctx.server.post("/detokenize", {"tokens": ids})
        assert r.status == 400 and r.error()["param"], r.body


@harness.in_release
def test_choices_share_one_echo(ctx):
    """The log-probabilities of a prompt are computed once, whatever n is, and are equal in all choices."""
    s = ctx.server
    prompts = ["Once upon a time there was a fox. " * 20 + str(i) for i in range(2)]
    body = {"prompt": prompts, "echo": True, "logprobs": 2, "max_tokens": 3, "temperature": 1, "seed": 7, "cache_salt": "echo"}
    one = s.post("/v1/completions", body).json()
    n_prompt = one["usage"]["prompt_tokens"] // 2
    before = s.metrics()["infcgi_step_rows_total"]
    r = s.post("/v1/completions", {**body, "n": 6, "cache_salt": "echo of six"})
    rows = s.metrics()["infcgi_step_rows_total"] - before
    assert r.status == 200, r.body
    assert rows < 2 * (n_prompt + 6 * 40), (rows, n_prompt)
    choices = r.json()["choices"]
    texts = [[], [""] * 12]
    for c in choices:
        first = one["choices"][c["index"] // 6]
        for name, values in c["logprobs"].items():
            assert values[:n_prompt] == first["logprobs"][name][:n_prompt], name
        assert len({len(values) for values in c["logprobs"].values()}) == 1
        assert c["text"].startswith(prompts[c["index"] // 6])
        offsets = c["logprobs"]["text_offset"]
        assert offsets == sorted(offsets) and offsets[-1] <= len(c["text"])
        texts[0].append(c["text"])
    assert choices[0] == one["choices"][0]
    assert len(set(texts[0])) > 2, "all choices are the same"
    connection, response = s.stream("/v1/completions", {**body, "n": 6})
    logprobs = [[] for _ in choices]
    for event in harness.events(response):
        for c in event["choices"] if event else []:
            texts[1][c["index"]] += c["text"]
            logprobs[c["index"]] += c["logprobs"]["token_logprobs"] if c["logprobs"] else []
    connection.close()
    assert texts[0] == texts[1]
    assert logprobs == [c["logprobs"]["token_logprobs"] for c in choices]
    r = s.post("/v1/completions", {**body, "prompt": [[1000] * 1700], "logprobs": 20, "n": 128})
    assert r.status == 400 and r.error()["param"] == "logprobs", r.body


@harness.in_release
def test_a_draft_model_changes_nothing(ctx):
    """The model as its own draft, and one with another vocabulary, which is an error of one line."""
    bodies = [{"prompt": TEXT, "max_tokens": 60}, {"prompt": TEXT, "max_tokens": 60, "temperature": 0.7, "seed": 3, "logprobs": 2}]
    want = [complete(ctx, **b)["choices"] for b in bodies]
    s = ctx.start(*ctx.ARGS, "-md", str(ctx.model), "--spec-type", "draft-simple", "--spec-draft-p-min", "0.1")
    assert f'drafts predictor="{ctx.model}"' in s.log()
    assert [s.post("/v1/completions", {"temperature": 0, **b}).json()["choices"] for b in bodies] == want
    run = subprocess.run([ctx.binary, "generate", "--model", ctx.model, "--draft-model", harness.ROOT / "tests/golden/models/llama-yarn.gguf", "-p", TEXT],
                         capture_output=True, text=True, timeout=300)
    assert run.returncode == 64 and run.stderr.count("\n") == 1, (run.returncode, run.stderr)
    assert "draft-model: expected the model's vocabulary, found another: token 0 is '<|endoftext|>' in the model" in run.stderr, run.stderr
