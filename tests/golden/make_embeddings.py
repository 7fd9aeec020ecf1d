#!/usr/bin/env python3
"""Makes the golden models that give embeddings: tiny encoders and a decoder of random weights, as transformers saves them
and as llama.cpp's converter makes GGUF files of them, with the embeddings that transformers' states give in float32.

    as make_families.py, but: v/bin/python tests/golden/make_embeddings.py PEER tests/golden/models [NAME ...]

For each model: NAME.hf, the folder as transformers saves it with sentence-transformers' description of the pooling,
NAME.gguf, and NAME.expect.gguf: for each prompt the ids and the embedding, pooled and of length 1.
"""
import json
import shutil
import sys
from pathlib import Path

sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]) / "gguf-py")]  # the converter, and its own version of gguf

# ruff: noqa: E402
import numpy as np
import torch
import transformers as hf
from conversion.base import gguf
import conversion
import reference_models

from make_families import round_weights
from make_golden import PROMPT_LENGTHS, VOCAB, rope, write_expected, write_tokenizer
from safetensors.torch import load_file, save_file

ENCODER = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, vocab_size=VOCAB, max_position_embeddings=128,
               type_vocab_size=2, pad_token_id=258, attn_implementation="eager")
DECODER = dict(hidden_size=48, intermediate_size=80, num_hidden_layers=2, vocab_size=VOCAB, max_position_embeddings=512,
               num_attention_heads=4, num_key_value_heads=2, bos_token_id=256, eos_token_id=257, pad_token_id=258,
               attn_implementation="eager")

# The name begins with the architecture that GGUF files name, and ends with the pooling. How a layer is named may differ
# from what the converter knows: then its tensors are renamed.
MODELS = {
    "bert-cls": lambda: hf.BertModel(hf.BertConfig(**ENCODER, num_attention_heads=4), add_pooling_layer=False),
    "bert-mean": lambda: hf.BertModel(hf.BertConfig(**{**ENCODER, "hidden_size": 60}, num_attention_heads=3),
                                      add_pooling_layer=False),
    "nomic-bert-mean": lambda: hf.NomicBertModel(hf.NomicBertConfig(
        **ENCODER, num_attention_heads=3, rope_parameters=rope(theta=1000.0)), add_pooling_layer=False),
    "qwen3-last": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(
        **DECODER, head_dim=20, rope_parameters=rope(theta=1000000.0), tie_word_embeddings=True)),
}
# As BERT but for the positions, which begin after the id of the padding.
MODELS["bert-xlmr-mean"] = lambda: hf.XLMRobertaModel(hf.XLMRobertaConfig(**{
    **ENCODER, "max_position_embeddings": 130, "type_vocab_size": 1, "pad_token_id": 1}, num_attention_heads=4,
    hidden_act="gelu"), add_pooling_layer=False)
# Windows to both sides, shorter than the prompts; layers of both kinds, one global in front of another.
KINDS = ["sliding_attention", "full_attention", "sliding_attention"]
MODELS["gemma-embedding-mean"] = lambda: hf.Gemma3TextModel(hf.Gemma3TextConfig(
    **{**DECODER, "num_hidden_layers": 3}, head_dim=20, query_pre_attn_scalar=20, sliding_window=14, layer_types=KINDS,
    use_bidirectional_attention=True, rope_parameters={"full_attention": rope(theta=1000000.0),
                                                       "sliding_attention": rope(theta=10000.0)}))


def modern_bert(kind, **more):
    config = hf.ModernBertConfig(
        hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=4, vocab_size=VOCAB,
        max_position_embeddings=128, local_attention=14, global_attn_every_n_layers=2,
        rope_parameters={"full_attention": rope(theta=1000.0), "sliding_attention": rope(theta=100.0)}, bos_token_id=256,
        eos_token_id=257, cls_token_id=256, sep_token_id=257, pad_token_id=258, attn_implementation="eager", **more)
    config.layer_norm_eps = config.norm_eps  # the name that published files have beside it, and the converter reads
    config.global_attn_every_n_layers = 2
    return kind(config)


MODELS["modern-bert-cls"] = lambda: modern_bert(hf.ModernBertModel)
MODELS["bert-dense-mean"] = MODELS["bert-mean"]
MODELS["eurobert-mean"] = lambda: hf.EuroBertModel(hf.EuroBertConfig(
    **{**DECODER, "max_position_embeddings": 128}, classifier_pooling="mean", rope_parameters=rope(theta=250000.0)))


def neo_bert(kind, **more):
    return kind(reference_models.NeoBERTConfig(
        hidden_size=60, intermediate_size=108, num_hidden_layers=2, num_attention_heads=3, vocab_size=VOCAB, dim_head=20,
        max_position_embeddings=128, norm_eps=1e-5, pad_token_id=258, **more))


MODELS["neo-bert-cls"] = lambda: neo_bert(reference_models.NeoBERT)


def nomic_moe(experts_bias):
    """Experts in every second layer; the lengths that the converter knows. It drops the bias that experts share."""
    return reference_models.NomicBertModel(reference_models.NomicBertConfig(
        n_embd=48, n_inner=40, n_layer=3, n_head=3, vocab_size=VOCAB, type_vocab_size=1, n_positions=2048,
        max_trained_positions=2048, layer_norm_epsilon=1e-5, activation_function="gelu", causal=False, qkv_proj_bias=True,
        mlp_fc1_bias=True, mlp_fc2_bias=True, prenorm=False, rotary_emb_base=10000, rotary_emb_fraction=1.0,
        rotary_emb_interleaved=False, rotary_emb_scale_base=None, rotary_scaling_factor=None, num_experts=5, moe_top_k=2,
        moe_every_n_layers=2, moe_normalize_expert_weights=False, pad_token_id=1, experts_bias=experts_bias))


MODELS["nomic-bert-moe-mean"] = lambda: nomic_moe(False)


def jina_bert(**more):
    return reference_models.JinaBertModel(reference_models.JinaBertConfig(
        **{**ENCODER, "num_attention_heads": 6, **more}, hidden_act="gelu", position_embedding_type="alibi",
        feed_forward_type="geglu", layer_norm_eps=1e-12))


# Six heads: ALiBi's slopes for numbers that are no power of two.
MODELS["jina-bert-v2-mean"] = lambda: jina_bert(of_code=False)
MODELS["jina-bert-v2-code-mean"] = lambda: jina_bert(of_code=True, num_attention_heads=4)
# RoPE instead of positions, which XLM-RoBERTa counts from the one after the padding's id.
MODELS["jina-bert-v3-mean"] = lambda: hf.JinaEmbeddingsV3Model(hf.JinaEmbeddingsV3Config(**{
    **ENCODER, "max_position_embeddings": 130, "type_vocab_size": 1, "pad_token_id": 1}, num_attention_heads=4,
    hidden_act="gelu", rope_parameters=rope(theta=20000.0)), add_pooling_layer=False)
MODELS["nomic-bert-moe-bias-mean"] = lambda: nomic_moe(True)


def t5(**more):
    """Heads that are together wider than a row; the converter writes no pooling."""
    return hf.T5EncoderModel(hf.T5Config(
        vocab_size=VOCAB, d_model=48, d_kv=20, d_ff=80, num_layers=3, num_heads=3, is_encoder_decoder=False,
        pad_token_id=258, eos_token_id=257, attn_implementation="eager", **more))


MODELS["t5encoder-relu-mean"] = lambda: t5(feed_forward_proj="relu")
MODELS["t5encoder-gated-mean"] = lambda: t5(feed_forward_proj="gated-gelu", relative_attention_num_buckets=16)
MODELS["t5encoder-dense-mean"] = lambda: t5(feed_forward_proj="relu", layer_norm_epsilon=1e-5)
# Layers after the pooling: widths, activation; those with one have a bias. The converter takes neither of these.
DENSE = {"gemma-embedding-mean": [(48, 96, "linear.Identity"), (96, 48, "linear.Identity")],
         "bert-dense-mean": [(60, 28, "activation.Tanh"), (28, 44, "activation.GELU")],
         "t5encoder-dense-mean": [(48, 40, "linear.Identity")]}  # as sentence-T5
FOLDER_ONLY = ("bert-dense-mean", "nomic-bert-moe-bias-mean", "t5encoder-dense-mean")
MODES = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}


def spread_out(model, gen):
    """Larger weights than the default initialisation: attention that attends."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            is_norm = "norm" in name.lower() and name.endswith("weight")
            is_query = any(part in name for part in ("query.weight", "key.weight", "q_proj.weight", "k_proj.weight"))
            noise = torch.randn(p.shape, generator=gen)
            one = 0 if isinstance(model, hf.Gemma3TextModel) else 1  # Gemma adds it itself
            p.copy_(one + 0.2 * noise if is_norm else (0.35 if is_query else 0.22 if "qkv" in name else 0.15) * noise)
            if "relative_attention_bias" in name:
                p.copy_(1.5 * noise)
            if name.endswith("experts.bias") and not model.config.experts_bias:
                p.zero_()


class Dense(torch.nn.Module):
    def __init__(self, n_in, n_out, act):
        super().__init__()
        self.linear = torch.nn.Linear(n_in, n_out, bias=act != "linear.Identity")
        self.kind = "torch.nn.modules." + act
        self.act = getattr(torch.nn, act.rsplit(".", 1)[1])()

    def forward(self, x):
        return self.act(self.linear(x))

    def save(self, folder):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(
            {"in_features": self.linear.in_features, "out_features": self.linear.out_features,
             "bias": self.linear.bias is not None, "activation_function": self.kind}, indent=2))
        save_file(self.state_dict(), folder / "model.safetensors")


def make_dense(name, gen):
    layers = torch.nn.Sequential(*(Dense(*row) for row in DENSE.get(name, [])))
    spread_out(layers, gen)
    round_weights(layers, False)
    return layers


def embed(model, dense, ids, pooling):
    states = (model.model if hasattr(model, "lm_head") else model)(ids).last_hidden_state[0].double()
    pooled = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
    pooled = dense.double()(pooled)
    return (pooled / pooled.norm()).float().numpy()


def describe_modules(folder, pooling, width, dense):
    modules = [("Transformer", ""), ("Pooling", "1_Pooling")]
    for layer in dense.float():
        modules.append(("Dense", f"{len(modules)}_Dense"))
        layer.save(folder / modules[-1][1])
    modules.append(("Normalize", f"{len(modules)}_Normalize"))
    (folder / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": path, "type": "sentence_transformers.models." + kind}
        for i, (kind, path) in enumerate(modules)], indent=2))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling/config.json").write_text(json.dumps(
        {"word_embedding_dimension": width, **{key: name == pooling for name, key in MODES.items()}}, indent=2))


NOMIC = {  # as transformers names its tensors, and as the files of the model's makers do, which the converter reads
    "embeddings.LayerNorm": "emb_ln", "layers.": "encoder.layers.", "self_attn.o_proj": "attn.out_proj",
    "post_attention_layernorm": "norm1", "post_mlp_layernorm": "norm2", "mlp.gate_proj": "mlp.fc12",
    "mlp.up_proj": "mlp.fc11", "mlp.down_proj": "mlp.fc2",
}


def write_nomic(model, path, pooling):
    """The converter takes no tiny ones (it checks for the lengths of those that were published): by hand."""
    c = model.config
    out = gguf.GGUFWriter(path, "nomic-bert")
    out.add_block_count(c.num_hidden_layers)
    out.add_context_length(c.max_position_embeddings)
    out.add_embedding_length(c.hidden_size)
    out.add_feed_forward_length(c.intermediate_size)
    out.add_head_count(c.num_attention_heads)
    out.add_layer_norm_eps(c.layer_norm_eps)
    out.add_rope_freq_base(c.rope_parameters["rope_theta"])
    out.add_causal_attention(False)
    out.add_pooling_type({"mean": gguf.PoolingType.MEAN, "cls": gguf.PoolingType.CLS}[pooling])
    out.add_token_type_count(c.type_vocab_size)
    write_tokenizer(out)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.NOMIC_BERT, c.num_hidden_layers)
    state = dict(model.state_dict())
    for i in range(c.num_hidden_layers):  # one matrix in the makers' files
        parts = [state.pop(f"layers.{i}.self_attn.{p}_proj.weight") for p in "qkv"]
        state[f"encoder.layers.{i}.attn.Wqkv.weight"] = torch.cat(parts)
    for name, value in state.items():
        for ours, theirs in NOMIC.items():
            name = name.replace(ours, theirs) if theirs not in name else name
        target = names.get_name(name, try_suffixes=(".weight", ".bias"))
        w = value.float().numpy()
        kind = gguf.GGMLQuantizationType.F32 if w.ndim == 1 or "token_types" in target else gguf.GGMLQuantizationType.BF16
        out.add_tensor(target, gguf.quants.quantize(w, kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def without_adapters(modify):
    return lambda data, name, bid: [] if ".lora_" in name else modify(data, name, bid)


def convert(folder, out):
    hparams = conversion.ModelBase.load_hparams(folder, False)
    arch = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
    counted = folder / "tokenizer.json"  # Gemma's converter counts its tokens, Nomic's asks for their kind
    counted.write_text(json.dumps({"model": {"type": "WordPiece", "vocab": dict.fromkeys(range(VOCAB))}, "added_tokens": []}))
    model = conversion.get_model_class(arch)(folder, gguf.LlamaFileType.MOSTLY_BF16, Path(out), eager=True,
                                             sentence_transformers_dense_modules=True)

    def set_vocab():
        if arch in ("BertModel", "NomicBertModel", "JinaBertModel"):
            model.vocab_size = VOCAB
            model.gguf_writer.add_token_type_count(hparams["type_vocab_size"])
        if arch == "Gemma3TextModel":  # of six layers the converter knows which are global
            model.gguf_writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in KINDS])
        write_tokenizer(model.gguf_writer)
    model.set_vocab = set_vocab
    model.modify_tensors = without_adapters(model.modify_tensors)
    model._lora_names = []
    with torch.inference_mode():
        model.write()
    counted.unlink()


def write_adapters(source, target):
    """The folder as the publisher has it: matrices next to adapters of two tasks, which are not used without a task."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    theta = config.pop("rope_parameters")["rope_theta"]
    config |= {"architectures": ["XLMRobertaModel"], "position_embedding_type": "rotary", "rotary_emb_base": theta,
               "lora_adaptations": ["retrieval.query", "separation"], "lora_alpha": 1, "lora_rank": 2}
    (target / "config.json").write_text(json.dumps(config, indent=2))
    tensors = {}
    for name, w in load_file(source / "model.safetensors").items():
        stem = name.removesuffix(".weight")
        if w.ndim == 1:
            tensors[name] = w
            continue
        tensors[stem + ".parametrizations.weight.original"] = w
        tensors[stem + ".parametrizations.weight.0.lora_A"] = torch.ones(2, 2, w.shape[1], dtype=w.dtype)
        tensors[stem + ".parametrizations.weight.0.lora_B"] = torch.ones(2, w.shape[0], 2, dtype=w.dtype)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})


def main():
    folder, wanted = sys.argv[2], sys.argv[3:]
    for number, (name, make) in enumerate(MODELS.items()):
        if wanted and name not in wanted:
            continue
        seed, pooling = 200000 + number, name.rsplit("-", 1)[1]
        rng = np.random.default_rng(seed)
        model = make().float().eval()
        gen = torch.Generator().manual_seed(seed)
        spread_out(model, gen)
        round_weights(model, False)
        dense = make_dense(name, gen)
        prompts = []
        with torch.no_grad():
            for n in PROMPT_LENGTHS:
                ids = torch.from_numpy(rng.integers(0, VOCAB, (1, n)))
                prompts.append({"ids": ids[0].numpy().astype(np.int32), "embedding": embed(model, dense, ids, pooling)})
        write_expected(f"{folder}/{name}.expect.gguf", prompts)
        saved = Path(folder, f"{name}.hf")
        inner = model.model if hasattr(model, "lm_head") else model  # what sentence-transformers saves
        inner.to(torch.bfloat16).save_pretrained(saved)
        describe_modules(saved, pooling, model.config.hidden_size, dense)
        Path(saved, "generation_config.json").unlink(missing_ok=True)
        if name == "t5encoder-dense-mean":  # the embedding under its second name, as in some published folders
            tensors = load_file(saved / "model.safetensors")
            tensors["encoder.embed_tokens.weight"] = tensors.pop("shared.weight")
            save_file(tensors, saved / "model.safetensors", metadata={"format": "pt"})
        if name == "nomic-bert-mean":
            write_nomic(model, f"{folder}/{name}.gguf", pooling)
        elif name == "jina-bert-v3-mean":  # the converter knows the publisher's folder, and writes adapters to further files
            other = Path(folder, "jina-bert-v3-adapters-mean")
            write_adapters(saved, other.with_suffix(".hf"))
            shutil.copy(f"{folder}/{name}.expect.gguf", other.with_suffix(".expect.gguf"))
            convert(other.with_suffix(".hf"), f"{folder}/{name}.gguf")
        elif name not in FOLDER_ONLY:
            convert(saved, f"{folder}/{name}.gguf")
        print(f"{name}: seed {seed}")


if __name__ == "__main__":
    main()
