"""Families that transformers has no class for, written from their publishers' descriptions, in float32 like the others.
Modules have the names of the tensors in folders."""
import torch
import transformers as hf
from torch.nn import functional as F
from transformers.modeling_outputs import CausalLMOutput


class Norm(torch.nn.Module):
    def __init__(self, n, eps):
        super().__init__()
        self.weight, self.eps = torch.nn.Parameter(torch.ones(n)), eps

    def forward(self, x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.eps) * self.weight


def linear(n_in, n_out):
    return torch.nn.Linear(n_in, n_out, bias=False)


def rotate(x, theta):
    """RoPE of x [heads][positions][d], on half-split pairs."""
    d = x.shape[-1]
    freqs = 1.0 / theta ** (torch.arange(0, d, 2).float() / d)
    angles = torch.arange(x.shape[1]).float()[:, None] * freqs
    cos, sin = angles.cos(), angles.sin()
    a, b = x[..., :d // 2], x[..., d // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def attend(q, k, v, window):
    """Causal attention of q [H][T][d] over k and v [K][T][d]; window 0: all."""
    n, per_kv = q.shape[1], q.shape[0] // k.shape[0]
    k, v = k.repeat_interleave(per_kv, 0), v.repeat_interleave(per_kv, 0)
    scores = q @ k.transpose(1, 2) * q.shape[-1] ** -0.5
    distance = torch.arange(n)[:, None] - torch.arange(n)
    seen = (distance >= 0) & ((distance < window) if window else True)
    return scores.masked_fill(~seen, float("-inf")).softmax(-1) @ v


class SmallThinkerConfig(hf.PreTrainedConfig):
    model_type = "smallthinker"


class SmallThinkerLayer(torch.nn.Module):
    """PowerInfer's SmallThinker: the router reads what the layer reads."""

    def __init__(self, c, index):
        super().__init__()
        d, width = c.hidden_size, c.head_dim
        self.config, self.has_rope = c, c.rope_layout[index]
        self.window = c.sliding_window_size if c.sliding_window_layout[index] else 0
        self.input_layernorm, self.post_attention_layernorm = Norm(d, c.rms_norm_eps), Norm(d, c.rms_norm_eps)
        self.self_attn = torch.nn.ModuleDict({
            "q_proj": linear(d, c.num_attention_heads * width), "k_proj": linear(d, c.num_key_value_heads * width),
            "v_proj": linear(d, c.num_key_value_heads * width), "o_proj": linear(c.num_attention_heads * width, d)})
        self.block_sparse_moe = torch.nn.ModuleDict({
            "primary_router": linear(d, c.moe_num_primary_experts),
            "experts": torch.nn.ModuleList([torch.nn.ModuleDict({
                "gate": linear(d, c.moe_ffn_hidden_size), "up": linear(d, c.moe_ffn_hidden_size),
                "down": linear(c.moe_ffn_hidden_size, d)}) for _ in range(c.moe_num_primary_experts)])})

    def heads(self, name, x):
        return self.self_attn[name](x).view(len(x), -1, self.config.head_dim).transpose(0, 1)

    def mix(self, x):
        q, k = self.heads("q_proj", x), self.heads("k_proj", x)
        if self.has_rope:
            q, k = rotate(q, self.config.rope_theta), rotate(k, self.config.rope_theta)
        out = attend(q, k, self.heads("v_proj", x), self.window)
        return self.self_attn["o_proj"](out.transpose(0, 1).reshape(len(x), -1))

    def experts(self, logits, x):
        c = self.config
        picked, ids = logits.topk(c.moe_num_active_primary_experts, -1)
        if c.moe_primary_router_apply_softmax:
            weights = picked.softmax(-1)
        else:
            weights = picked.sigmoid()
            weights = weights / weights.sum(-1, keepdim=True)
        gate, up, down = (torch.stack([e[name].weight for e in self.block_sparse_moe["experts"]])
                          for name in ("gate", "up", "down"))
        h = F.relu(torch.einsum("td,efd->tef", x, gate)) * torch.einsum("td,efd->tef", x, up)
        return torch.einsum("te,tef,edf->td", torch.zeros_like(logits).scatter(-1, ids, weights), h, down)

    def forward(self, x):
        logits = self.block_sparse_moe["primary_router"](x)
        x = x + self.mix(self.input_layernorm(x))
        return x + self.experts(logits, self.post_attention_layernorm(x))


class SmallThinkerForCausalLM(hf.PreTrainedModel):
    config_class = SmallThinkerConfig
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, c):
        super().__init__(c)
        self.model = torch.nn.ModuleDict({
            "embed_tokens": torch.nn.Embedding(c.vocab_size, c.hidden_size),
            "layers": torch.nn.ModuleList([SmallThinkerLayer(c, i) for i in range(c.num_hidden_layers)]),
            "norm": Norm(c.hidden_size, c.rms_norm_eps)})
        self.lm_head = linear(c.hidden_size, c.vocab_size)
        self.post_init()

    def get_input_embeddings(self):
        return self.model["embed_tokens"]

    def get_output_embeddings(self):
        return self.lm_head

    def forward(self, ids):
        x = self.model["embed_tokens"](ids[0])
        for layer in self.model["layers"]:
            x = layer(x)
        return CausalLMOutput(logits=self.lm_head(self.model["norm"](x))[None])
