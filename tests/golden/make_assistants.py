#!/usr/bin/env python3
"""Makes the golden models of Gemma 4 with an assistant: a tiny model of random weights and its prediction head, as
transformers saves them and as llama.cpp's converter makes GGUF files of them, with the results of transformers in float32.

    v/bin/python tests/golden/make_assistants.py PEER tests/golden/models [NAME ...]    (v and PEER: make_families.py)

NAME.gguf is the model and NAME.draft.gguf the head (Gemma4AssistantForCausalLM); of the first, also folders. NAME.expect.gguf
has the prompts of make_golden.py and, of each, the head's logits for the token that follows the prompt (predict) and the
tokens that it guesses after it (guesses), each from its own output for the guess before. All rows have the position of that
token. Local layers see as many positions before it as a window of the model includes; transformers' assistant would see two
more, so it gets no others.
"""
import shutil
import sys
import tempfile
import zlib
from pathlib import Path

import make_families as families

# ruff: noqa: E402
import numpy as np
import torch
import transformers as hf
from conversion.base import gguf

from make_families import IDS, choose_prompts, gemma4, round_weights
from make_golden import COMMON, MARGIN, spread_out, write_expected

GUESSES = 4
WINDOW = 13
LOCAL, GLOBAL = "sliding_attention", "full_attention"


def sharing_modes(config):
    """Of layers: the head's all take keys and values, the last of a kind gives them. 5.23 refuses heads, and gives none if
    the model itself shares none."""
    n, kinds = config.num_hidden_layers, config.layer_types
    first = n - config.num_kv_shared_layers
    return ["reuse" if i >= first else "store" if kinds[i] not in kinds[i + 1:first] else None for i in range(n)]


hf.Gemma4TextConfig.kv_sharing_modes = property(sharing_modes)


def assistant(body, kinds, **more):
    """A head with fewer, narrower layers. Its heads read keys of the model's widths."""
    text = hf.Gemma4TextConfig(
        **COMMON, **IDS, head_dim=12, global_head_dim=24, sliding_window=WINDOW, num_hidden_layers=len(kinds),
        layer_types=kinds, hidden_size_per_layer_input=0, vocab_size_per_layer_input=0,
        num_kv_shared_layers=len(kinds), **more)
    head = hf.Gemma4AssistantForCausalLM(hf.Gemma4AssistantConfig(
        text_config=text, backbone_hidden_size=body.config.hidden_size, attn_implementation="eager"))
    for i, layer in enumerate(head.model.layers):
        layer.layer_scalar.fill_(1.25 - i / 8)
    return head


# The model; its head.
MODELS = {
    # E2B's form: the model's last layers share keys and values too
    "gemma4-assistant": (
        lambda: gemma4(6, final_logit_softcapping=30.0, hidden_size_per_layer_input=12, num_kv_shared_layers=3,
                       use_double_wide_mlp=True),
        lambda body: assistant(body, [LOCAL, LOCAL, LOCAL, GLOBAL], hidden_size=32, intermediate_size=64,
                               num_attention_heads=4, num_key_value_heads=2)),
    # 31B's form: one head of keys in global layers, whose values are the keys; other query heads than the model
    "gemma4-assistant-mqa": (
        lambda: gemma4(4, hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1),
        lambda body: assistant(body, [LOCAL, GLOBAL], hidden_size=40, intermediate_size=48, num_attention_heads=2,
                               num_key_value_heads=2, attention_k_eq_v=True, num_global_key_value_heads=1)),
}


def predict(body, head, prompt):
    """Adds what the head gives to a prompt's results; False if two tokens are near."""
    ids = torch.from_numpy(prompt["ids"]).long()
    with torch.no_grad():
        out = body.model(input_ids=ids[None], return_shared_kv_states=True)
        kvs = {kind: tuple(t[:, :, -(WINDOW - 1 if kind == LOCAL else len(ids)):] for t in kv)
               for kind, kv in out.shared_kv_states.items()}
        token, hidden = torch.tensor([[int(prompt["greedy"][0])]]), out.last_hidden_state[:, -1:]
        guesses, prompt["predict"] = [], None
        for _ in range(GUESSES):
            row = torch.cat([body.get_input_embeddings()(token), hidden], -1)
            at = head(inputs_embeds=row, position_ids=torch.tensor([[len(ids)]]), shared_kv_states=kvs)
            logits, hidden = at.logits[0, -1], at.last_hidden_state
            top = torch.topk(logits, 2)
            if float(top.values[0] - top.values[1]) < MARGIN:
                return False
            prompt["predict"] = logits.numpy() if prompt["predict"] is None else prompt["predict"]
            guesses.append(int(top.indices[0]))
            token = top.indices[:1][None]
    prompt["guesses"] = np.array(guesses, np.int32)
    return True


def write(model, folder, name, keeps_folder):
    """The GGUF file and the folder."""
    path = f"{folder}/{name}.hf"
    shutil.rmtree(path, ignore_errors=True)
    model.to(torch.bfloat16).save_pretrained(path)
    Path(path, "generation_config.json").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory() as tmp:
        shutil.copytree(path, tmp, dirs_exist_ok=True)
        families.convert(tmp, f"{folder}/{name}.gguf", gguf.LlamaFileType.MOSTLY_BF16)
    if not keeps_folder:
        shutil.rmtree(path)


def main():
    folder, wanted = sys.argv[2], sys.argv[3:]
    for name, (make, make_head) in MODELS.items():
        if wanted and name not in wanted:
            continue
        seed = zlib.crc32(name.encode())
        body = make().float().eval()
        head = make_head(body).float().eval()
        for part, number in ((body, seed), (head, seed + 1)):
            spread_out(part, torch.Generator().manual_seed(number))
            round_weights(part, False)
        prompts = choose_prompts(body, np.random.default_rng(seed), lambda p, b=body, h=head: predict(b, h, p))
        print(f"{name}: {sum(p.numel() for part in (body, head) for p in part.parameters())} weights")
        write_expected(f"{folder}/{name}.expect.gguf", prompts)
        write(body, folder, name, name == "gemma4-assistant")
        write(head, folder, f"{name}.draft", name == "gemma4-assistant")


if __name__ == "__main__":
    main()
