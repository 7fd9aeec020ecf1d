#!/usr/bin/env python3
"""Times OpenVINO GenAI on a GGUF file. Its own Python runs this for peers.py, which describes the result.

    openvino_bench.py --model FILE --threads N [--properties JSON] --cells JSON [--runs N]
    openvino_bench.py --model FILE --threads N [--properties JSON] --first PROMPT

It keeps the keys and values of earlier prompts. So every run has a new random prompt, of exactly so many tokens.
"""
import argparse
import json
import random
import sys

import numpy as np
import openvino as ov
import openvino_genai as genai

FIRST_ID = 256  # ids below can be special tokens


def generation(n_tokens):
    config = genai.GenerationConfig()
    config.max_new_tokens = config.min_new_tokens = n_tokens
    config.ignore_eos, config.do_sample, config.apply_chat_template = True, False, False
    return config


class Pipeline:
    """A loaded model."""

    def __init__(self, o):
        properties = json.loads(o.properties)
        if properties.get("ATTENTION_BACKEND", "PA") == "PA":
            scheduler = genai.SchedulerConfig()
            scheduler.enable_prefix_caching = True
            scheduler.max_num_batched_tokens = 1 << 16  # a prompt in one step
            properties["scheduler_config"] = scheduler
        self.pipeline = genai.LLMPipeline(o.model, "CPU", INFERENCE_NUM_THREADS=o.threads, **properties)
        self.n_vocab = len(self.pipeline.get_tokenizer().get_vocab())

    def prompts(self, rows, n):
        return np.array([[random.randrange(FIRST_ID, self.n_vocab) for _ in range(n)] for _ in range(rows)], dtype=np.int64)

    def generate(self, ids, n_tokens):
        inputs = genai.TokenizedInputs(ov.Tensor(np.ascontiguousarray(ids)), ov.Tensor(np.ones_like(ids)))
        return self.pipeline.generate(inputs, generation(n_tokens)).perf_metrics

    def prefill(self, n, depth):
        """Tokens a second of a prompt. With depth after so many tokens, which the run before computed."""
        context = self.prompts(1, depth)
        if depth:
            self.generate(context, 1)
        metrics = self.generate(np.concatenate([context, self.prompts(1, n)], axis=1), 1)
        return 1000 * n / metrics.get_ttft().mean

    def decode(self, n, depth, streams):
        """Tokens a second of all streams, after the first token of each."""
        metrics = self.generate(self.prompts(streams, max(depth, 1)), n + 1)
        micros = metrics.raw_metrics.m_durations  # of each token; a step's time is divided among its streams
        if len(micros) != n * streams:
            sys.exit(f"error: expected times of {n * streams} tokens, found {len(micros)}")
        return 1e6 * len(micros) / sum(micros)

    def speeds(self, cell, runs):
        """Of each run, after one that is not counted."""
        def once():
            if cell["prompt"]:
                return self.prefill(cell["prompt"], cell["depth"])
            return self.decode(cell["gen"], cell["depth"], cell["seqs"])
        once()
        return [once() for _ in range(runs)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--properties", default="{}")
    parser.add_argument("--cells", default="[]")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--first")
    o = parser.parse_args()
    try:
        pipeline = Pipeline(o)
        if o.first is not None:
            config = generation(1)
            pipeline.pipeline.generate(o.first, config, lambda text: print(text, end="", flush=True))
            return
        speeds = [pipeline.speeds(cell, o.runs) for cell in json.loads(o.cells)]
    except (RuntimeError, LookupError, ValueError) as e:
        lines = [line.strip() for line in str(e).splitlines() if line.strip()]
        sys.exit(f"error: {type(e).__name__}: {lines[-1] if lines else 'without a message'}")
    print(json.dumps({"version": genai.__version__, "speeds": speeds}))


if __name__ == "__main__":
    main()
