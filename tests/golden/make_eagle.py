#!/usr/bin/env python3
"""Makes the golden models with a prediction head of EAGLE-3: a tiny model of random weights and a head in a file of its own,
as llama.cpp's converter makes it of the folder that a publisher would have, with the results in float32.

    v/bin/python tests/golden/make_eagle.py PEER tests/golden/models [NAME ...]    (v and PEER: make_families.py)

transformers has no such head, so it is written here from the paper [Li 2025, "EAGLE-3"]: pairs of a token and the row that
fc makes, for the token before it, of the inputs of three layers; a layer whose attention reads both, normed; a norm and
logits. NAME.gguf is the model, NAME.draft.gguf the head. NAME.expect.gguf is as make_heads.py says; `predict` has the
head's tokens only.
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
from safetensors.torch import save_file
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

from make_families import SMALL, choose_prompts, round_weights
from make_golden import COMMON, MARGIN, VOCAB, rope, spread_out, write_expected

GUESSES = 4
EPS = 1e-5
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)

# The model; of the head: sizes, layers whose inputs it reads, own tokens (0: the model's embedding and logits), its
# residual, scaling of RoPE.
MODELS = {
    "llama-eagle3": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(
        **SMALL, num_hidden_layers=4, head_dim=16, rope_parameters=rope(), tie_word_embeddings=True)),
        dict(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=20, intermediate_size=96),
        [1, 2, 4], 150, False, LLAMA3),
    "qwen3-eagle3": (lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(
        **SMALL, num_hidden_layers=3, head_dim=20, rope_parameters=rope(theta=1000000.0))),
        dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=1, head_dim=16, intermediate_size=80),
        [2, 0, 1], 0, True, None),
}


class Norm(torch.nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(n))

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS) * self.weight


def linear(n_in, n_out):
    return torch.nn.Linear(n_in, n_out, bias=False)


class Eagle(torch.nn.Module):
    """The modules have the names of the tensors in folders."""

    def __init__(self, body, sizes, layers, n_own, norms_residual, scaling):
        super().__init__()
        self.config = hf.LlamaConfig(**sizes, **COMMON, rope_parameters={"rope_theta": 10000.0,
                                                                       **(scaling or {"rope_type": "default"})})
        c, d, n_target = self.config, sizes["hidden_size"], body.config.hidden_size
        self.layers, self.n_own, self.norms_residual, self.scaling = layers, n_own, norms_residual, scaling
        self.fc = linear(3 * n_target, d)
        self.midlayer = torch.nn.ModuleDict({
            "input_layernorm": Norm(d), "hidden_norm": Norm(d), "post_attention_layernorm": Norm(d),
            "self_attn": torch.nn.ModuleDict({
                "q_proj": linear(2 * d, c.num_attention_heads * c.head_dim),
                "k_proj": linear(2 * d, c.num_key_value_heads * c.head_dim),
                "v_proj": linear(2 * d, c.num_key_value_heads * c.head_dim),
                "o_proj": linear(c.num_attention_heads * c.head_dim, d)}),
            "mlp": torch.nn.ModuleDict({"gate_proj": linear(d, c.intermediate_size), "up_proj": linear(d, c.intermediate_size),
                                        "down_proj": linear(c.intermediate_size, d)})})
        self.norm = Norm(d)
        self.rotary = LlamaRotaryEmbedding(c)
        if n_own:
            self.embed_tokens, self.lm_head = torch.nn.Embedding(VOCAB, d), linear(d, n_own)
        self.ids = torch.arange(VOCAB)
        if n_own:  # every token once, in ascending order, as in published heads
            gen = torch.Generator().manual_seed(n_own)
            self.ids = torch.randperm(VOCAB, generator=gen)[:n_own].sort().values

    def share(self, body):
        if not self.n_own:
            self.embedding, self.logits = body.get_input_embeddings(), body.lm_head
        else:
            self.embedding, self.logits = self.embed_tokens, self.lm_head

    def forward(self, ids, g):
        """Logits and outputs of rows [n]: a token, and the row before it."""
        c, layer, n = self.config, self.midlayer, len(ids)
        attn = layer["self_attn"]
        normed = layer["hidden_norm"](g)
        both = torch.cat([layer["input_layernorm"](self.embedding(ids)), normed], -1)
        q = attn["q_proj"](both).view(1, n, -1, c.head_dim).transpose(1, 2)
        k = attn["k_proj"](both).view(1, n, -1, c.head_dim).transpose(1, 2)
        v = attn["v_proj"](both).view(1, n, -1, c.head_dim).transpose(1, 2)
        q, k = apply_rotary_pos_emb(q, k, *self.rotary(v, torch.arange(n)[None]))
        groups = c.num_attention_heads // c.num_key_value_heads
        k, v = k.repeat_interleave(groups, 1), v.repeat_interleave(groups, 1)
        scores = q @ k.transpose(2, 3) / c.head_dim**0.5
        scores = scores.masked_fill(torch.ones(n, n).tril() == 0, float("-inf"))
        att = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, -1)
        x = (normed if self.norms_residual else g) + attn["o_proj"](att)
        mlp, y = layer["mlp"], layer["post_attention_layernorm"](x)
        x = x + mlp["down_proj"](torch.nn.functional.silu(mlp["gate_proj"](y)) * mlp["up_proj"](y))
        return self.logits(self.norm(x)), x


def features(body, head, ids):
    """fc of the inputs of three layers; after the last layer is the input of one more."""
    inputs, layers = {}, body.model.layers
    hooks = [m.register_forward_pre_hook(lambda m, args, i=i: inputs.update({i: args[0][0]})) for i, m in enumerate(layers)]
    hooks.append(body.model.norm.register_forward_pre_hook(lambda m, args: inputs.update({len(layers): args[0][0]})))
    body(input_ids=ids[None])
    for hook in hooks:
        hook.remove()
    return head.fc(torch.cat([inputs[i] for i in head.layers], -1))


def predict(body, head, prompt):
    """Adds what the head gives to a prompt's results; False if two tokens are near."""
    ids = torch.from_numpy(prompt["ids"]).long()
    with torch.no_grad():
        g = features(body, head, ids)
        if len(ids) == 1:  # nothing is before the only token
            g = torch.zeros_like(g)
        else:
            ids, g = ids[1:], g[:-1]
        guesses, prompt["predict"] = [], None
        for _ in range(GUESSES):
            logits, out = head(ids, g)
            top = torch.topk(logits[-1], 2)
            if float(top.values[0] - top.values[1]) < MARGIN:
                return False
            prompt["predict"] = logits[-1].numpy() if prompt["predict"] is None else prompt["predict"]
            guess = head.ids[top.indices[:1]]
            guesses.append(int(guess))
            if len(prompt["ids"]) == 1 and len(guesses) == 1:  # later rows do not see it
                ids, g = guess, out[-1:]
            else:
                ids, g = torch.cat([ids, guess]), torch.cat([g, out[-1:]])
    prompt["guesses"] = np.array(guesses, np.int32)
    return True


def write_head(folder, head):
    """The folder as its publishers have it; d2t has what is to be added to a row's number."""
    c = head.config
    tensors = {n: p.detach().bfloat16().contiguous() for n, p in head.named_parameters() if not n.startswith(("embedding.", "logits."))}
    if head.n_own:
        tensors["d2t"] = head.ids - torch.arange(len(head.ids))
        tensors["t2d"] = torch.zeros(VOCAB, dtype=torch.bool).index_fill_(0, head.ids, True)
    save_file(tensors, Path(folder, "model.safetensors"), metadata={"format": "pt"})
    config = dict(architectures=["LlamaForCausalLMEagle3"], model_type="llama", hidden_act="silu", torch_dtype="bfloat16",
                  hidden_size=c.hidden_size, intermediate_size=c.intermediate_size, num_hidden_layers=1,
                  num_attention_heads=c.num_attention_heads, num_key_value_heads=c.num_key_value_heads,
                  head_dim=c.head_dim, rms_norm_eps=EPS, vocab_size=VOCAB, draft_vocab_size=len(head.ids),
                  max_position_embeddings=COMMON["max_position_embeddings"], rope_theta=10000.0,
                  eagle_aux_hidden_state_layer_ids=head.layers, norm_before_residual=head.norms_residual)
    if head.scaling is not None:
        config["rope_scaling"] = head.scaling
    Path(folder, "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def convert_head(folder, target, out):
    hparams = conversion.ModelBase.load_hparams(Path(folder), False)
    arch = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
    model = conversion.get_model_class(arch)(Path(folder), gguf.LlamaFileType.MOSTLY_BF16, Path(out), eager=True,
                                             target_model_dir=Path(target))
    families.with_our_vocabulary(model)
    with torch.inference_mode():
        model.write()


def main():
    folder, wanted = sys.argv[2], sys.argv[3:]
    for name, (make, *of_head) in MODELS.items():
        if wanted and name not in wanted:
            continue
        seed = zlib.crc32(name.encode())
        body = make().float().eval()
        head = Eagle(body, *of_head).float().eval()
        for part, number in ((body, seed), (head, seed + 1)):
            spread_out(part, torch.Generator().manual_seed(number))
            round_weights(part, False)
        head.share(body)
        prompts = choose_prompts(body, np.random.default_rng(seed), lambda p, b=body, h=head: predict(b, h, p))
        print(f"{name}: {sum(p.numel() for part in (body, head) for p in part.parameters())} weights")
        write_expected(f"{folder}/{name}.expect.gguf", prompts)
        with tempfile.TemporaryDirectory() as model, tempfile.TemporaryDirectory() as draft:
            body.to(torch.bfloat16).save_pretrained(model)
            families.convert(model, f"{folder}/{name}.gguf", gguf.LlamaFileType.MOSTLY_BF16)
            write_head(draft, head)
            convert_head(draft, model, f"{folder}/{name}.draft.gguf")


if __name__ == "__main__":
    main()
