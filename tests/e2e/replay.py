"""An agent's session, replayed: 30 turns with calls of tools, edits in the middle, a request for a title after each turn and a second session between. Counts
the prompt tokens that were computed though an earlier request of the session had computed them.

    replay.py [--variant release] [--scale N] [--model FILE]...     make replay
"""
import argparse
import dataclasses
import pathlib
import random
import shutil
import tempfile

import harness

TURNS, ANSWER = 30, 24
MODELS = harness.ROOT / "tests/golden/models"
SHAPES = {"Qwen3.5": MODELS / "qwen35-delta.gguf", "Gemma 3": MODELS / "gemma3-window.gguf"}


@dataclasses.dataclass
class Count:
    requests: int = 0
    prompt: int = 0    # tokens of prompts
    new: int = 0       # those that no earlier request had in the same position
    computed: int = 0  # all computed tokens

    @property
    def again(self):
        return (self.computed - self.new) / self.prompt

    def __str__(self):
        return (f"{self.requests} requests, {self.prompt} prompt tokens, {self.new} new, {self.computed - self.new} computed again: "
                f"{self.again:.2%}")


class Agent:
    """Both sessions, and their counts."""

    def __init__(self, server, scale):
        self.server, self.scale = server, scale
        self.random = random.Random(18)
        self.count = Count()
        self.known = []   # contexts so far, including answers

    def text(self, n):
        return [self.random.randrange(20, 200) for _ in range(n * self.scale)]

    def ask(self, prompt, n_predict=ANSWER):
        """Returns the answer to a prompt of token ids; counts."""
        r = self.server.post("/completion", {"prompt": prompt, "n_predict": n_predict, "return_tokens": True, "temperature": 0,
                                             "ignore_eos": True}, timeout=600)
        assert r.status == 200, r.body
        body = r.json()
        shared = max((common(prompt, other) for other in self.known), default=0)
        self.count.requests += 1
        self.count.prompt += len(prompt)
        self.count.new += len(prompt) - min(shared, len(prompt) - 1)   # the last token is always computed
        self.count.computed += len(prompt) - body["timings"]["cache_n"]
        self.known.append(prompt + body["tokens"])
        return body["tokens"]


def common(a, b):
    n = min(len(a), len(b))
    return next((i for i in range(n) if a[i] != b[i]), n)


def replay(server, scale=1, kill_at=()):
    """Runs everything; kill_at: turns before which the engine is killed and restarted."""
    agent = Agent(server, scale)
    turns = [agent.text(600)]   # system prompt and tools
    other = agent.text(500)
    for turn in range(TURNS):
        if turn in kill_at:
            assert harness.until(lambda: server.metrics()["infcgi_snapshot_pending"] == 0), "snapshots are not written"
            server.engine.kill()
            server.engine.wait()
            server.start_engine()
            server.wait_ready()
        if turn in (10, 20):   # rewrites the history of two turns ago
            del turns[-5:]
            turns.append(agent.text(40))
        turns.append(agent.text(30))           # the user
        turns.append(agent.ask(sum(turns, [])))  # a call
        turns.append(agent.text(70))           # the tool's result
        turns.append(agent.ask(sum(turns, [])))
        agent.ask(agent.text(50), n_predict=8)   # a title
        if turn % 3 == 2:
            other += agent.text(40)
            other += agent.ask(other)
    return agent.count


def run(ctx, model, scale, kills):
    """Runs with a separate server, whose pool is smaller than all contexts."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="infcgi-replay."))
    ctx.cleanups.append(lambda: shutil.rmtree(folder))   # after the server has ended
    n_ctx = 8192 * scale
    long = harness.with_context(model, n_ctx, folder) if MODELS in pathlib.Path(model).parents else model
    snapshots = ["--cache-dir", str(folder / "kv")] if kills else []
    server = ctx.start("--threads", "2", "--ctx-size", str(n_ctx), "--kv-tokens", str(n_ctx), *snapshots, model=long)
    return replay(server, scale, (8, 15, 22) if kills else ())


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--variant", default="release")
    args.add_argument("--scale", type=int, default=1)
    args.add_argument("--model", action="append", help="GGUF file, beside the golden ones")
    args = args.parse_args()
    ctx = harness.Context(args.variant)
    models = {**SHAPES, **{pathlib.Path(m).name: m for m in args.model or [ctx.model]}}
    bad = 0
    for name, model in models.items():
        for kills in (False, True):
            try:
                count = run(ctx, model, args.scale, kills)
            finally:
                ctx.after_test()
            bad += count.again > 0.02
            print(f"{name}{', killed three times' if kills else ''}: {count}", flush=True)
    raise SystemExit(bad != 0)


if __name__ == "__main__":
    main()
