#!/usr/bin/env python3
"""Makes the reference for tests/golden/fidelity: next-token logits of Hugging Face transformers in float32 on the
dequantised weights of a GGUF file, over a mixed text (English, code, German, Japanese, emoji).

    python3 tests/golden/fidelity.py MODEL.gguf OUT [N_TOKENS] [--top 8]

With --top only the most likely ids of each position and their log-probabilities are written, small enough to commit:
tests/golden/fidelity_smollm2.top8 comes from the default model (nginx/fetch-model.sh) with --top 8. fidelity.c says
what both forms hold. The text is tokenised by `build/release/infcgi tokenize --ids` from the repository root. Needs
requirements.txt.
"""
import argparse
import json
import struct
import subprocess
import sys

import gguf
import numpy as np
import torch
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM)

sys.path.insert(0, __file__.rsplit("/", 1)[0])
from make_golden import gemma_rope, slots_of  # noqa: E402

CLASSES = {"llama": (LlamaConfig, LlamaForCausalLM), "qwen2": (Qwen2Config, Qwen2ForCausalLM),
           "gemma3": (Gemma3TextConfig, Gemma3ForCausalLM)}


def unpermute(w, n_head):
    return w.reshape(n_head, w.shape[0] // n_head // 2, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def family_config(arch, key):
    """What a family's configuration says beyond what all have."""
    if arch != "gemma3":
        return {"rope_parameters": {"rope_type": "default", "rope_theta": key("rope.freq_base", 10000.0)}}
    scaling = {"kind": "linear", "factor": key("rope.scaling.factor")} if key("rope.scaling.type") == "linear" else {}
    scale = key("embedding_length") // key("attention.head_count") if key("block_count") == 62 else key("attention.key_length")
    return {"head_dim": key("attention.key_length"), "query_pre_attn_scalar": scale,
            "sliding_window": key("attention.sliding_window"), "final_logit_softcapping": key("final_logit_softcapping"),
            "rope_parameters": gemma_rope(theta=key("rope.freq_base"), **scaling)}


def load(path):
    r = gguf.GGUFReader(path)
    arch = r.fields["general.architecture"].contents()

    def key(name, default=None):
        field = r.fields.get(f"{arch}.{name}")
        return default if field is None else field.contents()

    tensors = {t.name: t for t in r.tensors}
    heads, kv_heads = key("attention.head_count"), key("attention.head_count_kv")
    config_class, model_class = CLASSES[arch]
    config = config_class(
        vocab_size=int(tensors["token_embd.weight"].shape[1]), hidden_size=key("embedding_length"),
        intermediate_size=key("feed_forward_length"), num_hidden_layers=key("block_count"), num_attention_heads=heads,
        num_key_value_heads=kv_heads, rms_norm_eps=key("attention.layer_norm_rms_epsilon"),
        max_position_embeddings=key("context_length"), tie_word_embeddings="output.weight" not in tensors,
        **family_config(arch, key))
    model = model_class(config).float().eval()
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
             "output.weight": "lm_head.weight"}
    back = {v: k for k, v in slots_of(arch).items()}
    state = {}
    for name, t in tensors.items():
        w = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        if name.startswith("blk."):
            _, layer, slot, kind = name.split(".")
            target = f"model.layers.{layer}.{back[slot]}.{kind}"
            if arch == "llama" and slot in ("attn_q", "attn_k"):
                w = unpermute(w, heads if slot == "attn_q" else kv_heads)
        else:
            target = names[name]
        if arch == "gemma3" and w.ndim == 1:
            w = w - 1  # transformers multiplies by 1 + w
        state[target] = torch.from_numpy(w.copy())
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected and all("lm_head" in m for m in missing), (missing, unexpected)
    model.tie_weights()
    return model


def write_full(f, ids, logits):
    f.write(struct.pack("<2i", len(ids), logits.shape[1]))
    f.write(np.array(ids, np.int32).tobytes())
    f.write(logits.astype(np.float32).tobytes())


def write_top(f, ids, logits, n_top):
    """The n_top most likely ids of each position, their log-probabilities, and that of all other ids together."""
    order = np.argsort(-logits, axis=1, kind="stable")
    sorted_logits = np.take_along_axis(logits, order, axis=1).astype(np.float64)
    total = np.logaddexp.reduce(sorted_logits, axis=1, keepdims=True)
    rest = np.logaddexp.reduce(sorted_logits[:, n_top:], axis=1, keepdims=True)
    logprobs = np.concatenate([sorted_logits[:, :n_top], rest], axis=1) - total
    f.write(struct.pack("<3i", -n_top, len(ids), logits.shape[1]))
    f.write(np.array(ids, np.int32).tobytes())
    f.write(np.ascontiguousarray(order[:, :n_top]).astype(np.int32).tobytes())
    f.write(logprobs.astype(np.float32).tobytes())


def main():
    args = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    args.add_argument("model")
    args.add_argument("out")
    args.add_argument("n_tokens", nargs="?", type=int, default=1200)
    args.add_argument("--top", type=int, default=0, metavar="N")
    args = args.parse_args()
    text = open(__file__.rsplit("/", 1)[0] + "/fidelity.txt", encoding="utf-8").read()
    ids = json.loads(subprocess.run(["build/release/infcgi", "tokenize", args.model, "--ids", "-"], input=text.encode(),
                                    stdout=subprocess.PIPE, check=True).stdout)[:args.n_tokens]
    model = load(args.model)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0].numpy()
    with open(args.out, "wb") as f:
        if args.top > 0:
            write_top(f, ids, logits, args.top)
        else:
            write_full(f, ids, logits)
    print(f"{len(ids)} tokens, vocabulary {logits.shape[1]}")


if __name__ == "__main__":
    main()
