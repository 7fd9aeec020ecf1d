#!/usr/bin/env python3
"""Writes the seeds of tests/fuzz/corpus/: for each target a few small inputs that are right, from which libFuzzer starts.

    python3 tests/fuzz/seeds.py

Files of other names in the corpus are what fuzzing once found; this leaves them alone.
"""
import json
import math
import pathlib
import struct

ROOT = pathlib.Path(__file__).resolve().parents[2]
CORPUS = ROOT / "tests/fuzz/corpus"
MODELS = ROOT / "tests/golden/models"
MARK = "\u2581"


def write(target, name, data):
    path = CORPUS / target / f"seed-{name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)


# --- GGUF and importance matrices ----------------------------------------------------------------------------------

U32, F32, BOOL, STRING, ARRAY, I32 = 4, 6, 7, 8, 9, 5


def string(s):
    s = s.encode() if isinstance(s, str) else s
    return struct.pack("<Q", len(s)) + s


def value(kind, v):
    if kind == STRING:
        return string(v)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def gguf_header(keys, tensors, version=3):
    """Returns the file up to its data. keys: (name, type, value), of an array (name, (type,), values); tensors: (name, dims, type of
    its weights, bytes). The data of each tensor are padded to 32 bytes."""
    out = bytearray(b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)))
    for name, kind, v in keys:
        if isinstance(kind, tuple):
            out += string(name) + struct.pack("<IIQ", ARRAY, kind[0], len(v)) + b"".join(value(kind[0], x) for x in v)
        else:
            out += string(name) + struct.pack("<I", kind) + value(kind, v)
    offset = 0
    for name, dims, kind, size in tensors:
        out += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        offset += size + -size % 32
    return out + bytes(-len(out) % 32)


def gguf(keys, tensors, version=3):
    """keys: as gguf_header; tensors: (name, dims, float32 data or None)."""
    sizes = [(name, dims, 0, 4 * math.prod(dims)) for name, dims, _ in tensors]
    out = gguf_header(keys, sizes, version)
    for (_, _, values), (*_, size) in zip(tensors, sizes):
        out += struct.pack(f"<{size // 4}f", *(values if values is not None else [0.5] * (size // 4))) + bytes(-size % 32)
    return out


def vocabulary(model, tokens, kinds=None, **more):
    keys = [("tokenizer.ggml.model", STRING, model), ("tokenizer.ggml.tokens", (STRING,), tokens),
            ("tokenizer.ggml.token_type", (I32,), kinds or [1] * len(tokens))]
    types = {"scores": (F32,), "merges": (STRING,), "pre": STRING, "eos_token_id": U32, "bos_token_id": U32,
             "unknown_token_id": U32, "add_bos_token": BOOL, "cls_token_id": U32, "seperator_token_id": U32}
    return keys + [(f"tokenizer.ggml.{k}", types[k], v) for k, v in more.items()]


def decoder(arch, n_vocab, width=8, extra=(), weights=()):
    keys = [("general.architecture", STRING, arch), (f"{arch}.embedding_length", U32, width),
            (f"{arch}.block_count", U32, 1), (f"{arch}.context_length", U32, 64),
            (f"{arch}.feed_forward_length", U32, width), (f"{arch}.attention.head_count", U32, 1),
            (f"{arch}.attention.layer_norm_rms_epsilon", F32, 1e-5), *extra]
    w = [width, width]
    tensors = [("token_embd.weight", [width, n_vocab], None), ("output_norm.weight", [width], None),
               ("blk.0.attn_norm.weight", [width], None), ("blk.0.attn_q.weight", w, None),
               ("blk.0.attn_k.weight", w, None), ("blk.0.attn_v.weight", w, None),
               ("blk.0.attn_output.weight", w, None), ("blk.0.ffn_norm.weight", [width], None),
               ("blk.0.ffn_gate.weight", w, None), ("blk.0.ffn_up.weight", w, None),
               ("blk.0.ffn_down.weight", w, None), *weights]
    return keys, tensors


def gguf_seeds():
    bytes_bpe = [chr(b) for b in range(33, 127)] + ["\u0120", "\u010a", "ll", "he", "\u0120w", "<|im_end|>"]
    keys, tensors = decoder("llama", len(bytes_bpe))
    keys += vocabulary("gpt2", bytes_bpe, [1] * 99 + [3], pre="gpt-2", merges=["l l", "h e", "\u0120 w"],
                       eos_token_id=99)
    keys += [("tokenizer.chat_template", STRING, "{% for m in messages %}{{ m.content }}{% endfor %}")]
    write("gguf", "llama-bpe", gguf(keys, tensors))
    spm = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + [MARK, "H", "e", "l", "o", "el", MARK + "w"]
    keys, tensors = decoder("llama", len(spm), width=4)
    keys += vocabulary("llama", spm, [2, 3, 3] + [6] * 256 + [1] * 7, scores=[-float(i) for i in range(len(spm))],
                       bos_token_id=1, eos_token_id=2, unknown_token_id=0, add_bos_token=True)
    write("gguf", "llama-spm", gguf(keys, tensors))
    norms = [(f"blk.0.attn_{x}_norm.weight", [8], None) for x in "qk"]
    keys, tensors = decoder("qwen3", 8, extra=[("qwen3.attention.key_length", U32, 8),
                                               ("qwen3.attention.value_length", U32, 8)], weights=norms)
    write("gguf", "qwen3-no-vocab", gguf(keys, tensors))
    wordpiece = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", MARK + "hello", MARK + "w", "orld", "12", MARK + ","]
    write("gguf", "wordpiece", gguf(vocabulary("bert", wordpiece, [3, 2, 3, 3] + [1] * 5, cls_token_id=2,
                                               seperator_token_id=3, unknown_token_id=1), []))
    write("gguf", "unigram", gguf(vocabulary("t5", ["<pad>", "</s>", "<unk>", MARK, "He", "llo", MARK + "w"],
                                             [3, 3, 2, 1, 1, 1, 1], scores=[0., 0., 0., -2., -3., -3., -4.],
                                             unknown_token_id=2, eos_token_id=1), []))
    write("gguf", "empty", gguf([], [], version=2))
    types = [("a.scale", [2], 0, 8), ("a.weight", [64, 3, 2], 40, 6 * 36), ("b.scale", [1], 0, 4), ("b.weight", [64, 2], 40, 72)]
    write("gguf", "nvfp4", gguf_header([], types) + struct.pack("<2f", 1, 3) + bytes(24) + bytes(224) + struct.pack("<f", 2) +
          bytes(28 + 96))
    write("gguf", "q2_0-128", gguf_header([], [("a", [128, 64], 42, 64 * 34), ("b", [128], 41, 18)]) + bytes(64 * 34 + 32))


def imatrix_seeds():
    name = "blk.0.attn_q.weight"
    write("imatrix", "gguf", gguf([("general.type", STRING, "imatrix")],
                                  [(f"{name}.in_sum2", [4, 1], [1., 2., 0., 4.]), (f"{name}.counts", [1, 1], [3.])]))
    entry = struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii4f", 2, 4, 1., 2., 3., 0.)
    write("imatrix", "dat", struct.pack("<i", 1) + entry)
    write("imatrix", "dat-two", struct.pack("<i", 2) + 2 * entry + struct.pack("<ii", 7, 3) + b"abc")


# --- folders ---------------------------------------------------------------------------------------------------------

def safetensors(header, data):
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def safetensors_seeds():
    a = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}
    b = {"dtype": "BF16", "shape": [4], "data_offsets": [24, 32]}
    write("safetensors", "two", safetensors({"__metadata__": {"format": "pt"}, "a.weight": a, "b": b}, bytes(32)))
    write("safetensors", "scalar", safetensors({"x": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]}}, bytes(8)))
    write("safetensors", "empty", safetensors({"x": {"dtype": "U8", "shape": [0, 5], "data_offsets": [0, 0]}}, b""))
    write("safetensors", "spaces", struct.pack("<Q", 16) + b"{}              ")


def tokenizer(vocab, merges, model, pre=None, normalizer=None, post=None, added=()):
    return json.dumps({"version": "1.0", "added_tokens": list(added), "normalizer": normalizer, "pre_tokenizer": pre,
                       "post_processor": post, "decoder": None,
                       "model": {**model, "vocab": vocab, "merges": merges}}, ensure_ascii=False)


def ids(words):
    return {w: i for i, w in enumerate(words)}


def special(i, content):
    return {"id": i, "content": content, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False}


def tokenizer_json_seeds():
    def add(name, text, *parts):
        write("tokenizer_json", name, "\0".join([text, *parts]))
    bpe = {"type": "BPE", "unk_token": None, "ignore_merges": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    words = ["a", "b", "ab", "\u0120", "\u0120ab", "c"]
    settings = json.dumps({"eos_token": "<|end|>", "add_bos_token": False, "model_max_length": 10**30,
                           "chat_template": "{{ messages[0].content }}"})
    add("byte-level", tokenizer(ids(words), ["a b", ["\u0120", "ab"]], bpe, level, added=[special(6, "<|end|>")]),
        "ab abc<|end|>\xe4", settings, json.dumps({"temperature": 0.7, "top_k": 20, "eos_token_id": [6]}))
    split = {"type": "Split", "pattern": {"Regex": "\\p{L}+|(?i:'s)|[^\\r\\n\\p{L}\\p{N}]?\\d{1,3}|\\s+(?!\\S)"},
             "behavior": "Isolated", "invert": False}
    add("pattern", tokenizer(ids(words), ["a b"], bpe, {"type": "Sequence", "pretokenizers": [
        split, {**level, "use_regex": False}]}, normalizer={"type": "NFC"}), "ab's  123c\n")
    wide = {"type": "Split", "pattern": {"Regex": "|".join(f"a{chr(0x4E00 + 2 * i)}+|[{chr(0x4E01 + 2 * i)}-\\d]+" for i in range(200))},
            "behavior": "Isolated", "invert": False}
    many = [{**special(6 + i, f"<|{i}|>"), "special": i % 2 == 0, "normalized": i % 3 == 0, "single_word": i % 5 == 0} for i in range(75)]
    add("wide", tokenizer(ids(words), ["a b"], bpe, {"type": "Sequence", "pretokenizers": [wide, {**level, "use_regex": False}]},
                          normalizer={"type": "NFC"}, added=many), "".join(f"<|{i % 75}|>a{chr(0x4E00 + i)}" for i in range(200)))
    prepend = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": MARK}, {
        "type": "Replace", "pattern": {"String": " "}, "content": MARK}]}
    post = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {
        "Sequence": {"id": "A", "type_id": 0}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}
    chars = ["<unk>", "<s>", "</s>", "a", "aa", "aaa", MARK, MARK + "a", "b", "baa"]
    marks = [special(i, chars[i]) for i in range(3)]
    add("characters", tokenizer(ids(chars), [["a", "a"], [MARK, "a"], ["b", "aa"]], {
        "type": "BPE", "unk_token": "<unk>", "fuse_unk": False, "byte_fallback": False}, None, prepend, post, marks),
        "aa baa<s>", json.dumps({"added_tokens_decoder": {"1": {"content": "<s>"}}}))
    scores = [[w, -float(i)] for i, w in enumerate(["<s>", "<pad>", "</s>", "<unk>", MARK, "a", MARK + "ab"])]
    strip = {"type": "Sequence", "normalizers": [{"type": "Strip", "strip_left": False, "strip_right": True}, {
        "type": "Replace", "pattern": {"Regex": " {2,}"}, "content": MARK}]}
    add("unigram", json.dumps({"version": "1.0", "added_tokens": [special(3, "<unk>")], "normalizer": strip,
                               "pre_tokenizer": {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always"},
                               "post_processor": None, "model": {"type": "Unigram", "unk_id": 3, "vocab": scores}}),
        "ab a")
    wordpiece = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                 "max_input_chars_per_word": 100}
    add("wordpiece", tokenizer(ids(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "ab", "##c", "a"]), [], wordpiece,
                               {"type": "BertPreTokenizer"}, {"type": "BertNormalizer", "clean_text": True,
                                                              "handle_chinese_chars": True, "strip_accents": None,
                                                              "lowercase": True}), "Abc \xc4b")


def varint(v):
    out = b""
    while v >= 0x80:
        out, v = out + bytes([v & 0x7F | 0x80]), v >> 7
    return out + bytes([v])


def field(number, v):
    if isinstance(v, bytes):
        return varint(number << 3 | 2) + varint(len(v)) + v
    return varint(number << 3) + varint(v & 2**64 - 1)


def tokenizer_model_seeds():
    def piece(text, score, kind):
        return field(1, field(1, text.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + field(3, kind))
    pieces = b"".join([piece("<unk>", 0, 2), piece("<s>", 0, 3), piece("</s>", 0, 3), piece(MARK, -3, 1),
                       piece("a", -4, 1), piece("l", -5, 1), piece("o", -6, 1), piece(MARK + "a", -1, 1),
                       piece(MARK * 2, 0, 4)])
    fallback = b"".join(piece(f"<0x{b:02X}>", 0, 6) for b in range(256))
    for name, model, more in ("bpe", 2, b""), ("unigram", 1, b""), ("bytes", 2, fallback):
        trainer = field(3, model) + field(35, int(bool(more))) + field(43, -1)
        write("tokenizer_model", name, pieces + more + field(2, trainer) + field(3, field(4, 0) + field(5, 1)))


def config_json_seeds():
    seen = set()
    for path in sorted(MODELS.glob("*.hf/config.json")):
        config = json.loads(path.read_text())
        quantisation = config.get("quantization_config", {})
        kind = config["architectures"][0], quantisation.get("quant_method"), quantisation.get("format")
        if kind not in seen:
            seen.add(kind)
            write("config_json", path.parent.stem, f"{path.parent.stem}\n{json.dumps(config, separators=(',', ':'))}")


# --- FastCGI ---------------------------------------------------------------------------------------------------------

BEGIN, ABORT, PARAMS, STDIN, GET_VALUES = 1, 2, 4, 5, 9


def record(kind, i, content=b"", padding=0):
    return struct.pack(">BBHHBB", 1, kind, i, len(content), padding, 0) + content + bytes(padding)


def begin(i, role=1, padding=0):
    return record(BEGIN, i, struct.pack(">HB5x", role, 1), padding)


def pair(name, text):
    return bytes([len(name), len(text)]) + name + text


def records_seeds():
    def add(name, size, *records):
        write("records", name, bytes([size - 1]) + b"".join(records))
    env = pair(b"REQUEST_METHOD", b"GET") + pair(b"DOCUMENT_URI", b"/v1/models") + pair(b"QUERY_STRING", b"")
    get = [record(PARAMS, 1, env), record(PARAMS, 1), record(STDIN, 1)]
    for size in 1, 3, 8, 256:
        add(f"get-{size}", size, begin(1), *get)
    add("cut", 7, begin(1), record(PARAMS, 1, env[:17]), record(PARAMS, 1, env[17:]), record(PARAMS, 1), record(STDIN, 1, b"{}")[:9])
    add("two", 5, begin(1), begin(2), get[0], record(PARAMS, 2, env), record(PARAMS, 2), *get[1:], record(STDIN, 2))
    add("asked", 4, record(GET_VALUES, 0, pair(b"FCGI_MAX_CONNS", b""), 7), record(99, 0), begin(1), *get)
    add("managed", 16, *(16 * [record(GET_VALUES, 0)]), begin(0), begin(1), *get)
    add("aborted", 6, begin(1), get[0], record(ABORT, 2), record(ABORT, 1), *get[1:])
    add("padding", 9, begin(1, padding=255), record(PARAMS, 1, env, 5), record(PARAMS, 1, padding=8), record(STDIN, 1, padding=1))
    add("role-2", 3, begin(1, role=2), *get)
    lie = struct.pack(">II", 2**32 - 1, 2**32 - 1)
    add("lies", 8, begin(1), record(PARAMS, 1, lie))
    add("lies-less", 8, begin(1), record(PARAMS, 1, struct.pack(">IB", 2**31 + 2**30, 0)))
    add("long", 64, begin(1), record(PARAMS, 1, struct.pack(">BI", 1, 2**31 + 2**16 - 1) + bytes(300)), record(STDIN, 1))
    add("most", 100, begin(1), record(PARAMS, 1, bytes(2 * 256)), *get[1:])
    add("many", 100, begin(1), record(PARAMS, 1, bytes(2 * 257)), *get[1:])
    add("many-lies", 1, begin(1), record(PARAMS, 1, bytes(2 * 257) + lie))


# --- requests --------------------------------------------------------------------------------------------------------

JINJA = {
    "chatml": "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' + (m.content or '') + '<|im_end|>' }}"
              "{% if not loop.last %}\n{%- endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>{% endif %}",
    "tools": "{%- macro call(f, n=1) -%}{{ f.name }}({{ f.arguments | tojson(indent=2) }}){%- endmacro -%}\n"
             "{%- set ns = namespace(n=0) -%}{% for m in messages if m.tool_calls is defined %}{% set ns.n = ns.n + 1 %}"
             "{{ call(m.tool_calls[0].function) }}{% else %}none{% endfor %}{{ ns.n }}{{ tools|map(attribute='type')|join(',') }}",
    "filters": "{{ 'aBc'|upper|replace('B', 'x')|trim }}{{ [3, 1, 2]|sort|reverse|list|last }}{{ {'b': 1, 'a': 2}|dictsort }}"
               "{{ '%s %05.2f %d'|format('x', 1.5, 3) }}{{ '{:>5}'.format('y') }}{{ 'a,b'.split(',')[1:] }}"
               "{{ [1, 2, 3]|selectattr('x', 'undefined')|list|length }}{{ messages|groupby('role')|first }}",
    "logic": "{%- set x = 7 // 2 * 2 ** 3 % 5 - -1 -%}{{ x if x is odd and x not in [1, 2] else 'even' }}{# note #}"
             "{% raw %}{{ raw }}{% endraw %}{% set t %}in{{ x }}{% endset %}{{ t ~ 1 <= 2 == true }}{{ range(3)|list }}"
             "{% for a, b in {'k': 'v'}.items() recursive %}{{ loop.cycle('1', '2') }}{{ a ~ b }}{% break %}{% endfor %}",
    "errors": "{% if messages[0].role == 'user' %}{{ raise_exception('no') }}{% endif %}{{ messages[0].x.y }}",
    "strftime": "{{ strftime_now('%d %b %Y %H:%M') }}{{ 'x'.startswith(('a', 'x')) }}{{ 'ab'[::-1] }}{{ \"\\u00e4\\n\" }}",
}

REQUESTS = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "hi"}], "temperature": 0.5, "top_p": 0.9, "n": 2,
             "stream": True, "stream_options": {"include_usage": True}, "stop": ["a", "b"], "max_completion_tokens": 5,
             "logit_bias": {"5": -100, "7": 1.5}, "logprobs": True, "top_logprobs": 3, "seed": -1, "user": "u"},
    "completion": {"prompt": "x", "max_tokens": 0, "echo": True, "logprobs": 2, "best_of": 2, "n": 2, "stop": "\n",
                   "suffix": None, "presence_penalty": -2, "frequency_penalty": 2.0, "top_k": 40, "min_p": 0.05},
    "own": {"prompt": [1, 2, 3], "repetition_penalty": 1.1, "stop_token_ids": [1, 2], "ignore_eos": True, "min_tokens": 1,
            "cache_salt": "s", "return_token_ids": True, "response_format": {"type": "text"}, "skip_special_tokens": False},
    "tools": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a\u0000\ud83d\ude00"}]}],
              "tool_choice": "auto", "tools": [], "reasoning_effort": "low", "chat_template_kwargs": {"x": 1}},
}

FUNCTION = {"type": "function", "function": {"name": "f", "description": "d", "parameters": {
    "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"x\": 1}"}}
MESSAGES = {
    "plain": {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u <b>"},
                           {"role": "assistant", "content": "a"}, {"role": "user", "content": "v"}],
              "add_generation_prompt": True},
    "tools": {"tools": [FUNCTION], "tool_choice": "auto", "messages": [
        {"role": "developer", "content": "s"}, {"role": "user", "content": "u"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "7"}, {"role": "assistant", "content": "<think>x</think>7"}]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                           {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
                           {"role": "user", "content": "", "name": "n"}], "tools": []},
    "function": {"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "function_call": CALL["function"]},
                              {"role": "function", "name": "f", "content": "1"}], "tools": [FUNCTION]},
}
ANTHROPIC_CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}
ANTHROPIC = {
    "plain": {"model": "m", "max_tokens": 5, "stream": True, "system": "s", "messages": [{"role": "user", "content": "u"}],
              "temperature": 0.5, "top_p": 0.9, "top_k": 5, "stop_sequences": ["a"], "metadata": {"user_id": "u"}},
    "tools": {"model": "m", "max_tokens": 5, "tool_choice": {"type": "tool", "name": "f", "disable_parallel_tool_use": True},
              "tools": [{"name": "f", "description": "d", "input_schema": {"type": "object"}, "strict": True}],
              "system": [{"type": "text", "text": "x-anthropic-billing-header: a"}, {"type": "text", "text": "s"}],
              "messages": [{"role": "user", "content": [{"type": "text", "text": "u"}]}, {"role": "system", "content": "n"},
                           {"role": "assistant", "content": [{"type": "thinking", "thinking": "h", "signature": "x"},
                                                             {"type": "text", "text": "a"}, ANTHROPIC_CALL]},
                           {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [
                               {"type": "text", "text": "r"}]}, {"type": "text", "text": "v"}]}]},
    "format": {"model": "m", "max_tokens": 5, "thinking": {"type": "enabled", "budget_tokens": 1024}, "mcp_servers": [],
               "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {"type": "object"}}},
               "messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": [
                   {"type": "redacted_thinking", "data": "d"}]}, {"role": "system", "content": [{"type": "text", "text": "n"}]}]},
}

CHAT_PARTS = {
    "channels": "\x02<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>",
    "dsml": "\x03<\uff5cDSML\uff5cinvoke name=\"f\">\n<\uff5cDSML\uff5cparameter name=\"k\" string=\"true\">v</\uff5cDSML\uff5cparameter></\uff5cDSML\uff5cinvoke>",
    "kimi": "\x05<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
    "invoke": "\x06<minimax:tool_call><invoke name=\"f\"><parameter name=\"k\">1</parameter></invoke></minimax:tool_call>",
    "mistral": "\x07[TOOL_CALLS]f[CALL_ID]a[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}",
    "quoted": "\x08<|tool_call>call:f{a:<|\"|>b<|\"|>,c:{d:[1]}}<tool_call|>",
    "python": "\x09<|tool_call_start|>[f(a=\"b\", c=['d', None]), g()]<|tool_call_end|>",
    "bare_list": "\x0b[f(a=1)]",
    "bare": "\x0c{\"name\": \"f\", \"parameters\": {}}; {\"name\": \"g\", \"parameters\": {}}",
    "seed": "\x0d<seed:tool_call>\n<function=f>\n<parameter=a>1</parameter>\n</function>\n</seed:tool_call>",
    "keyed": "\x0e<|inner_prefix|>a<|inner_suffix|><|tools_prefix|>[{\"f\": {\"s\": 1}}, {\"g\": {}}]<|tools_suffix|>",
    "actions": "\x10<|START_ACTION|>[{\"tool_name\": \"f\", \"parameters\": {}}]<|END_ACTION|><|START_RESPONSE|>a<|END_RESPONSE|>",
    "toolcall": "\x11<TOOLCALL>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": {}}]</TOOLCALL>",
    "json": '<think>\nHm\n</think>\n\nI call.\n<tool_call>\n{"name": "f", "arguments": {"a": "</tool_call>", "b": 1}}\n</tool_call>',
    "parameters": "<tool_call>\n<function=f>\n<parameter=a>\n[1]\n</parameter>\n</function>\n</tool_call>\n",
    "known": '\x20<tool_call>[{"name": "f", "arguments": {"s": "a\\u00e9"}}, {"name": "g", "arguments": "{}"}]</tool_call>',
    "broken": '\x20<tool_call>{"name": "f", "arguments": {"s": [1, x]}}</tool_call>',
    "cut": "\x26<minimax:tool_call><invoke name=\"f\"><parameter name=\"s\">a\"b</parameter></invoke><invoke name=\"f\"><parameter name=\"s\">c",
    "arg_keys": "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>b</arg_value>\n</tool_call>",
}

# Each with a text that it says.
GRAMMARS = {
    "gbnf": {
        "list": ('root ::= "[" (item ("," item)*)? "]"\nitem ::= [a-z]+ | root # nested\n', "[ab,[c]]"),
        "counts": ('root ::= x{2,3} "\\u00e9"?\nx ::= [^\\n\\]] | "\\x41" {3}', "1AAA\u00e9"),
        "left": ('root ::= root "+" n | n\nn ::= ("0" | [1-9] [0-9]*) |', "1+20+"),
    },
    "lark": {
        "words": ('start: (A | b)~1..3 -> x\nA: "a".."c" | /[d-f]+/i\n?b.2: ["x"i] start? // c\n%ignore " "\n', "a X dE"),
        "common": ('%import common (ESCAPED_STRING, INT)\n%import common.WS -> S\n%ignore S\nstart: "[" [v ("," v)*] "]"\n'
                   'v: ESCAPED_STRING | INT | start\n', '[ "a\\"b", 12, [] ]'),
    },
    "pattern": {
        "date": (r"^\d{4}-(0[1-9]|1[0-2])$", "2024-02"),
        "names": (r"(?<name>[A-Z][^\s,]*)(?:, ?\w+)*?|\u{1F600}", "Abc, d"),
        "ends": (r"^a|b$|^$|[\d\-\]]{2,5}\.", "12-."),
    },
    "schema": {
        "object": (json.dumps({"type": "object", "properties": {"a": {"type": "integer", "minimum": -3, "maximum": 120},
                                                                "b": {"$ref": "#/$defs/l"}}, "required": ["a"],
                               "additionalProperties": False,
                               "$defs": {"l": {"type": "array", "items": {"$ref": "#"}, "maxItems": 3}}}), '{"a": 12, "b": []}'),
        "texts": (json.dumps({"anyOf": [{"type": "string", "pattern": "^[a-c]+$", "maxLength": 4}, {"enum": [1, "x", None, {"k": [True]}]},
                                        {"type": "string", "format": "date-time"}]}), '"abc"'),
        "others": (json.dumps({"type": ["object", "null"], "patternProperties": {"^x-": {"type": "boolean"}},
                               "additionalProperties": {"type": "number"}, "minProperties": 1}), '{"x-a":true,"b":1e3}'),
        "one": (json.dumps({"oneOf": [{"type": "object", "properties": {"k": {"const": "a"}}, "required": ["k"]},
                                      {"type": "object", "properties": {"k": {"const": "b"}}, "required": ["k"]}]}), '{"k":"b"}'),
    },
}

# More alternatives at one place than any table's first size, of which none is a plain expression.
WIDE = range(600)
GRAMMARS["gbnf"]["wide"] = ("root ::= \"k\"? (" + "|".join(f"r{i}" for i in WIDE) + ")\n" +
                            "".join(f'r{i} ::= "{i:03}" r{i}? ")"\n' for i in WIDE), "k299299))")
GRAMMARS["lark"]["wide"] = ("start: \"k\"? (" + "|".join(f"r{i}" for i in WIDE) + ")\n" +
                            "".join(f'r{i}: "{i:03}" r{i}? ")"\n' for i in WIDE), "k299299))")
GRAMMARS["pattern"]["wide"] = ("|".join(f"a{i}|[{i}]+" for i in WIDE), "a299")
GRAMMARS["schema"]["wide"] = (json.dumps({"anyOf": [{"enum": [[i, {"a": i}] for i in WIDE[:300]]}] +
                                         [{"const": {"k": [i]}} for i in WIDE]}), '{"k": [299]}')


def main():
    gguf_seeds()
    imatrix_seeds()
    safetensors_seeds()
    tokenizer_json_seeds()
    tokenizer_model_seeds()
    config_json_seeds()
    records_seeds()
    for name, text in JINJA.items():
        write("jinja", name, text)
    some = range(150)  # more than twice the first size of every table of the interpreter
    write("jinja", "wide", "".join(f"{{% set v{i}={i} %}}" for i in some) + "{{ v149 }}{{ [" + ",".join(map(str, some)) + "]|sum }}{{ {" +
          ",".join(f"'k{i}':{i}" for i in some) + "}.k149 }}" + "".join(f"{{% macro m{i}() %}}{i}{{% endmacro %}}" for i in some) +
          "{{ m149() }}{{ d|dictsort|length }}\0" + json.dumps({"d": {f"k{i}": i for i in some}}))
    write("jinja", "variables", "{{ x.y[0] }}{{ d|tojson }}\0" + json.dumps({"x": {"y": [1e300, None]}, "d": {"\"": []}}))
    for name, text in CHAT_PARTS.items():
        write("chat_parts", name, text)
    for target, table in GRAMMARS.items():
        for name, (grammar, text) in table.items():
            write(target, name, f"{grammar}\0{text}")
    for target, table in ("request", REQUESTS), ("messages", MESSAGES), ("anthropic", ANTHROPIC):
        for name, body in table.items():
            write(target, name, json.dumps(body))


main()
