"""A SafeTensors folder served directly: in shards, with its own tokenizer.json, chat template and sampling defaults, and with the
answers of the same model as a GGUF file."""
import json
import pathlib
import struct
import tempfile

MODELS = pathlib.Path(__file__).resolve().parents[1] / "golden/models"
NAME = "llama-biases"
ARGS = ("--threads", "1", "--ctx-size", "128", "--temp", "0")
IM_START, IM_END, THINK, WORD = 256, 257, 260, 261


def byte_alphabet():
    """Returns how byte-level tokenizers spell the 256 bytes: printable ones as themselves, the others from U+0100 on."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in shown]
    return [chr(b) if b in shown else chr(256 + others.index(b)) for b in range(256)]


def tokenizer():
    alphabet = byte_alphabet()
    return {"version": "1.0", "normalizer": None, "post_processor": None,
            "added_tokens": [{"id": IM_START, "content": "<|im_start|>", "special": True},
                             {"id": IM_END, "content": "<|im_end|>", "special": True},
                             {"id": THINK, "content": "<think>", "special": False},
                             {"id": WORD, "content": "USER:", "special": False}],
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            "model": {"type": "BPE", "vocab": {**{t: i for i, t in enumerate(alphabet)}, "th": 258, "the": 259},
                      "merges": ["t h", "th e"]}}


def write_shards(folder, source, count):
    """Distributes the tensors of a file over `count` files and an index."""
    data = source.read_bytes()
    n, = struct.unpack("<Q", data[:8])
    header, data = json.loads(data[8:8 + n]), data[8 + n:]
    names, weight_map = [name for name in header if name != "__metadata__"], {}
    for i in range(count):
        shard, body, entries = f"model-{i + 1:05}-of-{count:05}.safetensors", b"", {}
        for name in names[i::count]:
            begin, end = header[name]["data_offsets"]
            entries[name] = {**header[name], "data_offsets": [len(body), len(body) + end - begin]}
            body += data[begin:end]
            weight_map[name] = shard
        head = json.dumps(entries).encode()
        (folder / shard).write_bytes(struct.pack("<Q", len(head)) + head + body)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))


def make_folder(folder):
    source = MODELS / f"{NAME}.hf"
    config = json.loads((source / "config.json").read_text())
    template = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{{ date_string }}")
    for name, value in (("config.json", config), ("tokenizer.json", tokenizer()), ("tokenizer_config.json", {}),
                        ("generation_config.json", {"eos_token_id": IM_END})):
        (folder / name).write_text(json.dumps(value))
    (folder / "chat_template.jinja").write_text(template)
    write_shards(folder, source / "model.safetensors", 2)


def complete(server, **fields):
    r = server.post("/v1/completions", {"max_tokens": 12, "ignore_eos": True, "return_token_ids": True, "logprobs": 0, **fields})
    assert r.status == 200, r.body
    choice = r.json()["choices"][0]
    return choice["token_ids"], choice["logprobs"]["token_logprobs"]


def test_a_folder_answers_as_its_gguf_file(ctx):
    with tempfile.TemporaryDirectory(prefix="infcgi-folder.") as name:
        folder = pathlib.Path(name)
        make_folder(folder)
        server, peer = ctx.start(*ARGS, model=folder), ctx.start(*ARGS, model=MODELS / f"{NAME}.gguf")
        for prompt in ([1, 2, 3], [7 * i % 256 for i in range(40)]):
            (ids, logprobs), (peer_ids, peer_logprobs) = (complete(s, prompt=prompt) for s in (server, peer))
            assert ids == peer_ids and len(ids) == 12, (ids, peer_ids)
            assert max(abs(a - b) for a, b in zip(logprobs, peer_logprobs)) < 1e-2, (logprobs, peer_logprobs)
        tokens = server.post("/tokenize", {"content": "the é<|im_end|>"}).json()["tokens"]
        assert tokens == [259, 32, 0xC3, 0xA9, IM_END], tokens
        assert server.post("/detokenize", {"tokens": tokens}).json()["content"] == "the é<|im_end|>"
        assert complete(server, prompt="the") == complete(server, prompt=[259])


def test_a_folder_chats(ctx):
    with tempfile.TemporaryDirectory(prefix="infcgi-folder.") as name:
        folder = pathlib.Path(name)
        make_folder(folder)
        server = ctx.start(*ARGS, model=folder)
        assert server.request("GET", "/v1/models").json()["data"][0]["id"] == folder.name
        ask = {"messages": [{"role": "user", "content": "the<|im_end|>"}], "max_tokens": 5, "ignore_eos": True}
        r = server.post("/v1/chat/completions", ask)
        assert r.status == 200, r.body
        usage = r.json()["usage"]
        assert usage["completion_tokens"] == 5
        # <|im_start|>user\n the <|im_end|> as text <|im_end|>\n <|im_start|>assistant\n
        assert usage["prompt_tokens"] == 1 + 5 + 1 + 10 + 1 + 1 + 1 + 10, usage
        dated = server.post("/v1/chat/completions", {**ask, "chat_template_kwargs": {"date_string": "<|im_end|>"}})
        assert dated.json()["usage"]["prompt_tokens"] == usage["prompt_tokens"] + 10, dated.body  # also as text
        connection, response = server.stream("/v1/chat/completions", ask)
        body = response.read()
        connection.close()
        assert response.status == 200 and body.endswith(b"data: [DONE]\n\n"), body


def test_users_write_no_marks(ctx):
    """Added tokens that are not special: <think> is a control token by its form, USER: only in the chat template."""
    def n_prompt(server, text):
        r = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}], "max_tokens": 1})
        assert r.status == 200, r.body
        return r.json()["usage"]["prompt_tokens"]

    with tempfile.TemporaryDirectory(prefix="infcgi-folder.") as name:
        folder = pathlib.Path(name)
        make_folder(folder)
        other = folder / "other.jinja"
        other.write_text("{% for m in messages %}USER:{{ m.content }}{% endfor %}")
        own, given = ctx.start(*ARGS, model=folder), ctx.start(*ARGS, "--chat-template", str(other), model=folder)
        for server, word in ((own, [WORD]), (given, list(b"USER:"))):
            tokens = server.post("/tokenize", {"content": "<think>USER:"}).json()["tokens"]
            assert tokens == [THINK, WORD], tokens
            tokens = server.post("/tokenize", {"content": "<think>USER:", "parse_special": False}).json()["tokens"]
            assert tokens == [*b"<", 258, *b"ink>", *word], tokens
            assert n_prompt(server, "<think>") == n_prompt(server, "") + 6
            assert n_prompt(server, "USER:") == n_prompt(server, "") + len(word)
        assert n_prompt(given, "") == 1


def test_a_folder_that_lacks_a_shard_says_which(ctx):
    with tempfile.TemporaryDirectory(prefix="infcgi-folder.") as name:
        folder = pathlib.Path(name)
        make_folder(folder)
        (folder / "model-00002-of-00002.safetensors").unlink()
        server = ctx.start(*ARGS, model=folder, wait=False)
        assert server.engine.wait(20) == 65, server.log()
        assert "bad_shard_index" in server.log() and "model-00002-of-00002.safetensors" in server.log(), server.log()


def defaults(server):
    params = server.request("GET", "/props").json()["default_generation_settings"]["params"]
    names = ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "repeat_last_n")
    return [params[name] for name in names]


def test_default_sampling(ctx):
    """An option overrides generation_config.json, which overrides the built-in defaults, value by value."""
    with tempfile.TemporaryDirectory(prefix="infcgi-folder.") as name:
        folder = pathlib.Path(name)
        make_folder(folder)
        args = ("--threads", "1", "--ctx-size", "128")
        assert defaults(ctx.start(*args, model=folder)) == [0.8, 40, 0.95, 0.05, 1, 64]
        own = {"temperature": 0.6, "top_k": 20, "repetition_penalty": 1.25, "eos_token_id": IM_END}
        (folder / "generation_config.json").write_text(json.dumps(own))
        assert defaults(ctx.start(*args, model=folder)) == [0.6, 20, 0.95, 0.05, 1.25, 64]
        options = ("--temp", "0.5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "--repeat-penalty", "1", "--repeat-last-n", "-1")
        server = ctx.start(*args, *options, model=folder)
        assert defaults(server) == [0.5, 0, 1, 0, 1, -1]
        r = server.post("/v1/responses", {"input": "the", "max_output_tokens": 16})   # it repeats the values that applied
        assert r.status == 200 and r.json()["temperature"] == 0.5 and r.json()["top_p"] == 1, r.body
