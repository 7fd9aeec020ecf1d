#!/usr/bin/env python3
"""Makes the golden models and their expected results: tiny random-weight models of every family, run by Hugging Face
transformers in float32, an implementation that shares nothing with ours.

    python3 -m venv v && v/bin/pip install -r tests/golden/requirements.txt
    v/bin/python tests/golden/make_golden.py tests/golden/models

For each model NAME it writes NAME.gguf (weights, as a converter would) and NAME.expect.gguf: for each prompt the ids, the
logits after its last token, the log-probability of each prompt token, and the greedy continuation of 12 tokens.
"""
import sys

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as T
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig, LlamaForCausalLM, Qwen2Config,
                          Qwen2ForCausalLM)

PROMPT_LENGTHS = [1, 7, 33, 70]
CONTINUATION = 12
MARGIN = 0.05  # of logits whose spread is about 1: ISA differences must not decide a token
VOCAB = 288  # 256 byte tokens and some special ones
K_BLOCK = 256


class Own(int):
    """The id of a type that gguf 0.19 cannot make: half d, then codes of `bits`, the first low. Q2_0 has two layouts."""

    def __new__(cls, value, name, block, bits):
        self = super().__new__(cls, value)
        self.name, self.block, self.bits = name, block, bits
        gguf.GGML_QUANT_SIZES[self] = (block, 2 + block * bits // 8)
        return self

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return self is other

    def quantise(self, w):
        b = w.reshape(-1, self.block).astype(np.float32)
        d = (np.abs(b).mean(-1, keepdims=True) * (1 if self.bits == 1 else 1.3)).astype(np.float16)
        if self.bits == 1:
            codes, values = b >= 0, np.where(b >= 0, 1, -1)
        else:
            values = np.clip(np.rint(b / d.astype(np.float32)), -1, 2)
            codes = values + 1
        codes = codes.astype(np.uint8).reshape(len(b), -1, 8 // self.bits) << np.arange(0, 8, self.bits, dtype=np.uint8)
        raw = np.concatenate([d.view(np.uint8), np.bitwise_or.reduce(codes, -1)], 1)
        return raw.reshape(w.shape[0], -1), (d.astype(np.float32) * values).reshape(w.shape).astype(np.float32)


Q1_0, Q2_0, Q2_0_128 = Own(41, "Q1_0", 128, 1), Own(42, "Q2_0", 64, 2), Own(42, "Q2_0_128", 128, 2)


def permute(w, n_head):
    """Rows of Q and K from half-split to interleaved RoPE pairs, as llama.cpp's converter does for the llama family."""
    return w.reshape(n_head, 2, w.shape[0] // n_head // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def random_k_blocks(rng, n_rows, n_cols, qtype, spread):
    """Random bytes of a K-quant (gguf-py cannot quantise to these) whose scales give weights of about `spread`."""
    block_size, type_size = gguf.GGML_QUANT_SIZES[qtype]
    blocks = rng.integers(0, 256, (n_rows * n_cols // block_size, type_size), dtype=np.uint8)
    scale = np.float16(spread / 400).tobytes()  # a sub-block scale is up to 63, a code up to 15: +-400 in round numbers
    minimum = np.float16(spread / 60).tobytes()
    if qtype in (T.Q4_K, T.Q5_K):
        blocks[:, 0:2] = np.frombuffer(scale, np.uint8)
        blocks[:, 2:4] = np.frombuffer(minimum, np.uint8)
    else:  # Q6_K: scale last, sub-block scales signed 8 bit
        blocks[:, -2:] = np.frombuffer(np.float16(spread / 1000).tobytes(), np.uint8)
    return blocks.reshape(n_rows, -1)


# Offset of the half that scales a block; of the half that scales its minimums, and their ratio.
HALVES = {T.Q2_K: (80, 82, 1.5), T.Q3_K: (108,), T.IQ4_NL: (0,), T.IQ4_XS: (0,), T.IQ1_S: (0,), T.IQ2_XXS: (0,),
          T.IQ2_XS: (0,), T.IQ2_S: (0,), T.IQ3_XXS: (0,), T.IQ3_S: (0,)}


def set_scale(blocks, qtype, value):
    half = np.frombuffer(np.float16(value).tobytes(), np.uint8)
    if qtype == T.IQ1_M:  # one nibble at the top of each of four words, the lowest first
        for i in range(4):
            at = 48 + 2 * i + 1
            blocks[:, at] = blocks[:, at] & 15 | (half[i // 2] >> 4 * (i % 2) & 15) << 4
        return
    at, *minimum = HALVES[qtype]
    blocks[:, at:at + 2] = half
    if minimum:
        set_at, ratio = minimum
        blocks[:, set_at:set_at + 2] = np.frombuffer(np.float16(value * ratio).tobytes(), np.uint8)


def random_blocks(rng, n_rows, n_cols, qtype, spread):
    """Random bytes of any other type; its scale is measured."""
    block_size, type_size = gguf.GGML_QUANT_SIZES[qtype]
    blocks = rng.integers(0, 256, (n_rows * n_cols // block_size, type_size), dtype=np.uint8)
    set_scale(blocks, qtype, 1.0)
    set_scale(blocks, qtype, spread / gguf.quants.dequantize(blocks, qtype).std())
    return blocks.reshape(n_rows, -1)


def nvfp4_blocks(x):
    """NVFP4 of x [N][K], which gguf-py cannot make: 4 scales, then codes i and 8 + i of each 16 in one byte."""
    b = x.reshape(-1, 4, 16).astype(np.float32)
    scales = torch.from_numpy(np.abs(b).max(-1) / 6).clamp(max=448).to(torch.float8_e4m3fn)
    scaled = b / np.maximum(scales.float().numpy(), 2.0**-10)[..., None]
    codes = np.abs(np.abs(scaled)[..., None] - np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])).argmin(-1) | (scaled < 0) << 3
    codes = (codes[..., :8] | codes[..., 8:] << 4).astype(np.uint8).reshape(len(b), 32)
    return np.concatenate([scales.view(torch.uint8).numpy(), codes], 1).reshape(x.shape[0], -1)


def quantise(rng, w, qtype):
    """(raw data for the file, the float32 values it stands for, the factor in a tensor of its own or None)"""
    if isinstance(qtype, Own):
        return *qtype.quantise(w), None
    if qtype == T.NVFP4:  # the factor that converters choose: the largest weight has the largest scale
        factor = np.float32(np.abs(w).max() / (448 * 6))
        raw = nvfp4_blocks(w / factor)
        return raw, gguf.quants.dequantize(raw, qtype).astype(np.float32).reshape(w.shape) * factor, factor
    if qtype in (T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.TQ1_0, T.TQ2_0, T.MXFP4):
        raw = gguf.quants.quantize(w.astype(np.float32), qtype)
    elif qtype in HALVES or qtype == T.IQ1_M:
        raw = random_blocks(rng, w.shape[0], w.shape[1], qtype, float(w.std()))
    else:
        raw = random_k_blocks(rng, w.shape[0], w.shape[1], qtype, float(w.std()))
    return raw, gguf.quants.dequantize(raw, qtype).astype(np.float32).reshape(w.shape), None


def write_tokenizer(out):
    """A byte-level vocabulary with one merge (gguf-py leaves an empty list out): enough to open the file with every tool."""
    alphabet = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    text, extra = {}, 0
    for b in range(256):
        text[b] = chr(b) if b in alphabet else chr(256 + extra)
        extra += b not in alphabet
    n_special = VOCAB - 257
    tokens = [text[b] for b in range(256)] + [f"<|special_{i}|>" for i in range(n_special)] + ["ab"]
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokens)
    out.add_token_types([1] * 256 + [3] * n_special + [1])
    out.add_token_merges(["a b"])
    out.add_bos_token_id(256)
    out.add_eos_token_id(257)
    out.add_add_bos_token(False)


SLOTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}
GEMMA_SLOTS = {
    **SLOTS, "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def slots_of(arch):
    return GEMMA_SLOTS if arch == "gemma3" else SLOTS


def gguf_name(arch, name):
    fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    if name in fixed:
        return fixed[name]
    _, _, layer, rest = name.split(".", 3)
    slot, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{slots_of(arch)[slot]}.{kind}"


def write_gemma_keys(out, c):
    out.add_sliding_window(c.sliding_window)
    if c.final_logit_softcapping is not None:
        out.add_final_logit_softcapping(c.final_logit_softcapping)
    kinds = [kind == "sliding_attention" for kind in c.layer_types]
    if kinds != [i % 6 != 5 for i in range(len(kinds))]:  # converters leave the default out
        out.add_sliding_window_pattern(kinds)
    theta = c.rope_parameters["sliding_attention"]["rope_theta"]
    if theta != 10000.0:
        out.add_float32(f"{out.arch}.rope.freq_base_swa", theta)


def write_model(path, arch, model, types, rng):
    """Writes the GGUF and sets the model's weights to what the file stands for."""
    c = model.config
    head_dim = getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads
    rope = c.rope_parameters["full_attention"] if arch == "gemma3" else c.rope_parameters
    out = gguf.GGUFWriter(path, arch)
    out.add_name("golden " + path.rsplit("/", 1)[-1])
    out.add_block_count(c.num_hidden_layers)
    out.add_context_length(c.max_position_embeddings)
    out.add_embedding_length(c.hidden_size)
    out.add_feed_forward_length(c.intermediate_size)
    out.add_head_count(c.num_attention_heads)
    out.add_head_count_kv(c.num_key_value_heads)
    out.add_key_length(head_dim)
    out.add_value_length(head_dim)
    out.add_rope_dimension_count(head_dim)
    out.add_rope_freq_base(rope["rope_theta"])
    out.add_layer_norm_rms_eps(c.rms_norm_eps)
    if rope["rope_type"] == "linear":
        out.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        out.add_rope_scaling_factor(rope["factor"])
    if arch == "gemma3":
        write_gemma_keys(out, c)
    write_tokenizer(out)
    if rope["rope_type"] == "llama3":  # the factors that turn plain frequencies into the scaled ones
        plain = rope["rope_theta"] ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
        scaled = model.model.rotary_emb.inv_freq.double().numpy()
        out.add_tensor("rope_freqs.weight", (plain / scaled).astype(np.float32))
    state = model.state_dict()
    for name, value in state.items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        w, target = value.numpy().copy(), gguf_name(arch, name)
        if w.ndim == 1:
            w = w.astype(np.float32) + (arch == "gemma3")  # Gemma's norms multiply by 1 + w; files hold the sum
        if arch == "llama" and ".attn_q." in target:
            w = permute(w, c.num_attention_heads)
        if arch == "llama" and ".attn_k." in target:
            w = permute(w, c.num_key_value_heads)
        if w.ndim == 1:
            out.add_tensor(target, w)
            continue
        slot = target.split(".")[-2]
        qtype = types.get(slot, types["default"])
        raw, back, factor = quantise(rng, w, qtype)
        out.add_tensor(target, raw, raw_dtype=qtype)
        if factor is not None:
            out.add_tensor(target.removesuffix("weight") + "scale", np.array([factor], np.float32))
        if arch == "llama" and slot in ("attn_q", "attn_k"):
            heads = c.num_attention_heads if slot == "attn_q" else c.num_key_value_heads
            back = back.reshape(heads, back.shape[0] // heads // 2, 2, -1).swapaxes(1, 2).reshape(back.shape)
        value.copy_(torch.from_numpy(back))
    model.load_state_dict(state)
    model.tie_weights()
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def run_prompt(model, ids):
    """Expected results of a prompt, and the smallest distance between best and second token on the way. None for the
    results as soon as that is below MARGIN."""
    margin, seq, continuation = 1e9, torch.from_numpy(ids)[None], []
    with torch.no_grad():
        logits = model(seq).logits[0]
        lp = torch.log_softmax(logits.double(), -1)
        for _ in range(CONTINUATION):
            last = model(seq).logits[0, -1]
            top = torch.topk(last, 2).values
            margin = min(margin, float(top[0] - top[1]))
            if margin < MARGIN:
                return None, margin
            continuation.append(int(last.argmax()))
            seq = torch.cat([seq, last.argmax().reshape(1, 1)], 1)
    return {
        "ids": ids.astype(np.int32),
        "logits": logits[-1].numpy().astype(np.float32),
        "logprobs": np.array([0.0] + [float(lp[t - 1, ids[t]]) for t in range(1, len(ids))], np.float32),
        "greedy": np.array(continuation, np.int32)}, margin


def run(model, rng):
    """Expected results of all prompts, and the smallest margin; None if one of them will not do."""
    prompts, smallest = [], 1e9
    for n in PROMPT_LENGTHS:
        prompt, margin = run_prompt(model, rng.integers(0, VOCAB, n))
        smallest = min(smallest, margin)
        if prompt is None:
            return None, smallest
        prompts.append(prompt)
    return prompts, smallest


def write_expected(path, prompts):
    out = gguf.GGUFWriter(path, "golden")
    out.add_uint32("golden.n_prompts", len(prompts))
    for i, prompt in enumerate(prompts):
        for key, value in prompt.items():
            out.add_tensor(f"prompt.{i}.{key}", value)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def spread_out(model, gen):
    """Larger weights than the default initialisation: attention that attends, logits that differ."""
    narrow = min(1.0, (64 / model.config.get_text_config().hidden_size) ** 0.5)  # wide models would attend to one position only
    kinds = ("gemma2", "gemma3_text", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text", "step3p7")
    has_plus_one = model.config.model_type in kinds  # norms multiply by 1 + w
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_sharp = any(s in name for s in ("q_proj.weight", "k_proj.weight", "q_b_proj.weight", "conv1d.weight"))
            scale = narrow * 0.35 if is_sharp else narrow * 0.15
            noise = torch.randn(p.shape, generator=gen)
            one = 0 if has_plus_one and "linear_attn.norm" not in name else 1
            p.copy_(one + 0.2 * noise if "norm" in name else scale * noise)
            if name.endswith("A_log"):  # states that last from a few rows to a hundred
                p.copy_(noise - 2)
        for name, b in model.named_buffers():
            if "correction_bias" in name or "expert_bias" in name:  # of the picking; rounded here, as parameters are later
                b.copy_((0.2 * torch.randn(b.shape, generator=gen)).bfloat16())


def rope(kind="default", theta=10000.0, **more):
    return {"rope_type": kind, "rope_theta": theta, **more}


def gemma_rope(local=10000.0, **full):
    return {"sliding_attention": rope(theta=local), "full_attention": rope(**{"theta": 1000000.0, **full})}


COMMON = dict(vocab_size=VOCAB, max_position_embeddings=512, attn_implementation="eager")
F16 = {"default": T.F16}
MODELS = {
    # GQA, tied embeddings
    "llama-gqa-tied": ("llama", F16, lambda: LlamaForCausalLM(LlamaConfig(
        hidden_size=64, intermediate_size=160, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=True, rope_parameters=rope(), **COMMON))),
    # Llama 3's frequency scaling, one KV head, heads x head width != hidden size, untied, f32
    "llama-rope3-mqa": ("llama", {"default": T.F32}, lambda: LlamaForCausalLM(LlamaConfig(
        hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
        head_dim=24, tie_word_embeddings=False, rope_parameters=rope(
            "llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64), **COMMON))),
    # linear scaling, full attention, odd head width, bf16
    "llama-linear-odd": ("llama", {"default": T.BF16}, lambda: LlamaForCausalLM(LlamaConfig(
        hidden_size=60, intermediate_size=100, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=3,
        head_dim=20, tie_word_embeddings=False, rope_parameters=rope("linear", factor=2.0), **COMMON))),
    # biases, half-split pairs
    "qwen2-bias": ("qwen2", F16, lambda: Qwen2ForCausalLM(Qwen2Config(
        hidden_size=64, intermediate_size=144, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=1,
        tie_word_embeddings=False, rope_parameters=rope("default", 1000000.0), **COMMON))),
    # every quantised type in three models
    "llama-quants": ("llama", {"default": T.Q8_0, "attn_q": T.Q4_K, "attn_k": T.Q5_K, "attn_v": T.Q6_K, "attn_output": T.Q4_0,
                               "ffn_gate": T.Q4_1, "ffn_up": T.Q5_0, "ffn_down": T.Q5_1}, lambda: LlamaForCausalLM(
        LlamaConfig(hidden_size=K_BLOCK, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
                    num_key_value_heads=2, tie_word_embeddings=True, rope_parameters=rope(), **COMMON))),
    # five local layers, a global one and a local one again; a window within one page; heads x head width != hidden size
    "gemma3-window": ("gemma3", F16, lambda: Gemma3ForCausalLM(Gemma3TextConfig(
        hidden_size=48, intermediate_size=72, num_hidden_layers=7, num_attention_heads=3, num_key_value_heads=1,
        head_dim=20, query_pre_attn_scalar=20, sliding_window=13, tie_word_embeddings=True,
        rope_parameters=gemma_rope(), **COMMON))),
    # linear scaling of the global layers alone, soft-capped logits, layer kinds and local base from the file, a window
    # over two pages, quantised weights
    "gemma3-linear-cap": ("gemma3", {"default": T.Q8_0, "attn_output": T.Q4_0, "ffn_gate": T.Q5_0, "ffn_up": T.Q4_1},
                          lambda: Gemma3ForCausalLM(Gemma3TextConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        head_dim=24, query_pre_attn_scalar=24, sliding_window=40, final_logit_softcapping=3.0, tie_word_embeddings=True,
        layer_types=["sliding_attention", "full_attention", "full_attention", "sliding_attention"],
        rope_parameters=gemma_rope(local=5000.0, kind="linear", factor=8.0), **COMMON))),
    # types whose packed scales are exact make Q and K: a rounding of 2^-12 there moves a sharp softmax by more than the bound
    "llama-quants-few": ("llama", {"default": T.IQ4_NL, "attn_q": T.MXFP4, "attn_k": T.TQ2_0, "attn_v": T.IQ4_XS,
                                   "attn_output": T.TQ1_0, "ffn_gate": T.Q2_K, "ffn_up": T.Q3_K, "ffn_down": T.IQ4_NL},
                         lambda: LlamaForCausalLM(LlamaConfig(
        hidden_size=K_BLOCK, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=True, rope_parameters=rope(), **COMMON))),
    "llama-quants-grid": ("llama", {"default": T.IQ4_NL, "token_embd": T.IQ1_M, "output": T.IQ1_S, "attn_v": T.IQ2_XXS,
                                    "attn_output": T.IQ2_XS, "ffn_gate": T.IQ2_S, "ffn_up": T.IQ3_XXS,
                                    "ffn_down": T.IQ3_S}, lambda: LlamaForCausalLM(LlamaConfig(
        hidden_size=K_BLOCK, intermediate_size=K_BLOCK, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=False, rope_parameters=rope(), **COMMON))),
    # factors of NVFP4, also of the head
    "llama-nvfp4": ("llama", {"default": T.NVFP4, "token_embd": T.BF16}, lambda: LlamaForCausalLM(LlamaConfig(
        hidden_size=64, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=False, rope_parameters=rope(), **COMMON))),
    # one and two bits, and the other layout of two bits
    "llama-bits": ("llama", {"default": Q2_0, "token_embd": Q1_0, "attn_v": Q1_0, "ffn_up": Q1_0, "output": T.Q8_0},
                   lambda: LlamaForCausalLM(LlamaConfig(
        hidden_size=128, intermediate_size=192, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=False, rope_parameters=rope(), **COMMON))),
    "llama-bits-128": ("llama", {"default": Q2_0_128, "token_embd": T.BF16}, lambda: LlamaForCausalLM(LlamaConfig(
        hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        tie_word_embeddings=True, rope_parameters=rope(), **COMMON))),
}


def main():
    folder = sys.argv[1]
    wanted = sys.argv[2:]
    for number, (name, (arch, types, make)) in enumerate(MODELS.items()):
        if wanted and name not in wanted:
            continue
        for seed in range(1000 * number, 1000 * number + 1000):  # until no greedy step is a near tie
            rng = np.random.default_rng(seed)
            model = make().float().eval()
            spread_out(model, torch.Generator().manual_seed(seed))
            write_model(f"{folder}/{name}.gguf", arch, model, types, rng)
            prompts, margin = run(model, rng)
            if prompts is not None:
                break
        else:
            sys.exit(f"{name}: no seed will do")
        print(f"{name}: seed {seed}, smallest greedy margin {margin:.3f}")
        write_expected(f"{folder}/{name}.expect.gguf", prompts)


if __name__ == "__main__":
    main()
