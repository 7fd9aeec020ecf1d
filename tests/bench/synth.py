#!/usr/bin/env python3
"""Writes a GGUF file with the shapes of a published model, random weights and an artificial vocabulary, to measure speed without
downloading the model.

    python3 tests/bench/synth.py --model qwen3.5-4b --type q4_K --layers 8 --head OUT.gguf

Without OUT.gguf it only prints what the file would contain. Text of the model is meaningless. Prompts have one token per byte.

Names, shapes and keys: llama.cpp b11434, src/models/ (kimi-linear, llama, nemotron-h, openai-moe, qwen35, qwen35moe, qwen3moe) and conversion/. Sizes of
Qwen3.5 4B: the listing of a GGUF file's tensors in candle's pull request 3821; of its 35B: scripts/models/qwen3.5-35B-A3B.sh of slime, and
the log in llama.cpp's pull request 23269, whose number of tensors and bytes are those of this script. Sizes of the others: the config.json
that Qwen/Qwen3-30B-A3B, openai/gpt-oss-20b, meta-llama/Llama-3.1-8B, nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 and
moonshotai/Kimi-Linear-48B-A3B-Instruct publish.
"""
import argparse
import math
import pathlib
import random
import struct
import sys
from dataclasses import dataclass, replace

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "fuzz"))

from seeds import BOOL, F32, I32, STRING, U32, gguf_header, vocabulary  # noqa: E402

INTERVAL = 4    # the last of so many layers has full attention
TAPS = 4        # of the convolution
SPECIAL = 276   # ids after the last one of text
POOL = 16 << 20
CHUNK = 1 << 20


@dataclass
class Style:
    """Parts of an architecture. is_hybrid: three of four layers have linear attention. is_gated: the query has a gate. is_biased: biases
    and sinks, and the type of the matrices is that of the experts, while the other matrices have the embedding's."""
    ffn_norm: str = "ffn_norm"
    is_hybrid: bool = False
    is_gated: bool = False
    has_head_norms: bool = False
    is_biased: bool = False
    has_parts: bool = False   # a layer is one part, by the letters of Shape.pattern
    has_latents: bool = False # a layer has latent attention (A) or linear attention with decays per channel (K), by these letters


HYBRID = Style("post_attention_norm", is_hybrid=True, is_gated=True, has_head_norms=True)
STYLES = {"qwen35": HYBRID, "qwen35moe": HYBRID, "qwen3moe": Style(has_head_norms=True), "llama": Style(),
          "gpt-oss": Style("post_attention_norm", is_biased=True), "nemotron_h_moe": Style(has_parts=True),
          "kimi-linear": Style(has_latents=True)}


@dataclass
class Shape:
    """Sizes of a model. is_tied: the embedding is the output matrix, too. types: of the matrices, and of the embedding and the output
    matrix. n_bench_layers: so many are enough to measure. yarn: factor and context before it."""
    arch: str
    n_layers: int
    width: int
    n_heads: int
    n_kv_heads: int
    head: int
    key_heads: int = 0      # of linear attention
    value_heads: int = 0
    state: int = 0          # width of a head of linear attention
    n_vocab: int = 248320
    n_ff: int = 0
    n_experts: int = 0
    n_used: int = 0
    n_expert_ff: int = 0
    n_shared_ff: int = 0
    is_tied: bool = False
    window: int = 0
    rope_base: float = 1e7
    yarn: tuple = ()
    epsilon: float = 1e-6
    context: int = 262144
    pre: str = "qwen35"     # pre-tokenizer
    types: tuple = ("q4_K", "q4_K")
    n_bench_layers: int = 4
    pattern: str = ""       # a letter per layer: a state space (M), experts (E), attention (*); of Style.has_latents
    latent: int = 0         # components of a latent, and of the part of a key that all heads share
    shared_key: int = 0
    groups: int = 0         # of a state space with value_heads heads
    head_width: int = 0     # of these

    def style(self):
        return STYLES[self.arch]


MODELS = {
    "qwen3.5-4b": Shape("qwen35", 32, 2560, 16, 4, 256, 16, 32, 128, n_ff=9216, is_tied=True),
    "qwen3.5-35b-a3b": Shape("qwen35moe", 40, 2048, 16, 2, 256, 16, 32, 128, n_experts=256, n_used=8, n_expert_ff=512, n_shared_ff=512),
    "qwen3-30b-a3b": Shape("qwen3moe", 48, 2048, 32, 4, 128, n_vocab=151936, n_ff=6144, n_experts=128, n_used=8, n_expert_ff=768,
                           rope_base=1e6, context=40960, pre="qwen2", n_bench_layers=2),
    "gpt-oss-20b": Shape("gpt-oss", 24, 2880, 64, 8, 64, n_vocab=201088, n_ff=2880, n_experts=32, n_used=4, n_expert_ff=2880, window=128,
                         rope_base=150000, yarn=(32, 4096), epsilon=1e-5, context=131072, pre="gpt-4o", types=("mxfp4", "q8_0"),
                         n_bench_layers=2),
    "nemotron-3-nano-30b-a3b": Shape(
        "nemotron_h_moe", 52, 2688, 32, 2, 128, value_heads=64, state=128, n_vocab=131072, n_ff=1856, n_experts=128, n_used=6,
        n_expert_ff=1856, n_shared_ff=3712, epsilon=1e-5, pre="tekken", types=("q4_0", "q8_0"), n_bench_layers=6,
        pattern="MEMEM*" + 4 * "EMEMEM*" + "EMEMEMEM*" + "EMEMEMEME", groups=8, head_width=64),
    "kimi-linear-48b-a3b": Shape(
        "kimi-linear", 27, 2304, 32, 1, 128, state=128, n_vocab=163840, n_ff=9216, n_experts=256, n_used=8, n_expert_ff=1024,
        n_shared_ff=1024, epsilon=1e-5, rope_base=1e4, context=1048576, pre="kimi-k2", types=("q4_0", "q8_0"), n_bench_layers=5,
        pattern=6 * "KKKA" + "KKA", latent=512, shared_key=64),
    "llama-8b": Shape("llama", 32, 4096, 32, 8, 128, n_vocab=128256, n_ff=14336, rope_base=500000, epsilon=1e-5, context=131072,
                      pre="llama-bpe"),
}


@dataclass
class Type:
    """Type of a matrix. halves: offset of each float16 in a block, and its ratio to the scale. spread: deviation of the weights of a
    block of random bytes whose scale is 1. has_exponent: the scale is two to the power of the first byte less 128."""
    number: int
    weights: int
    bytes: int
    halves: dict
    spread: float
    has_exponent: bool = False


TYPES = {
    "q4_0": Type(2, 32, 18, {0: 1}, 4.6), "q4_1": Type(3, 32, 20, {0: 1, 2: -7.5}, 4.6),
    "q5_0": Type(6, 32, 22, {0: 1}, 9.2), "q5_1": Type(7, 32, 24, {0: 1, 2: -15.5}, 9.2),
    "q8_0": Type(8, 32, 34, {0: 1}, 73.9),
    "q2_K": Type(10, 256, 84, {80: 1, 82: 1.5}, 13.9), "q3_K": Type(11, 256, 110, {108: 1}, 43.3),
    "q4_K": Type(12, 256, 144, {0: 1, 2: 7.5}, 258), "q5_K": Type(13, 256, 176, {0: 1, 2: 15.5}, 527),
    "q6_K": Type(14, 256, 210, {208: 1}, 1366),
    "mxfp4": Type(39, 32, 17, {}, 5.85, has_exponent=True),
    "iq4_nl": Type(20, 32, 18, {0: 1}, 67), "iq4_xs": Type(23, 256, 136, {0: 1}, 1240),
}
FLOAT = Type(0, 1, 4, {}, 1)
# general.file_type, which OpenVINO GenAI requires [llama.cpp b11434, include/llama.h, enum llama_ftype].
FILE_TYPES = {2: 2, 3: 3, 6: 8, 7: 9, 8: 7, 10: 10, 11: 12, 12: 15, 13: 17, 14: 18, 39: 38, 20: 25, 23: 30}

# Range of the weights of the tensors in float32, by the end of the name; the first that fits.
RANGES = {"ssm_a": (-1, -0.05), "ssm_d": (0.5, 1.5),
          "ssm_dt.bias": (-4, -1), "bias": (-0.1, 0.1), "ssm_conv1d.weight": (-0.5, 0.5),
          **{f"ssm_conv1d_{x}.weight": (-0.5, 0.5) for x in "qkv"}, "norm.weight": (0.5, 1.5),
          "weight": (-0.03, 0.03)}


def attention(s):
    d, w = s.head, s.width
    parts = [("attn_q", w, s.n_heads * d * (2 if s.style().is_gated else 1)), ("attn_k", w, s.n_kv_heads * d),
             ("attn_v", w, s.n_kv_heads * d), ("attn_output", s.n_heads * d, w)]
    tensors_ = [(f"{name}.weight", *dims) for name, *dims in parts]
    if s.style().is_biased:
        tensors_ += [(f"{name}.bias", n_out) for name, _, n_out in parts] + [("attn_sinks.weight", s.n_heads)]
    return tensors_ + ([("attn_q_norm.weight", d), ("attn_k_norm.weight", d)] if s.style().has_head_norms else [])


def linear_attention(s):
    inner, w = s.value_heads * s.state, s.width
    mixed = 2 * s.key_heads * s.state + inner
    return [("attn_qkv.weight", w, mixed), ("attn_gate.weight", w, inner), ("ssm_conv1d.weight", TAPS, mixed),
            ("ssm_alpha.weight", w, s.value_heads), ("ssm_beta.weight", w, s.value_heads), ("ssm_dt.bias", s.value_heads),
            ("ssm_a", s.value_heads), ("ssm_norm.weight", s.state), ("ssm_out.weight", inner, w)]


def feed_forward(s):
    w, e, x, f = s.width, s.n_experts, s.n_expert_ff, s.n_shared_ff
    if not e:
        return [("ffn_gate.weight", w, s.n_ff), ("ffn_up.weight", w, s.n_ff), ("ffn_down.weight", s.n_ff, w)]
    experts = [("ffn_gate_inp.weight", w, e), ("ffn_gate_exps.weight", w, x, e), ("ffn_up_exps.weight", w, x, e),
               ("ffn_down_exps.weight", x, w, e)]
    if s.style().is_biased:
        experts += [(name.replace(".weight", ".bias"), *dims[1:]) for name, *dims in experts]
    return experts + ([("ffn_gate_inp_shexp.weight", w, 1), ("ffn_gate_shexp.weight", w, f), ("ffn_up_shexp.weight", w, f),
                       ("ffn_down_shexp.weight", f, w)] if f else [])


def state_space(s):
    inner, w = s.value_heads * s.head_width, s.width
    mixed = inner + 2 * s.groups * s.state
    return [("ssm_in.weight", w, inner + mixed + s.value_heads), ("ssm_conv1d.weight", TAPS, mixed), ("ssm_conv1d.bias", mixed),
            ("ssm_dt.bias", s.value_heads), ("ssm_a", 1, s.value_heads), ("ssm_d", 1, s.value_heads),
            ("ssm_norm.weight", inner // s.groups, s.groups), ("ssm_out.weight", inner, w)]


def ungated_experts(s):
    w, e, x, f = s.width, s.n_experts, s.n_expert_ff, s.n_shared_ff
    return [("ffn_gate_inp.weight", w, e), ("exp_probs_b.bias", e), ("ffn_up_exps.weight", w, x, e),
            ("ffn_down_exps.weight", x, w, e), ("ffn_up_shexp.weight", w, f), ("ffn_down_shexp.weight", f, w)]


def latent_attention(s):
    w, n, d = s.width, s.n_heads, s.head
    return [("attn_q.weight", w, n * (d + s.shared_key)), ("attn_kv_a_mqa.weight", w, s.latent + s.shared_key),
            ("attn_kv_a_norm.weight", s.latent), ("attn_k_b.weight", d, s.latent, n), ("attn_v_b.weight", s.latent, d, n),
            ("attn_output.weight", n * d, w)]


def delta_attention(s):
    w, d, inner = s.width, s.state, s.n_heads * s.state
    return [*((f"attn_{x}.weight", w, inner) for x in "qkv"), *((f"ssm_conv1d_{x}.weight", TAPS, 1, inner) for x in "qkv"),
            *((f"ssm_{x}_a.weight", w, d) for x in "fg"), *((f"ssm_{x}_b.weight", d, inner) for x in "fg"),
            ("ssm_beta.weight", w, s.n_heads), ("ssm_a", 1, s.n_heads), ("ssm_dt.bias", inner), ("ssm_norm.weight", d),
            ("attn_output.weight", inner, w)]


def picked_experts(s, layer):
    """Of a layer of Kimi Linear, whose first one is dense."""
    if layer == 0:
        return feed_forward(replace(s, n_experts=0))
    return [("exp_probs_b.bias", s.n_experts), *(t for t in feed_forward(s) if "gate_inp_shexp" not in t[0])]


PARTS = {"A": latent_attention, "K": delta_attention, "M": state_space, "E": ungated_experts, "*": attention}


def prediction_head(s):
    w = s.width
    return [("nextn.eh_proj.weight", 2 * w, w), ("nextn.enorm.weight", w), ("nextn.hnorm.weight", w),
            ("nextn.shared_head_norm.weight", w)]


FLOATS = ("ssm_conv1d", "ffn_gate_inp", "ssm_d", "ssm_norm")  # of two dimensions


def is_linear(s, layer):
    return s.style().is_hybrid and (layer + 1) % INTERVAL != 0


def tensors(s, has_head, matrix, output):
    """Yields (name, dims, type) of each tensor. matrix, output: types of the matrices, and of the embedding and the output matrix."""
    yield "token_embd.weight", (s.width, s.n_vocab), output
    for i in range(s.n_layers + has_head):
        is_head = i == s.n_layers
        parts = attention(s) if is_head or not is_linear(s, i) else linear_attention(s)
        norms = [("attn_norm.weight", s.width), (f"{s.style().ffn_norm}.weight", s.width)]
        parts = norms + parts + feed_forward(s) + (prediction_head(s) if is_head else [])
        if s.style().has_parts:
            parts = norms[:1] + PARTS[s.pattern[i]](s)
        if s.style().has_latents:
            parts = norms + PARTS[s.pattern[i]](s) + picked_experts(s, i)
        for name, *dims in parts:
            is_float = len(dims) == 1 or name.endswith("bias") or name == "ssm_a" or name.startswith(FLOATS)
            kind = output if s.style().is_biased and "_exps" not in name else matrix
            yield f"blk.{i}.{name}", tuple(dims), FLOAT if is_float else kind
    yield "output_norm.weight", (s.width,), FLOAT
    if not s.is_tied:
        yield "output.weight", (s.width, s.n_vocab), output


def n_bytes(dims, kind):
    return math.prod(dims) // kind.weights * kind.bytes


def metadata(s, name, has_head, matrix):
    def key(k, kind, v):
        return f"{s.arch}.{k}", kind, v
    n_all = s.n_layers + has_head
    numbers = {"block_count": n_all, "context_length": s.context, "embedding_length": s.width, "feed_forward_length": s.n_ff,
               "attention.head_count": s.n_heads, "attention.head_count_kv": s.n_kv_heads, "attention.key_length": s.head,
               "attention.value_length": s.head, "attention.sliding_window": s.window, "expert_count": s.n_experts,
               "expert_used_count": s.n_used, "expert_feed_forward_length": s.n_expert_ff,
               "expert_shared_feed_forward_length": s.n_shared_ff, "rope.dimension_count": s.head // (4 if s.style().is_hybrid else 1),
               "nextn_predict_layers": int(has_head)}
    more = []
    if s.style().is_hybrid:
        numbers |= {"ssm.conv_kernel": TAPS, "ssm.state_size": s.state, "ssm.group_count": s.key_heads, "ssm.time_step_rank": s.value_heads,
                    "ssm.inner_size": s.value_heads * s.state, "full_attention_interval": INTERVAL}
        more = [key("attention.recurrent_layers", (BOOL,), [i < s.n_layers and is_linear(s, i) for i in range(n_all)]),
                key("rope.dimension_sections", (I32,), [11, 11, 10, 0])]
    if s.style().has_parts:
        letters = s.pattern[:s.n_layers]
        numbers |= {"ssm.conv_kernel": TAPS, "ssm.state_size": s.state, "ssm.group_count": s.groups, "ssm.time_step_rank": s.value_heads,
                    "ssm.inner_size": s.value_heads * s.head_width, "attention.head_count_kv": 0, "feed_forward_length": 0,
                    "nextn_predict_layers": 0}
        more = [key("attention.head_count_kv", (I32,), [s.n_kv_heads if c == "*" else 0 for c in letters]),
                key("feed_forward_length", (I32,), [s.n_ff if c == "E" else 0 for c in letters]),
                key("expert_weights_norm", BOOL, True), key("expert_weights_scale", F32, 2.5)]
    if s.style().has_latents:
        numbers |= {"ssm.conv_kernel": TAPS, "kda.head_dim": s.state, "attention.head_count_kv": 0, "expert_gating_func": 2,
                    "attention.kv_lora_rank": s.latent, "attention.key_length": s.latent + s.shared_key, "expert_shared_count": 1,
                    "attention.value_length": s.latent, "attention.key_length_mla": s.head + s.shared_key,
                    "attention.value_length_mla": s.head, "rope.dimension_count": s.shared_key, "leading_dense_block_count": 1}
        more = [key("attention.head_count_kv", (I32,), [int(c == "A") for c in s.pattern[:s.n_layers]]),
                key("expert_weights_scale", F32, 2.446)]
    if s.yarn:
        more += [key("rope.scaling.type", STRING, "yarn"), key("rope.scaling.factor", F32, s.yarn[0]),
                 key("rope.scaling.original_context_length", U32, s.yarn[1])]
    return [("general.architecture", STRING, s.arch), ("general.name", STRING, f"{name}, random weights"),
            ("general.file_type", U32, FILE_TYPES[matrix.number]), ("general.quantization_version", U32, 2),
            *(key(k, U32, v) for k, v in numbers.items() if v), key("attention.layer_norm_rms_epsilon", F32, s.epsilon),
            key("rope.freq_base", F32, s.rope_base), *more]


TEMPLATE = ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


def words(n, pre):
    """The vocabulary: bytes, words of digits, and before the end special tokens and unused ones, as many as Qwen3.5 has."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    alphabet = [chr(b if b in plain else next(others)) for b in range(256)]
    n_text = n - SPECIAL
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokens = alphabet + ["ab"] + [f"\u0120{i}" for i in range(257, n_text)] + special + [f"[PAD{i}]" for i in range(n_text + 3, n)]
    return vocabulary("gpt2", tokens, [1] * n_text + [3] * 3 + [5] * (SPECIAL - 3), pre=pre, merges=["a b"],
                      bos_token_id=n_text, eos_token_id=n_text + 2, add_bos_token=False) + [("tokenizer.chat_template", STRING, TEMPLATE)]


def floats(rng, name, dims):
    low, high = next(r for end, r in RANGES.items() if name.endswith(end))
    n = math.prod(dims)
    return struct.pack(f"<{n}f", *(low + (high - low) * rng.random() for _ in range(n)))


def blocks(rng, pool, dims, kind):
    """Yields the data of a matrix in parts. A normed row gives a row of deviation 1. The random bytes are taken from the pool at random
    places, because generating all of them would take minutes."""
    scale = 1 / math.sqrt(dims[0]) / kind.spread
    left = n_bytes(dims, kind) // kind.bytes
    while left:
        n = min(left, CHUNK // kind.bytes)
        at = rng.randrange(POOL - CHUNK)
        part = bytearray(pool[at:at + n * kind.bytes])
        for offset, ratio in kind.halves.items():
            for i, byte in enumerate(struct.pack("<e", scale * ratio)):
                part[offset + i::kind.bytes] = bytes([byte]) * n
        if kind.has_exponent:
            part[::kind.bytes] = bytes([128 + round(math.log2(scale))]) * n
        yield part
        left -= n


def write(path, s, name, matrix, output, has_head=False, seed=1):
    """Writes the file. matrix, output: as of tensors(). A tensor depends only on its name, shape and type and on the seed, so the other
    layers are the same with and without a head."""
    pool = random.Random(seed).randbytes(POOL)
    every = list(tensors(s, has_head, matrix, output))
    with open(path, "wb") as f:
        f.write(gguf_header(metadata(s, name, has_head, matrix) + words(s.n_vocab, s.pre),
                            [(n, dims, kind.number, n_bytes(dims, kind)) for n, dims, kind in every]))
        for tensor, dims, kind in every:
            rng = random.Random(f"{seed} {tensor}")
            f.writelines([floats(rng, tensor, dims)] if kind is FLOAT else blocks(rng, pool, dims, kind))
            f.write(bytes(-n_bytes(dims, kind) % 32))


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("out", nargs="?", metavar="OUT.gguf", help="file to write; none: only print the size")
    parser.add_argument("--model", choices=MODELS, required=True)
    parser.add_argument("--type", choices=TYPES, help="type of the matrices [q4_K; of gpt-oss's experts: mxfp4]")
    parser.add_argument("--output-type", choices=TYPES, help="type of the embedding and the output matrix [that of --type; gpt-oss: q8_0]")
    parser.add_argument("--layers", metavar="N", help="only the first N layers (bench: so many are enough to measure)")
    parser.add_argument("--head", action="store_true", help="add the layer that predicts further tokens")
    parser.add_argument("--name", action="store_true", help="only print a name for such a file")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="random seed [1]")
    return parser


def choices(parser, o):
    """Returns the shape and the two types that the options ask for. Ends the program if they do not fit together."""
    s = MODELS[o.model]
    least = INTERVAL if s.style().is_hybrid else s.pattern.index("*") + 1 if s.style().has_parts else 1
    least = s.pattern.index("A") + 1 if s.style().has_latents else least
    if o.layers is not None:
        n = s.n_bench_layers if o.layers == "bench" else int(o.layers) if o.layers.isdecimal() else 0
        if not least <= n <= s.n_layers:
            parser.error(f"--layers: expected {least} to {s.n_layers}, found {o.layers}")
        s = replace(s, n_layers=n)
    if o.head and not s.style().is_hybrid:
        parser.error(f"--head: {o.model} has no such layer")
    default = o.type or s.types[1]
    matrix, output = TYPES[o.type or s.types[0]], TYPES[o.output_type or (s.types[1] if s.style().is_biased else default)]
    for name, dims, kind in tensors(s, o.head, matrix, output):
        if dims[0] % kind.weights:
            parser.error(f"{name}: expected rows of a multiple of {kind.weights} weights for this type, found {dims[0]}")
    return s, matrix, output


def main():
    parser = options()
    o = parser.parse_args()
    s, matrix, output = choices(parser, o)
    if o.name:
        print(f"synth-{o.model}-{s.n_layers}-layers-{o.type or s.types[0]}.gguf")
        return
    every = list(tensors(s, o.head, matrix, output))
    print(f"{len(every)} tensors, {sum(math.prod(dims) for _, dims, _ in every):,} weights, "
          f"{sum(n_bytes(dims, kind) for _, dims, kind in every):,} bytes of weights")
    if o.out is not None:
        try:
            write(o.out, s, o.model, matrix, output, o.head, o.seed)
        except OSError as e:
            sys.exit(f"error: {e}")


if __name__ == "__main__":
    main()
