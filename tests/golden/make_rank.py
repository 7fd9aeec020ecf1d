#!/usr/bin/env python3
"""Makes the golden models that rank texts: tiny cross-encoders and decoders of random weights, as transformers saves them
and as llama.cpp's converter makes GGUF files of them, with the scores that transformers gives in float32.

    as make_families.py, but: v/bin/python tests/golden/make_rank.py PEER tests/golden/rank [NAME ...]

For each model: NAME.hf, the folder as transformers saves it with a vocabulary of letters that wraps pairs as the kind does, and NAME.gguf, where there are both kinds, and
NAME.expect.gguf: for each pair the ids and the logit. Ids of the second text of a model with two segments have the
vocabulary's size added. bert-xlmr-flash.hf is bert-xlmr-pair.hf with its tensors as jina-reranker-v2 names and joins them.
"""
import json
import shutil
import struct
import sys
import tempfile
from pathlib import Path

sys.path[:0] = [sys.argv[1], str(Path(sys.argv[1]) / "gguf-py")]  # the converter, and its own version of gguf

# ruff: noqa: E402
import conversion
import numpy as np
import torch
import transformers as hf
from conversion.base import gguf
import reference_models
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from make_embeddings import DECODER, ENCODER, modern_bert, neo_bert, spread_out
from make_families import round_weights
from make_golden import PROMPT_LENGTHS, VOCAB, rope, write_expected, write_tokenizer

YES, NO = 121, 110
WORDS = ("bert-pair", "neo-bert-pair")  # with BERT's tokenizer
QWEN3 = dict(DECODER, head_dim=20, rope_parameters=rope(theta=1000000.0), tie_word_embeddings=True)

MODELS = {
    "bert-pair": lambda: hf.BertForSequenceClassification(hf.BertConfig(**ENCODER, num_attention_heads=4, num_labels=1)),
    "bert-xlmr-pair": lambda: hf.XLMRobertaForSequenceClassification(hf.XLMRobertaConfig(**{
        **ENCODER, "max_position_embeddings": 130, "type_vocab_size": 1, "pad_token_id": 1}, num_attention_heads=4,
        hidden_act="gelu", num_labels=1)),
    "qwen3-label": lambda: hf.Qwen3ForSequenceClassification(hf.Qwen3Config(**QWEN3, num_labels=1)),
    "qwen3-yes": lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**QWEN3)),
    "modern-bert-pair": lambda: modern_bert(hf.ModernBertForSequenceClassification, num_labels=1, classifier_pooling="mean",
                                            hidden_activation="silu"),
    "neo-bert-pair": lambda: neo_bert(reference_models.NeoBERTForSequenceClassification, num_labels=1),
}


def score(model, name, ids):
    """The logit, and the ids as the engine takes them."""
    ids = torch.from_numpy(ids[None])
    if name == "bert-pair":
        segments = (torch.arange(ids.shape[1]) >= ids.shape[1] // 3).long()[None]
        return model(ids, token_type_ids=segments).logits[0, 0], ids + VOCAB * segments
    if name == "qwen3-yes":
        last = model(ids).logits[0, -1]
        return last[YES] - last[NO], ids
    return model(ids).logits[0, 0], ids


def convert(model, name, folder, out):
    hparams = conversion.ModelBase.load_hparams(folder, False)
    arch = conversion.get_model_architecture(hparams, conversion.ModelType.TEXT)
    writer = conversion.get_model_class(arch)(folder, gguf.LlamaFileType.ALL_F32, Path(out), eager=True)

    def set_vocab():
        if name == "bert-pair":  # the converter leaves its layer behind the first row's state out
            writer.vocab_size = VOCAB
            writer.gguf_writer.add_token_type_count(hparams["type_vocab_size"])
            dense = model.bert.pooler.dense
            writer.gguf_writer.add_tensor("cls.weight", dense.weight.float().numpy())
            writer.gguf_writer.add_tensor("cls.bias", dense.bias.float().numpy())
        write_tokenizer(writer.gguf_writer)
    writer.set_vocab = set_vocab
    if name == "qwen3-yes":
        writer.is_rerank, writer.is_tied_embeddings = True, True
        writer.token_true_id, writer.token_false_id = YES, NO
    with torch.inference_mode():
        writer.write()


def write_folder_tokenizer(folder, name):
    """Of as many tokens as the others: bytes, or for BERT letters, and three special ones."""
    first, last = ("[CLS]", "[SEP]") if name in (*WORDS, "modern-bert-pair") else ("<s>", "</s>")
    special = [first, last, "[UNK]"]
    if name in WORDS:
        letters = [chr(33 + i) for i in range(94)]
        words = special + letters + ["##" + c for c in letters]
    else:
        words = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {w: i for i, w in enumerate(words + [f"<unused{i}>" for i in range(VOCAB - len(words))])}
    ends = ((last, vocab[last]), (first, vocab[first]))
    if name in WORDS:
        t = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
        t.normalizer = normalizers.BertNormalizer()
        t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        t.post_processor = processors.BertProcessing(*ends)
    else:
        t = Tokenizer(models.BPE(vocab, []))
        t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        if name == "modern-bert-pair":
            t.post_processor = processors.TemplateProcessing(
                single=f"{first} $A {last}", pair=f"{first} $A {last} $B {last}", special_tokens=[(w, i) for w, i in ends])
        if name == "bert-xlmr-pair":
            t.post_processor = processors.RobertaProcessing(*ends, trim_offsets=False, add_prefix_space=False)
    t.add_special_tokens(special)
    t.save(str(Path(folder, "tokenizer.json")))
    print(name, t.encode("ab", "abc").ids)


FLASH = {"embeddings.LayerNorm": "emb_ln", "attention.output.LayerNorm": "norm1", "attention.output.dense": "mixer.out_proj",
         "intermediate.dense": "mlp.fc1", "output.LayerNorm": "norm2", "output.dense": "mlp.fc2", "encoder.layer.": "encoder.layers."}


def write_flash(source, target):
    """Q, K and V are one tensor, their rows one behind the other, and so their bytes."""
    raw = Path(source, "model.safetensors").read_bytes()
    n = 8 + struct.unpack("<Q", raw[:8])[0]
    tensors = {name: (t["dtype"], t["shape"], raw[n + t["data_offsets"][0]:n + t["data_offsets"][1]])
               for name, t in json.loads(raw[8:n]).items() if name != "__metadata__"}
    head, data = {}, b""
    for name, (dtype, shape, value) in tensors.items():
        if ".self.key." in name or ".self.value." in name:
            continue
        if ".self.query." in name:
            value += b"".join(tensors[name.replace("query", part)][2] for part in ("key", "value"))
            shape, name = [3 * shape[0], *shape[1:]], name.replace("attention.self.query", "mixer.Wqkv")
        for theirs, flash in FLASH.items():
            name = name.replace(theirs, flash)
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(value)]}
        data += value
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    Path(target).mkdir(exist_ok=True)
    Path(target, "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    for name in ("config.json", "tokenizer.json"):
        shutil.copy(Path(source, name), target)


def main():
    folder, wanted = sys.argv[2], sys.argv[3:]
    for number, (name, make) in enumerate(MODELS.items()):
        if wanted and name not in wanted:
            continue
        seed = 250000 + number
        rng = np.random.default_rng(seed)
        model = make().float().eval()
        spread_out(model, torch.Generator().manual_seed(seed))
        round_weights(model, False)
        prompts = []
        with torch.no_grad():
            for n in PROMPT_LENGTHS:
                logit, ids = score(model, name, rng.integers(0, VOCAB, n))
                prompts.append({"ids": ids[0].numpy().astype(np.int32), "logit": np.array([logit], dtype=np.float32)})
        write_expected(f"{folder}/{name}.expect.gguf", prompts)
        with tempfile.TemporaryDirectory() as scratch:
            saved = Path(scratch if name == "qwen3-yes" else f"{folder}/{name}.hf")
            model.to(torch.bfloat16).save_pretrained(saved)
            model.float()
            Path(saved, "generation_config.json").unlink(missing_ok=True)
            write_folder_tokenizer(saved, name)
            if name not in ("qwen3-label", "neo-bert-pair"):  # the converter says first row's state, and not a score
                convert(model, name, saved, f"{folder}/{name}.gguf")
            if name == "bert-xlmr-pair":
                write_flash(saved, f"{folder}/bert-xlmr-flash.hf")
        print(f"{name}: seed {seed}", [float(p["logit"][0]) for p in prompts])


if __name__ == "__main__":
    main()
