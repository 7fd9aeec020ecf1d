#!/usr/bin/env python3
"""Added tokens of a tokenizer.json (normalized, single_word, lstrip, rstrip) against Hugging Face's tokenizers.

    v/bin/python tests/golden/added_tokens.py INFCGI [--rounds 20] [--seed 1]       random tokens and texts
    v/bin/python tests/golden/added_tokens.py --write tests/golden/added_tokens.json   the results that a unit test checks

INFCGI is the program; v has the package tokenizers 0.23. Each round makes small tokenizers of each kind with random added
tokens, and compares the ids of random texts. Two tokens never have the same normalized text: which of them tokenizers
finds is not defined. Exit status 1 when anything differs.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unicodedata

from tokenizers import Tokenizer


def alphabet():
    """The characters of the bytes 0 to 255 in byte-level BPE."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in kept]
    return [chr(b) if b in kept else chr(256 + rest.index(b)) for b in range(256)]


def special(texts):
    return [{"id": i, "content": c, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
            for i, c in enumerate(texts)]


def tokenizer(model, normalizer, pre, added):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special(added), "normalizer": normalizer,
            "pre_tokenizer": pre, "post_processor": None, "decoder": None, "model": model}


def bpe(vocab, pairs, **more):
    for a, b in pairs:
        vocab[a + b] = len(vocab)
    return {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False, "vocab": vocab,
            "merges": [list(p) for p in pairs], **more}


def byte_bpe(normalizer):
    vocab = {c: i for i, c in enumerate(alphabet())}
    pre = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return tokenizer(bpe(vocab, [("h", "e"), ("l", "l"), ("\u0120", "w"), ("he", "ll")]), normalizer, pre, [])


def char_bpe(normalizer, pre):
    names = ["<unk>", "<s>", "</s>", *("<0x%02X>" % b for b in range(256)), *("\u2581" + LETTERS)]
    pairs = [("h", "e"), ("l", "l"), ("\u2581", "h"), ("\u2581", "x"), ("he", "ll")]
    model = bpe({c: i for i, c in enumerate(names)}, pairs, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    return tokenizer(model, normalizer, pre, names[:3])


def wordpiece(lower):
    names = ["[UNK]", "[CLS]", "[SEP]", *(p + c for c in LETTERS + "\u65e5" for p in ("", "##")), "hello"]
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
             "vocab": {c: i for i, c in enumerate(names)}}
    normalizer = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None,
                  "lowercase": lower}
    return tokenizer(model, normalizer, {"type": "BertPreTokenizer"}, names[:3])


def unigram():
    vocab = [["<unk>", 0.0], ["<s>", 0.0], ["</s>", 0.0], ["\u2581", -3.0],
             *([c, -4.0 - i * 0.01] for i, c in enumerate(LETTERS)), ["\u2581he", -3.5], ["ll", -3.4], ["hello", -5.0]]
    normalizers = [{"type": "Strip", "strip_left": False, "strip_right": True},
                   {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}]
    return tokenizer({"type": "Unigram", "unk_id": 0, "byte_fallback": False, "vocab": vocab},
                     {"type": "Sequence", "normalizers": normalizers}, metaspace("always", True),
                     ["<unk>", "<s>", "</s>"])


def metaspace(scheme, splits):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": splits}


LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,<>|\u00e9"
REPLACE = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
PREPEND = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, REPLACE]}
SPLIT = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
KINDS = {
    "bytes": lambda: byte_bpe(None),
    "bytes-nfc": lambda: byte_bpe({"type": "NFC"}),
    "bytes-nfd": lambda: byte_bpe({"type": "NFD"}),
    "bytes-nfkc": lambda: byte_bpe({"type": "NFKC"}),
    "legacy": lambda: char_bpe(PREPEND, None),
    "gemma": lambda: char_bpe(REPLACE, SPLIT),
    "metaspace-first": lambda: char_bpe(None, metaspace("first", False)),
    "metaspace-always": lambda: char_bpe(None, metaspace("always", True)),
    "bert": lambda: wordpiece(True),
    "bert-cased": lambda: wordpiece(False),
    "unigram": unigram,
}
CONTENTS = ["<x>", "ex", "e\u0301x", "\u00e9x", "foo", "Foo", "FOO bar", "hello", " hello", "x ", "\u2460", "\u212b", "<|a|>",
            "b\u00e4r", "ba\u0308r", "ll", "\u65e5x", "o b", "<x><x>", "oo"]
PIECES = ["<x>", "x", "e", "\u0301", "\u00e9", "E\u0301x", "foo", "Foo", "FOO", " bar", "bar", "hello", "Hello", " ", "  ",
          "\n", "\t", "\u3000", "\u2460", "1", "\u212b", "\u00c5", "<|a|>", "b\u00e4r", "BA\u0308R", "ll", "\u65e5", "_", "-",
          ".", ",", "o b", "\u200d", "\u0308", "<s>", "a", "\u0130", "\u2581"]
# What the encoder takes otherwise with any tokens: U+2581 in text, white space that is no space.
LEFT_OUT = {"unigram": "\n\t\u3000\u2581", "bert": "\u2581", "bert-cased": "\u2581"}


def folded(text):
    """The same for texts that some normalizer makes equal."""
    text = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return text.lower().strip()


def make(kind, r):
    """A tokenizer.json with a few random added tokens, and the number of ids."""
    t = KINDS[kind]()
    vocab = t["model"]["vocab"]
    known = {folded(c) for c in vocab} if isinstance(vocab, dict) else {folded(c) for c, _ in vocab}
    n = len(vocab)
    for content in r.sample(CONTENTS, r.randint(1, 6)):
        if folded(content) in known or (kind == "unigram" and content[-1] == " "):
            continue
        known.add(folded(content))
        t["added_tokens"].append({
            "id": n, "content": content, "single_word": r.random() < 0.3, "lstrip": r.random() < 0.25,
            "rstrip": r.random() < 0.25, "normalized": r.random() < 0.65, "special": r.random() < 0.2})
        n += 1
    return t, n


def text_for(kind, r):
    pieces = [p for p in PIECES if p not in LEFT_OUT.get(kind, "")]
    return "".join(r.choice(pieces) for _ in range(r.randint(1, 24)))


def write_folder(folder, t, n):
    with open(os.path.join(folder, "tokenizer.json"), "w") as f:
        json.dump(t, f)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_hidden_layers": 1,
                   "num_attention_heads": 1, "max_position_embeddings": 64}, f)
    entry = {"dtype": "F16", "shape": [n, 8], "data_offsets": [0, 16 * n]}
    header = json.dumps({"model.embed_tokens.weight": entry}).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + bytes(16 * n))


def compare(program, kind, r, n_texts):
    """The number of texts that differ."""
    t, n = make(kind, r)
    right = Tokenizer.from_str(json.dumps(t))
    n_wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder, t, n)
        for _ in range(n_texts):
            text = text_for(kind, r)
            run = subprocess.run([program, "tokenize", folder, "--ids", "--no-bos", "--parse-special"],
                                 input=text.encode(), stdout=subprocess.PIPE, check=True)
            expected, found = right.encode(text, add_special_tokens=False).ids, json.loads(run.stdout)
            if expected != found:
                n_wrong += 1
                print(f"FAILED {kind} {text!r}\n  added    {t['added_tokens']}\n  expected {expected}\n  found    {found}")
    return n_wrong


def write(path, seed):
    r = random.Random(seed)
    rows = []
    for kind in KINDS:
        t, _ = make(kind, r)
        while sum(a["normalized"] for a in t["added_tokens"]) < 2 or not any(a["single_word"] for a in t["added_tokens"]):
            t, _ = make(kind, r)
        right = Tokenizer.from_str(json.dumps(t))
        texts = [text_for(kind, r) for _ in range(16)]
        rows.append({"kind": kind, "tokenizer": t,
                     "cases": [[x, right.encode(x, add_special_tokens=False).ids] for x in texts]})
    with open(path, "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n")


def main():
    args = argparse.ArgumentParser()
    args.add_argument("program", nargs="?")
    args.add_argument("--rounds", type=int, default=20)
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--write")
    args = args.parse_args()
    if args.write:
        write(args.write, args.seed)
        return 0
    r = random.Random(args.seed)
    wrong = {kind: sum(compare(args.program, kind, r, 3) for _ in range(args.rounds)) for kind in KINDS}
    for kind, n in wrong.items():
        print(f"{kind:18} {3 * args.rounds} texts, {n} differ")
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
