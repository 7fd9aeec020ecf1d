"""What llguidance makes of the same files, with the same tokens, and how long its masks take: maskbench's table.

    maskbench_llguidance.py MASKBENCH TOKENIZER_IDS MODEL.gguf FOLDER

MASKBENCH, run with --tokens, says the vocabulary and of each instance its ids; TOKENIZER_IDS the ids of what llguidance asks for on
the way. Times are of the thread's CPU, as there, with what Python adds to a call. Masks are those of the first instance of a file,
which is gone through once before, with another matcher, so that ids need not be asked for while it is timed."""
import json
import pathlib
import struct
import subprocess
import sys
import time

import llguidance
import llguidance.numpy


class Vocabulary:
    """What llguidance asks of a tokenizer."""
    bos_token_id = None

    def __init__(self, lines, encoder):
        self.encoder, self.known = encoder, {}
        kinds, texts = zip(*(line.rstrip("\n").split(" ", 1) for line in lines))
        self.tokens = [bytes.fromhex(text) if kind == "t" else f"<{i}>".encode() for i, (kind, text) in enumerate(zip(kinds, texts))]
        self.special_token_ids = [i for i, kind in enumerate(kinds) if kind != "t"]
        self.ends = [i for i, kind in enumerate(kinds) if kind == "e"]
        self.eos_token_id = self.ends[0]

    def __call__(self, text):
        if text not in self.known:
            self.encoder.stdin.write(struct.pack("=I", len(text)) + text)
            self.encoder.stdin.flush()
            n, = struct.unpack("=I", self.encoder.stdout.read(4))
            self.known[text] = list(struct.unpack(f"={n}I", self.encoder.stdout.read(4 * n)))
        return self.known[text]


class Table:
    def __init__(self):
        self.files = self.passing = self.refused = self.wrong_accepts = self.wrong_rejects = self.broken = 0
        self.read, self.masks, self.first = [], [], []

    def show(self):
        print(f"llguidance {llguidance.__version__}")
        print(f"schemas: {self.files}, passing {self.passing} ({100 * self.passing / max(self.files, 1):.1f} %), refused {self.refused}; "
              f"instances: {self.wrong_accepts} wrong accepts, {self.wrong_rejects} wrong rejects; broken: {self.broken}")
        for what, ns in ("schemas read", self.read), ("masks", self.masks), ("first masks", self.first):
            us = sorted(t / 1e3 for t in ns)
            if us:
                print(f"{what}: {len(us)}, mean {sum(us) / len(us):.1f} us, p50 {us[len(us) // 2]:.1f}, p99 {us[len(us) * 99 // 100]:.1f}, max {us[-1]:.0f}")


def walk(matcher, ids, mask):
    """Token by token, each behind its mask: what the masks took; did they say what taking the token said; were all taken?"""
    times = []
    for token in ids:
        begin = time.thread_time_ns()
        llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
        times.append(time.thread_time_ns() - begin)
        allowed = bool(int(mask[0, token // 32]) >> token % 32 & 1)
        taken = matcher.try_consume_tokens([token]) == 1
        if allowed != taken or not taken:
            return times, allowed == taken, False
    return times, True, True


def timed(table, matcher, ids, mask):
    times, agrees, taken = walk(matcher, ids, mask)
    table.masks += times
    table.first += times[:1]
    table.broken += not agrees
    return taken


def check(table, tokenizer, path, instances):
    mask = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    schema = json.loads(path.read_text())["schema"]
    table.files += 1
    begin = time.thread_time_ns()
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
        matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
        refused = matcher.is_error()
    except ValueError:
        refused = True
    table.read.append(time.thread_time_ns() - begin)
    if refused:
        table.refused += 1
        return
    right = True
    walk(matcher.deep_copy(), instances[0][1] if instances else [], mask)
    for i, (valid, ids) in enumerate(instances):
        m = matcher.deep_copy() if i > 0 else llguidance.LLMatcher(tokenizer, grammar, log_level=0)
        taken = timed(table, m, ids, mask) if i == 0 else m.try_consume_tokens(ids) == len(ids)
        taken = taken and m.is_accepting()
        table.broken += m.is_error()
        table.wrong_accepts += taken and not valid
        table.wrong_rejects += valid and not taken
        right = right and taken == valid
    table.passing += right


def main():
    maskbench, tokenizer_ids, model, folder = sys.argv[1:]
    encoder = subprocess.Popen([tokenizer_ids, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    said = subprocess.Popen([maskbench, "--tokens", model, folder], stdout=subprocess.PIPE, text=True)
    n = int(said.stdout.readline())
    vocabulary = Vocabulary([said.stdout.readline() for _ in range(n)], encoder)
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary), n_vocab=n, eos_token=vocabulary.ends,
                                       slices=llguidance.LLTokenizer.json_slices())
    table, path, instances = Table(), None, []
    for line in [*said.stdout, "file \n"]:
        word, rest = line.rstrip("\n").split(" ", 1)
        if word == "file":
            if path:
                check(table, tokenizer, path, instances)
            path, instances = pathlib.Path(folder, rest), []
        else:
            instances.append((word == "valid", [int(i) for i in rest.split()]))
    if said.wait() != 0:
        sys.exit(f"maskbench_llguidance: {maskbench} --tokens ended with {said.returncode}")
    encoder.stdin.close()
    encoder.wait()
    table.show()


if __name__ == "__main__":
    main()
