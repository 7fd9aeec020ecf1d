#!/usr/bin/env python3
"""Makes the golden models with a prediction head: a tiny model of random weights and a head of one more layer, as llama.cpp's
converter makes a GGUF file of the folder that a publisher would have, with the results of transformers in float32.

    v/bin/python tests/golden/make_heads.py PEER tests/golden/models [NAME ...]    (v and PEER: make_families.py)

transformers leaves heads out. A head is a matrix over the normed embedding of a token and the normed output for the token
before it (zeros at first), and then a layer, a norm and logits [DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", 2.2]: here a
model of transformers with one layer, which gets the products of that matrix instead of embeddings. NAME.expect.gguf has the
prompts of make_golden.py and, of each, the head's logits for the last token (predict) and the tokens that the head guesses
after it (guesses), each from its own output for the guess before.
"""
import json
import sys
import tempfile
import zlib
from pathlib import Path

import make_families as families

# ruff: noqa: E402
import conversion
import numpy as np
import torch
import transformers as hf
from conversion.base import gguf
from safetensors.torch import load_file, save_file

from make_families import LATENT, LINEAR, LINEAR_EXPERTS, SMALL, choose_prompts, round_weights
from make_golden import MARGIN, rope, spread_out, write_expected

GUESSES = 4
GLM = dict(**SMALL, head_dim=16, use_qk_norm=True, attention_bias=True, n_routed_experts=8, n_group=1, topk_group=1,
           num_experts_per_tok=3, moe_intermediate_size=36, n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=1.5,
           rope_parameters={**rope(), "partial_rotary_factor": 0.5})
LITE = dict(**{k: v for k, v in LATENT.items() if k != "first_k_dense_replace"}, q_lora_rank=28, n_routed_experts=8, n_group=1,
            topk_group=1, num_experts_per_tok=3, n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=1.5,
            rope_parameters=rope(), scoring_func="sigmoid")  # for the converter
COHERE = dict(**{**SMALL, "hidden_size": 40, "intermediate_size": 24}, head_dim=12, logit_scale=0.5, sliding_window_pattern=2,
              num_experts=4, num_experts_per_tok=2, num_shared_experts=1, expert_selection_fn="sigmoid",
              prefix_dense_intermediate_size=56, tie_word_embeddings=True, rope_theta=50000.0)
MIMO = dict(**{**SMALL, "hidden_size": 40, "intermediate_size": 56, "num_key_value_heads": 1}, head_dim=24, v_head_dim=16,
            sliding_window=13, n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=24, rope_parameters={
                "full_attention": {**rope(theta=500000.0), "partial_rotary_factor": 0.334},
                "sliding_attention": {**rope(theta=5000.0), "partial_rotary_factor": 0.334}})
MTP = {"eh_proj": "mtp.fc", "enorm": "mtp.pre_fc_norm_embedding", "hnorm": "mtp.pre_fc_norm_hidden", "norm": "mtp.norm",
       "layer": "mtp.layers.0"}


def nextn(layer):
    return {**{n: f"model.layers.{layer}.{n}" for n in ("eh_proj", "enorm", "hnorm")},
            "norm": f"model.layers.{layer}.shared_head.norm", "layer": f"model.layers.{layer}"}


def mimo_mtp():
    at = "model.mtp.layers.0"
    return {**{n: f"{at}.{n}" for n in ("eh_proj", "enorm", "hnorm")}, "norm": f"{at}.final_layernorm", "layer": at}


# Heads that read, and pass on, rows before the last norm.
STREAM = ("mimo2-head",)

# Class, configuration, layers, what the head's has instead, names in the folder, keys that tell of it, own matrices.
MODELS = {
    "qwen35-head": (hf.Qwen3_5ForCausalLM, hf.Qwen3_5TextConfig, dict(**LINEAR, tie_word_embeddings=True), 5,
                    dict(layer_types=["full_attention"]), MTP, {"mtp_num_hidden_layers": 1}, False),
    "qwen35moe-head": (hf.Qwen3_5MoeForCausalLM, hf.Qwen3_5MoeTextConfig, dict(**LINEAR, **LINEAR_EXPERTS), 5,
                       dict(layer_types=["full_attention"]), MTP, {"mtp_num_hidden_layers": 1}, False),
    "qwen3next-head": (hf.Qwen3NextForCausalLM, hf.Qwen3NextConfig,
                       dict(**{**LINEAR, "layer_types": ["linear_attention", "full_attention"]}, **LINEAR_EXPERTS), 2,
                       dict(layer_types=["full_attention"]), MTP, {}, False),
    "glm4moe-head": (hf.Glm4MoeForCausalLM, hf.Glm4MoeConfig, dict(**GLM, first_k_dense_replace=1), 3,
                     dict(first_k_dense_replace=0), nextn(3), {"num_nextn_predict_layers": 1}, True),
    "deepseek2-head": (hf.Glm4MoeLiteForCausalLM, hf.Glm4MoeLiteConfig, dict(**LITE, mlp_layer_types=["sparse"] * 2), 2,
                       dict(mlp_layer_types=["sparse"]), nextn(2), {"num_nextn_predict_layers": 1}, False),
    # the head sees everything with RoPE, as only layers with a window do in transformers
    "cohere2moe-head": (hf.Cohere2MoeForCausalLM, hf.Cohere2MoeConfig,
                        dict(**COHERE, first_k_dense_replace=1, sliding_window=13), 2,
                        dict(first_k_dense_replace=0, sliding_window=512, layer_types=["sliding_attention"]), nextn(2),
                        {"num_nextn_predict_layers": 1}, False),
    "mimo2-head": (hf.MiMoV2FlashForCausalLM, hf.MiMoV2FlashConfig,
                   dict(**MIMO, layer_types=["full_attention", "sliding_attention"], mlp_layer_types=["dense", "sparse"]), 2,
                   dict(layer_types=["sliding_attention"], mlp_layer_types=["dense"]), mimo_mtp(), {}, False),
}


def outputs(model, takes_stream, **inputs):
    """Rows after the last norm, and what a head reads of them: those, or the rows before that norm."""
    seen = []
    hook = model.norm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    out = model(**inputs).last_hidden_state
    hook.remove()
    return out, seen[0] if takes_stream else out


class Head(torch.nn.Module):
    """A one-layer model behind the projection; has_own: with its own embedding and logits."""

    def __init__(self, body, layer, has_own, takes_stream):
        super().__init__()
        d = body.config.hidden_size
        self.eh_proj = torch.nn.Linear(2 * d, d, bias=False)
        eps = body.config.rms_norm_eps or body.config.layer_norm_eps
        self.enorm, self.hnorm = (type(body.model.norm)(d, eps=eps) for _ in range(2))
        self.layer, self.has_own, self.takes_stream = layer, has_own, takes_stream
        self.config = body.config  # for spread_out

    def share(self, body):
        if not self.has_own:
            self.layer.model.embed_tokens.weight = body.get_input_embeddings().weight
            self.layer.lm_head.weight = body.lm_head.weight

    def forward(self, ids, hidden):
        """Logits and outputs of rows [n]; hidden: the outputs before them."""
        embedded = self.layer.model.embed_tokens(ids)[None]
        x = self.eh_proj(torch.cat([self.enorm(embedded), self.hnorm(hidden[None])], -1))
        out, passed = outputs(self.layer.model, self.takes_stream, inputs_embeds=x)
        return getattr(self.layer, "logit_scale", 1) * self.layer.lm_head(out)[0], passed[0]


def predict(body, head, prompt):
    """Adds what the head gives to a prompt's results; False if two tokens are near."""
    ids = torch.from_numpy(prompt["ids"]).long()
    with torch.no_grad():
        hidden = outputs(body.model, head.takes_stream, input_ids=ids[None])[1][0]
        hidden = torch.cat([torch.zeros_like(hidden[:1]), hidden[:-1]])
        guesses, prompt["predict"] = [], None
        for _ in range(GUESSES):
            logits, out = head(ids, hidden)
            top = torch.topk(logits[-1], 2)
            if float(top.values[0] - top.values[1]) < MARGIN:
                return False
            prompt["predict"] = logits[-1].numpy() if prompt["predict"] is None else prompt["predict"]
            guesses.append(int(top.indices[0]))
            ids, hidden = torch.cat([ids, top.indices[:1]]), torch.cat([hidden, out[-1:]])
    prompt["guesses"] = np.array(guesses, np.int32)
    return True


def head_tensors(head, names):
    """The head's tensors by their names in the folder, as transformers would save the layer."""
    with tempfile.TemporaryDirectory() as tmp:
        head.layer.save_pretrained(tmp)
        saved = load_file(Path(tmp, "model.safetensors"))
    tensors = {names["layer"] + name.removeprefix("model.layers.0"): t for name, t in saved.items() if ".layers.0." in name}
    tensors[names["norm"] + ".weight"] = saved["model.norm.weight"]
    if head.has_own:
        tensors[names["layer"] + ".embed_tokens.weight"] = saved["model.embed_tokens.weight"]
        tensors[names["layer"] + ".shared_head.head.weight"] = saved["lm_head.weight"]
    for part in ("eh_proj", "enorm", "hnorm"):
        tensors[names[part] + ".weight"] = getattr(head, part).weight.detach().bfloat16()
    return tensors


def write_folder(folder, body, head, names, keys):
    body.to(torch.bfloat16).save_pretrained(folder)
    path = Path(folder, "model.safetensors")
    save_file({**load_file(path), **head_tensors(head.to(torch.bfloat16), names)}, path, metadata={"format": "pt"})
    config = Path(folder, "config.json")
    config.write_text(json.dumps({**json.loads(config.read_text()), **keys}, indent=2, sort_keys=True) + "\n")
    Path(folder, "generation_config.json").unlink(missing_ok=True)


def main():
    folder, wanted = sys.argv[2], sys.argv[3:]
    for name, (model, config, sizes, n_layers, own, names, keys, has_own) in MODELS.items():
        if wanted and name not in wanted:
            continue
        seed = zlib.crc32(name.encode())
        body = model(config(**{**sizes, "num_hidden_layers": n_layers})).float().eval()
        layer = model(config(**{**sizes, **own, "num_hidden_layers": 1}))
        head = Head(body, layer, has_own, name in STREAM).float().eval()
        for part, number in ((body, seed), (head, seed + 1)):
            spread_out(part, torch.Generator().manual_seed(number))
            round_weights(part, False)
        head.share(body)
        prompts = choose_prompts(body, np.random.default_rng(seed), lambda p, b=body, h=head: predict(b, h, p))
        print(f"{name}: {sum(p.numel() for part in (body, head) for p in part.parameters())} weights")
        write_expected(f"{folder}/{name}.expect.gguf", prompts)
        write_folder(f"{folder}/{name}.hf", body, head, names, keys)
        if name == "mimo2-head":
            families.as_published_mimo(f"{folder}/{name}.hf")
            families.set_mimo_heads(1)  # published models have three
        families.convert(f"{folder}/{name}.hf", f"{folder}/{name}.gguf", gguf.LlamaFileType.MOSTLY_BF16, no_mtp=False)


if __name__ == "__main__":
    main()
