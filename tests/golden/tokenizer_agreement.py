#!/usr/bin/env python3
"""Our token ids against those of Hugging Face's tokenizers, on the same vocabularies and the same mixed text.

    tokenizer_agreement.py TOKENIZER_IDS FOLDER [MODEL.gguf...] [--mb 10] [--words-mb 1] [--only NAME]

TOKENIZER_IDS is the program of tokenizer_ids.c, FOLDER holds ggml-vocab-*.gguf (tokenizer_vectors.sh), each MODEL is a
vocabulary to be compared besides. The other side is put together from the arrays in the file and the rules that the
original tokenizer.json holds, written down below. Every pre-tokenizer's words are compared too, with the expressions run
by Oniguruma. Text is made from a fixed seed, this repository's pages and sources, and the vocabulary's own tokens; it
leaves out the few characters that tokenizers itself does not know yet (its tables are of Unicode 8 and 9). Prints a line each; exit status 1 when anything differs.
"""
import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile
import unicodedata

import gguf
import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
TEXT_BYTES = 6000

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?")

# What we run in another wording than the original; all other expressions are asked of the program.
ORIGINALS = {
    "jais-2": [LLAMA3.replace(r"|\s+(?!\S)|\s+", "") + "".join(r"|\s{%d}(?!\S)" % (1 << i) for i in range(9, 1, -1)) +
               r"|\s{1,2}(?!\S)|\s{1}"],
    "exaone-moe": [r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}"
                   r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"],
    "gpt-4o": [CASED + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
}


def byte_level(*before):
    return pre_tokenizers.Sequence([*before, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def split(regex):
    return pre_tokenizers.Split(Regex(regex), "isolated")


# Normalizer and pre-tokenizer as published, by the name in the file.
BYTE_BPE = {
    "smollm": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                              pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])),
    "qwen2": (normalizers.NFC(), byte_level(split(QWEN2))),
    "llama-bpe": (None, byte_level(split(LLAMA3))),
    "gpt-2": (None, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)),
}


# --- the other side ----------------------------------------------------------------------------------------------------


class Vocabulary:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.fields = reader.fields
        self.model = self.text("tokenizer.ggml.model")
        self.pre = self.text("tokenizer.ggml.pre")
        self.tokens = self.strings("tokenizer.ggml.tokens")
        self.kinds = self.numbers("tokenizer.ggml.token_type") or [NORMAL] * len(self.tokens)

    def text(self, key):
        return self.fields[key].contents() if key in self.fields else None

    def strings(self, key):
        field = self.fields[key]
        return [bytes(field.parts[i]).decode("utf-8") for i in field.data]

    def numbers(self, key):
        field = self.fields.get(key)
        return None if field is None else [field.parts[i][0].item() for i in field.data]

    def ids(self):
        ids = {}
        for i, token in enumerate(self.tokens):
            ids.setdefault(token, i)
        return ids

    def words(self):
        """Texts that plain tokens stand for, to make text of."""
        if self.model == "gpt2":
            shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
            table = {chr(b): b for b in shown}
            table |= {chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in shown)}
            for token, kind in zip(self.tokens, self.kinds):
                if kind == NORMAL and all(c in table for c in token):
                    yield bytes(table[c] for c in token).decode("utf-8", "ignore")
        else:
            for token, kind in zip(self.tokens, self.kinds):
                if kind == NORMAL:
                    yield token.replace("\u2581", " ")

    def build(self):
        build = {"gpt2": self.byte_bpe, "gemma4": self.spelt_bpe, "llama": self.scored_bpe, "bert": self.wordpiece,
                 "t5": self.unigram, "whitespace": self.whitespace}[self.model]
        tokenizer = build()
        user = [AddedToken(t, normalized=False) for t, k in zip(self.tokens, self.kinds) if k == USER_DEFINED]
        tokenizer.add_tokens(user)
        return tokenizer

    def merges(self):
        return [tuple([m[:m.index(" ", 1)], m[m.index(" ", 1) + 1:]]) for m in self.strings("tokenizer.ggml.merges")]

    def byte_bpe(self):
        whole = self.pre == "llama-bpe"
        tokenizer = Tokenizer(models.BPE(self.ids(), self.merges(), ignore_merges=whole))
        normalizer, tokenizer.pre_tokenizer = BYTE_BPE[self.pre]
        if normalizer is not None:
            tokenizer.normalizer = normalizer
        return tokenizer

    def spelt(self, merges):
        unknown = next(t for t, k in zip(self.tokens, self.kinds) if k == UNKNOWN or t == "<unk>")
        tokenizer = Tokenizer(models.BPE(self.ids(), merges, unk_token=unknown, byte_fallback=True, fuse_unk=True))
        rules = [normalizers.Replace(" ", "\u2581")]
        if self.fields.get("tokenizer.ggml.add_space_prefix") is None or self.text("tokenizer.ggml.add_space_prefix"):
            rules.insert(0, normalizers.Prepend("\u2581"))
        tokenizer.normalizer = normalizers.Sequence(rules)
        return tokenizer

    def spelt_bpe(self):
        return self.spelt(self.merges())

    def whitespace(self):
        tokenizer = Tokenizer(models.BPE(self.ids(), self.merges(), unk_token="<unk>"))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        return tokenizer

    def scored_bpe(self):
        """Merges out of scores, as transformers makes them: every cut of a token into two tokens, best token first."""
        scores, ids, merges = self.numbers("tokenizer.ggml.scores"), self.ids(), []
        plain = {t for t, k in zip(self.tokens, self.kinds) if k in (NORMAL, USER_DEFINED)}
        for i, token in enumerate(self.tokens):
            if token in plain and ids[token] == i:
                cuts = [(token[:k], token[k:]) for k in range(1, len(token))]
                merges += [(-scores[i], ids[a], ids[b], a, b) for a, b in cuts if a in plain and b in plain]
        return self.spelt([(a, b) for *_, a, b in sorted(merges)])

    def wordpiece(self):
        def spelling(token):
            if token.startswith("\u2581"):
                return token[1:]
            return token if token.startswith("[") and token.endswith("]") else "##" + token
        ids = {spelling(t): i for i, t in enumerate(self.tokens)}
        tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
        tokenizer.normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=True, lowercase=True)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        return tokenizer

    def unigram(self):
        scores = self.numbers("tokenizer.ggml.scores")
        lowest = min(s for s, k in zip(scores, self.kinds) if k == NORMAL)
        pieces = [(t, s if k == NORMAL else lowest) for t, s, k in zip(self.tokens, scores, self.kinds)]
        tokenizer = Tokenizer(models.Unigram(pieces, self.text("tokenizer.ggml.unknown_token_id"), False))
        charsmap = bytes(self.numbers("tokenizer.ggml.precompiled_charsmap"))
        tokenizer.normalizer = normalizers.Precompiled(charsmap)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(),
                                                           pre_tokenizers.Metaspace()])
        return tokenizer


# --- text --------------------------------------------------------------------------------------------------------------

BLOCKS = [(0x20, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x370, 0x530), (0x590, 0x700), (0x900, 0xE00), (0xE00, 0x1000),
          (0x1000, 0x1200), (0x1780, 0x1800), (0x1E00, 0x2000), (0x2000, 0x2070), (0x2070, 0x2C00), (0x3000, 0x3100),
          (0x3130, 0x3190), (0x3400, 0x3500), (0x4E00, 0x9FA0), (0xA000, 0xA4D0), (0xAC00, 0xD7A0), (0xF900, 0xFB00),
          (0xFB50, 0xFE00), (0xFE00, 0xFE10), (0xFF00, 0xFFF0), (0x10000, 0x10100), (0x1D400, 0x1D800),
          (0x1F000, 0x1F700), (0x1F900, 0x1FA00), (0x20000, 0x20100)]
SPACES = [" ", "  ", "   ", "\n", "\n\n", "\r\n", "\t", " \n", "\n ", "\u00a0", "\u3000", "\u2028", "\u0085", "\v"]
BITS = ["'s", "'S", "'re", "'LL", "'d", "\u2019s", "don't", "I'M", "1", "12", "123", "1234567", "3.14", "10,000", "0x1F",
        "x=1;", "foo_bar", "CamelCase", "HTTPServer", "e\u0301", "a\u0300\u0323", "n\u0303o", "\u1100\u1161\u11a8",
        "\u0928\u093c", "\u212b", "\u2126", "\ufb01", "\u00bd", "\u00b2", "\u2460", "\u0661\u0662\u0663", "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd", "\u2764\ufe0f", "!!!", "...", "----", "====", "/*", "*/", "//", "</p>",
        "https://a.b/c?d=e&f", "\u4f60\u597d", "\u3053\u3093\u306b\u3061\u306f", "\uc548\ub155", "\u043f\u0440\u0438\u0432\u0435\u0442", "\u0645\u0631\u062d\u0628\u0627", "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
        "\u0130stanbul", "stra\u00dfe", "\u01c5", "\u1e9e", "\uff21\uff42\uff11", "\uff76\uff9e", "(\u682a)", "\u3231", "\u200b", "\ufeff", "\u00ad"]


def unknown_characters():
    """Marks, punctuation and format characters that tokenizers' own tables do not have as such."""
    normalizer = normalizers.BertNormalizer(clean_text=True, handle_chinese_chars=False, lowercase=False,
                                            strip_accents=True)
    pre = pre_tokenizers.BertPreTokenizer()
    unknown = set()
    for c in map(chr, range(0x80, 0x30000)):
        category = unicodedata.category(c)
        if category in ("Cn", "Co", "Cs"):
            continue
        text = normalizer.normalize_str("a" + c + "b")
        is_dropped = text == "ab"
        if is_dropped != (category in ("Mn", "Cf", "Cc") or c == "\ufffd"):
            unknown.add(c)
        elif not is_dropped and category[0] == "P" and len(pre.pre_tokenize_str(text)) != 3:
            unknown.add(c)
    unknown |= {"\u166d"}  # was punctuation until Unicode 12
    return dict.fromkeys(map(ord, unknown))


def random_character(r):
    while True:
        c = chr(r.randrange(*r.choice(BLOCKS)))
        if unicodedata.category(c) not in ("Cn", "Cs", "Co", "Cc"):
            return c


def pieces(r, words, pages):
    """Endless text: one of the makers for a while, then another."""
    while True:
        maker = r.randrange(7)
        for _ in range(r.randrange(1, 40)):
            if maker == 0:
                yield r.choice(words)
            elif maker == 1:
                yield r.choice(words).strip() + r.choice(SPACES[:8] + [" "] * 20)
            elif maker == 2:
                yield r.choice(BITS) + r.choice(["", "", " ", r.choice(SPACES)])
            elif maker == 3:
                yield "".join(random_character(r) for _ in range(r.randrange(1, 12))) + r.choice(["", " "])
            elif maker == 4:
                yield r.choice([random_character(r), " ", "\n", "a", "Z", "0", "-", "."]) * r.randrange(1, 60)
            elif maker == 5:
                page = r.choice(pages)
                at = r.randrange(max(1, len(page) - 400))
                yield page[at:at + r.randrange(20, 400)]
            else:
                yield "".join(r.choice(SPACES + ["a", "1", "!", "\u4e2d", "'", "s"]) for _ in range(r.randrange(1, 12)))


def make_texts(n_bytes, words, forbidden, seed):
    pages = []
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    for pattern in ("README.md", "CHANGELOG.md", "docs/**/*.md", "engine/**/*.[ch]", "tests/golden/*.py"):
        for path in sorted(glob.glob(os.path.join(root, pattern), recursive=True)):
            with open(path, encoding="utf-8") as f:
                pages.append(f.read())
    r = random.Random(seed)
    unknown = unknown_characters()
    texts, text, size, total = [], [], 0, 0
    for piece in pieces(r, words, pages):
        text.append(piece)
        size += len(piece.encode("utf-8"))
        if size >= TEXT_BYTES:
            whole = "".join(text).translate(unknown)
            for special in forbidden:
                whole = whole.replace(special, "")
            if not any(special in whole for special in forbidden):
                texts.append(whole)
                total += len(whole.encode("utf-8"))
            text, size = [], 0
            if total >= n_bytes:
                return texts


# --- a vocabulary of our own ----------------------------------------------------------------------------------------


def train_whitespace(path, texts):
    """Vocabulary of the model "whitespace", which no published file is small enough to show."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=20000, limit_alphabet=4000,
                                                             special_tokens=["<unk>"], show_progress=False))
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_tokenizer_model("whitespace")
    writer.add_tokenizer_pre("whitespace")
    writer.add_token_list(tokens)
    writer.add_token_types([UNKNOWN if t == "<unk>" else NORMAL for t in tokens])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    writer.add_unk_token_id(tokens.index("<unk>"))
    writer.add_bool("tokenizer.ggml.normalizer.lowercase", True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


# --- comparing ---------------------------------------------------------------------------------------------------------


def ours(arguments, texts):
    encoded = [t.encode("utf-8") for t in texts]
    blob = b"".join(len(t).to_bytes(4, sys.byteorder) + t for t in encoded)
    out = np.frombuffer(subprocess.run(arguments, input=blob, stdout=subprocess.PIPE, check=True).stdout, dtype=np.uint32)
    lists, at = [], 0
    while at < len(out):
        n = int(out[at])
        lists.append(out[at + 1:at + 1 + n].tolist())
        at += 1 + n
    return lists


def report(name, texts, left, right, unit):
    n_bytes = sum(len(t.encode("utf-8")) for t in texts)
    wrong = [i for i, (a, b) in enumerate(zip(left, right)) if a != b]
    bad = len(wrong) > 0 or len(left) != len(right)
    total = sum(map(len, right))
    print(f"{'FAILED' if bad else 'passed':7} {name:34} {n_bytes / 1e6:6.2f} MB, {len(texts)} texts, {total} {unit}, "
          f"{len(wrong)} texts differ", flush=True)
    for i in wrong[:3]:
        k = next((k for k, (a, b) in enumerate(zip(left[i], right[i])) if a != b), min(len(left[i]), len(right[i])))
        print(f"        text {i} from {unit[:-1]} {k}: expected {right[i][k:k + 8]}, found {left[i][k:k + 8]}")
        yield i, k
    if bad and not wrong:
        yield -1, 0


def compare_vocabulary(program, path, n_bytes):
    v = Vocabulary(path)
    forbidden = [t for t, k in zip(v.tokens, v.kinds) if k in (CONTROL, UNKNOWN) and t]
    words = [w for w in dict.fromkeys(v.words()) if w]
    texts = make_texts(n_bytes, words, forbidden, 20261122)
    tokenizer = v.build()
    right = []
    for from_ in range(0, len(texts), 200):
        right += [e.ids for e in tokenizer.encode_batch_fast(texts[from_:from_ + 200], add_special_tokens=False)]
    left = ours([program, path], texts)
    bad = False
    for i, k in report(os.path.basename(path), texts, left, right, "tokens"):
        bad = True
        near = lambda ids: "".join(v.tokens[t] for t in ids[max(0, k - 3):k + 4])
        if i >= 0:
            print(f"        near {near(right[i])!r} and {near(left[i])!r}")
    return bad


def compare_words(program, name, texts):
    patterns = ORIGINALS.get(name) or subprocess.run([program, "--patterns", name], stdout=subprocess.PIPE, check=True,
                                                     encoding="utf-8").stdout.splitlines()
    patterns = [p.replace("(?<!\\s)\\s+$", "\\s+$") for p in patterns]
    pre = pre_tokenizers.Sequence([split(p) for p in patterns])
    right = []
    for text in texts:
        ends, at = [], 0
        for word, _ in pre.pre_tokenize_str(text):
            at += len(word.encode("utf-8"))
            ends.append(at)
        right.append(ends)
    left = ours([program, "--words", name], texts)
    bad = False
    for i, k in report("words of " + name, texts, left, right, "words"):
        bad = True
        if i >= 0:
            at = right[i][k - 1] if k > 0 else 0
            print(f"        near {texts[i].encode('utf-8')[max(0, at - 20):at + 30].decode('utf-8', 'replace')!r}")
    return bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--mb", type=float, default=10)
    parser.add_argument("--words-mb", type=float, default=1)
    parser.add_argument("--only", default="")
    a = parser.parse_args()
    bad = 0
    words = [w for w in Vocabulary(os.path.join(a.folder, "ggml-vocab-llama-bpe.gguf")).words() if w]
    words = list(dict.fromkeys(words))
    names = ["qwen2", "llama-bpe", "gemma-4", "bert-bge", "nomic-bert-moe", "gpt-2"]
    for path in a.models + [os.path.join(a.folder, f"ggml-vocab-{n}.gguf") for n in names]:
        if a.only in path:
            bad += compare_vocabulary(a.program, path, a.mb * 1e6)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "whitespace.gguf")
        if a.only in path:
            train_whitespace(path, make_texts(2e6, words, [], 5))
            bad += compare_vocabulary(a.program, path, a.mb * 1e6)
    if a.words_mb > 0:
        texts = make_texts(a.words_mb * 1e6, words, [], 7)
        listed = subprocess.run([a.program, "--names"], stdout=subprocess.PIPE, check=True, encoding="utf-8").stdout
        seen = set()
        for name in listed.split():
            patterns = subprocess.run([a.program, "--patterns", name], stdout=subprocess.PIPE, check=True).stdout
            if patterns and patterns not in seen and a.only in name:
                seen.add(patterns)
                bad += compare_words(a.program, name, texts)
    print("0 differences" if bad == 0 else f"{bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
