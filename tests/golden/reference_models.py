"""Families that transformers has no class for, written from their publishers' descriptions, in float32 like the others.
Modules have the names of the tensors in folders."""
import torch
import transformers as hf
from torch.nn import functional as F
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutput, SequenceClassifierOutput


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


class NeoBERTConfig(hf.PreTrainedConfig):
    model_type = "neobert"


def rotate_pairs(x, theta=10000.0):
    """RoPE of x [heads][positions][d], on pairs (2i, 2i+1)."""
    d = x.shape[-1]
    out = rotate(torch.cat([x[..., ::2], x[..., 1::2]], -1), theta)
    return torch.stack([out[..., :d // 2], out[..., d // 2:]], -1).flatten(-2)


def attend_all(q, k, v, bias=0.0):
    """Attention of q [H][T][d] over all of k and v [H][T][d], with a bias of the scores."""
    return (q @ k.transpose(1, 2) * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v


class NeoBERTLayer(torch.nn.Module):
    """Q, K and V of a head are next to each other."""

    def __init__(self, c):
        super().__init__()
        d, f = c.hidden_size, 8 * -(-(2 * c.intermediate_size // 3) // 8)
        self.n_heads = c.num_attention_heads
        self.qkv, self.wo = linear(d, 3 * d), linear(d, d)
        self.ffn = torch.nn.ModuleDict({"w12": linear(d, 2 * f), "w3": linear(f, d)})
        self.attention_norm, self.ffn_norm = Norm(d, c.norm_eps), Norm(d, c.norm_eps)

    def forward(self, x):
        q, k, v = self.qkv(self.attention_norm(x)).view(len(x), self.n_heads, -1).transpose(0, 1).chunk(3, -1)
        out = attend_all(rotate_pairs(q), rotate_pairs(k), v)
        x = x + self.wo(out.transpose(0, 1).reshape(len(x), -1))
        gate, up = self.ffn["w12"](self.ffn_norm(x)).chunk(2, -1)
        return x + self.ffn["w3"](F.silu(gate) * up)


class NeoBERT(hf.PreTrainedModel):
    config_class = NeoBERTConfig

    def __init__(self, c):
        super().__init__(c)
        self.encoder = torch.nn.Embedding(c.vocab_size, c.hidden_size)
        self.transformer_encoder = torch.nn.ModuleList([NeoBERTLayer(c) for _ in range(c.num_hidden_layers)])
        self.layer_norm = Norm(c.hidden_size, c.norm_eps)
        self.post_init()

    def forward(self, ids):
        x = self.encoder(ids[0])
        for layer in self.transformer_encoder:
            x = layer(x)
        return BaseModelOutput(last_hidden_state=self.layer_norm(x)[None])


class NeoBERTForSequenceClassification(hf.PreTrainedModel):
    config_class = NeoBERTConfig

    def __init__(self, c):
        super().__init__(c)
        self.model = NeoBERT(c)
        self.dense = torch.nn.Linear(c.hidden_size, c.hidden_size)
        self.classifier = torch.nn.Linear(c.hidden_size, c.num_labels)
        self.post_init()

    def forward(self, ids):
        first = self.model(ids).last_hidden_state[:, 0]
        return SequenceClassifierOutput(logits=self.classifier(torch.tanh(self.dense(first))))


def biased(n_in, n_out):
    return torch.nn.Linear(n_in, n_out)


class NomicBertConfig(hf.PreTrainedConfig):
    model_type = "nomic_bert_moe"  # a name that transformers does not take for its own class
    attribute_map = {"hidden_size": "n_embd"}


class NomicBertLayer(torch.nn.Module):
    """Every second layer has experts, whose weights are shares of all and are not divided; they share one bias."""

    def __init__(self, c, index):
        super().__init__()
        d, f, n = c.n_embd, c.n_inner, c.num_experts
        self.config, self.has_experts = c, index % c.moe_every_n_layers == 1
        self.attn = torch.nn.ModuleDict({"Wqkv": biased(d, 3 * d), "out_proj": biased(d, d)})
        self.norm1 = torch.nn.LayerNorm(d, eps=c.layer_norm_epsilon)
        self.norm2 = torch.nn.LayerNorm(d, eps=c.layer_norm_epsilon)
        if self.has_experts:
            mlp = torch.nn.ParameterDict({"w1": torch.zeros(n * f, d), "w2": torch.zeros(n * f, d)})
            experts = torch.nn.Module()
            experts.mlp, experts.bias = mlp, torch.nn.Parameter(torch.zeros(d))
            self.mlp = torch.nn.ModuleDict({"router": torch.nn.ModuleDict({"layer": linear(d, n)}), "experts": experts})
        else:
            self.mlp = torch.nn.ModuleDict({"fc1": biased(d, f), "fc2": biased(f, d)})

    def experts(self, x):
        c, e = self.config, self.mlp["experts"]
        weights = self.mlp["router"]["layer"](x).softmax(-1)
        picked, ids = weights.topk(c.moe_top_k, -1)
        up, down = (e.mlp[name].view(c.num_experts, c.n_inner, c.n_embd) for name in ("w1", "w2"))
        h = F.gelu(torch.einsum("td,efd->tef", x, up))
        return torch.einsum("te,tef,efd->td", torch.zeros_like(weights).scatter(-1, ids, picked), h, down) + e.bias

    def forward(self, x):
        qkv = self.attn["Wqkv"](x).view(len(x), 3, self.config.n_head, -1).permute(1, 2, 0, 3)
        theta = self.config.rotary_emb_base
        out = attend_all(rotate(qkv[0], theta), rotate(qkv[1], theta), qkv[2])
        x = self.norm1(x + self.attn["out_proj"](out.transpose(0, 1).reshape(len(x), -1)))
        block = self.experts(x) if self.has_experts else self.mlp["fc2"](F.gelu(self.mlp["fc1"](x)))
        return self.norm2(x + block)


class NomicBertModel(hf.PreTrainedModel):
    config_class = NomicBertConfig

    def __init__(self, c):
        super().__init__(c)
        self.embeddings = torch.nn.ModuleDict({
            "word_embeddings": torch.nn.Embedding(c.vocab_size, c.n_embd),
            "token_type_embeddings": torch.nn.Embedding(c.type_vocab_size, c.n_embd)})
        self.emb_ln = torch.nn.LayerNorm(c.n_embd, eps=c.layer_norm_epsilon)
        self.encoder = torch.nn.ModuleDict({
            "layers": torch.nn.ModuleList([NomicBertLayer(c, i) for i in range(c.n_layer)])})
        self.post_init()

    def forward(self, ids):
        x = self.embeddings["word_embeddings"](ids[0]) + self.embeddings["token_type_embeddings"].weight[0]
        x = self.emb_ln(x)
        for layer in self.encoder["layers"]:
            x = layer(x)
        return BaseModelOutput(last_hidden_state=x[None])


class JinaBertConfig(hf.PreTrainedConfig):
    model_type = "bert"


def slopes(n):
    """ALiBi's factors of n heads: those of the next lower power of two, then every second one of twice that power."""
    power = 2 ** (n.bit_length() - 1)
    more = [2 ** (-4 * (2 * i + 1) / power) for i in range(n - power)]
    return torch.tensor([2 ** (-8 * (i + 1) / power) for i in range(power)] + more)


class JinaBertLayer(torch.nn.Module):
    """The layers of embeddings; those of code have norms of queries and keys, and of the sum with the input again."""

    def __init__(self, c):
        super().__init__()
        d, f = c.hidden_size, c.intermediate_size
        self.config = c

        def norm():
            return torch.nn.LayerNorm(d, eps=c.layer_norm_eps)

        own = {name: biased(d, d) for name in ("query", "key", "value")}
        if c.of_code:
            own |= {"layer_norm_q": norm(), "layer_norm_k": norm()}
            self.layer_norm_1, self.layer_norm_2 = norm(), norm()
            self.mlp = torch.nn.ModuleDict({"up_gated_layer": linear(d, 2 * f), "down_layer": biased(f, d)})
        else:
            self.mlp = torch.nn.ModuleDict({"gated_layers": linear(d, 2 * f), "wo": biased(f, d), "layernorm": norm()})
        self.attention = torch.nn.ModuleDict({
            "self": torch.nn.ModuleDict(own), "output": torch.nn.ModuleDict({"dense": biased(d, d), "LayerNorm": norm()})})

    def heads(self, x):
        return x.view(len(x), self.config.num_attention_heads, -1).transpose(0, 1)

    def attend(self, x):
        own, out = self.attention["self"], self.attention["output"]
        q, k = own["query"](x), own["key"](x)
        if self.config.of_code:
            q, k = own["layer_norm_q"](q), own["layer_norm_k"](k)
        at = torch.arange(len(x)).float()
        bias = -slopes(self.config.num_attention_heads)[:, None, None] * (at[:, None] - at).abs()
        mixed = attend_all(self.heads(q), self.heads(k), self.heads(own["value"](x)), bias)
        return out["LayerNorm"](x + out["dense"](mixed.transpose(0, 1).reshape(len(x), -1)))

    def forward(self, x):
        if self.config.of_code:
            x = self.layer_norm_1(x + self.attend(x))
            up, gate = self.mlp["up_gated_layer"](x).chunk(2, -1)
            return self.layer_norm_2(x + self.mlp["down_layer"](up * F.gelu(gate)))
        x = self.attend(x)
        gate, up = self.mlp["gated_layers"](x).chunk(2, -1)
        return self.mlp["layernorm"](x + self.mlp["wo"](F.gelu(gate) * up))


class JinaBertModel(hf.PreTrainedModel):
    config_class = JinaBertConfig

    def __init__(self, c):
        super().__init__(c)
        self.embeddings = torch.nn.ModuleDict({
            "word_embeddings": torch.nn.Embedding(c.vocab_size, c.hidden_size),
            "token_type_embeddings": torch.nn.Embedding(c.type_vocab_size, c.hidden_size),
            "LayerNorm": torch.nn.LayerNorm(c.hidden_size, eps=c.layer_norm_eps)})
        self.encoder = torch.nn.ModuleDict({
            "layer": torch.nn.ModuleList([JinaBertLayer(c) for _ in range(c.num_hidden_layers)])})
        self.post_init()

    def forward(self, ids):
        parts = self.embeddings
        x = parts["LayerNorm"](parts["word_embeddings"](ids[0]) + parts["token_type_embeddings"].weight[0])
        for layer in self.encoder["layer"]:
            x = layer(x)
        return BaseModelOutput(last_hidden_state=x[None])
