#!/usr/bin/env python3
"""Token ids of SafeTensors folders against those of Hugging Face's tokenizers, which writes the folder's tokenizer.json.

    v/bin/python tests/golden/tokenizer_folder.py INFCGI FOLDER [MODEL.gguf...] [--mb 10] [--only NAME]

INFCGI is the program, FOLDER holds ggml-vocab-*.gguf (tokenizer_vectors.sh), each MODEL is a vocabulary to be compared
besides. Vocabularies, rules and text are those of tokenizer_agreement.py; here control tokens are in the text too, and
Phi-3's take in the white space after them. Prints a line each; exit status 1 when anything differs.
"""
import argparse
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

from tokenizers import AddedToken

from tokenizer_agreement import CONTROL, Vocabulary, make_texts

NAMES = ["gpt-2", "llama-bpe", "qwen2", "llama-spm", "phi-3", "gemma-4"]


def write_folder(folder, tokenizer, n_vocab):
    """The least that opens: the shapes of a Llama, and an embedding of zeros."""
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump({"architectures": ["LlamaForCausalLM"], "hidden_size": 8, "num_hidden_layers": 1,
                   "num_attention_heads": 1, "max_position_embeddings": 64}, f)
    entry = {"dtype": "F16", "shape": [n_vocab, 8], "data_offsets": [0, 16 * n_vocab]}
    header = json.dumps({"model.embed_tokens.weight": entry}).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header + bytes(16 * n_vocab))


def compare(program, path, n_bytes):
    name = os.path.basename(path)
    v = Vocabulary(path)
    tokenizer = v.build()
    controls = [t for t, k in zip(v.tokens, v.kinds) if k == CONTROL and t]
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, rstrip="phi-3" in name) for t in controls])
    words = [w for w in dict.fromkeys(v.words()) if w]
    r = random.Random(20261122)
    text = "".join(t + r.choice(controls) + r.choice(["", " ", "\n \u3000"])
                   for t in make_texts(n_bytes, words, [], 20261122))
    right = tokenizer.encode(text, add_special_tokens=False).ids
    with tempfile.TemporaryDirectory() as folder:
        write_folder(folder, tokenizer, len(v.tokens))
        run = subprocess.run([program, "tokenize", folder, "--ids", "--no-bos", "--parse-special"], input=text.encode(),
                             stdout=subprocess.PIPE, check=True)
    left = json.loads(run.stdout)
    at = next((i for i, (a, b) in enumerate(zip(left, right)) if a != b), min(len(left), len(right)))
    is_same = left == right
    print(f"{'passed' if is_same else 'FAILED':7} {name:34} {len(text.encode()) / 1e6:6.2f} MB, {len(right)} tokens", flush=True)
    if not is_same:
        for side, ids in (("expected", right), ("found", left)):
            print(f"        {side}", [v.tokens[i] for i in ids[max(0, at - 3):at + 6]])
    return is_same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--mb", type=float, default=10)
    parser.add_argument("--only", default="")
    a = parser.parse_args()
    paths = [os.path.join(a.folder, f"ggml-vocab-{name}.gguf") for name in NAMES] + a.models
    paths = [p for p in paths if a.only in os.path.basename(p)]
    results = [compare(a.program, p, int(a.mb * 1e6)) for p in paths]
    return 0 if results and all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
