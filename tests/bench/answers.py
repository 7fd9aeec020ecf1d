#!/usr/bin/env python3
"""Writes down what a server answers to 200 prompts, with the log-probability of each token; or compares two such files.

    answers.py http://127.0.0.1:8080 OUT.jsonl
    answers.py --compare BEFORE.jsonl AFTER.jsonl

For changes that must not move a bit: run it with the program before and the program after, on one machine. The prompts are
questions, code and words in random order, 4 to 400 of them, half as a chat, half greedy and half drawn with a seed; 8 are asked
at once. Goes to loopback addresses alone. Standard library only. Exit status: 1 when an answer differs, 2 when a server fails.
"""
import json
import random
import sys
import threading

from http_load import WORDS, Failed, Server

N_PROMPTS, N_STREAMS, MAX_TOKENS = 200, 8, 48
TOPICS = ("the tides of the sea", "a sorting algorithm", "bread", "prime numbers", "nginx", "the moon", "recursion in C", "tea",
          "a haiku about rain", "how a bicycle stays upright")
ASKS = ("Explain {} in two sentences.", "Was ist an {} wichtig?", "Write a short story about {}.", "List five facts about {}.",
        "def about(topic=\"{}\"):\n    \"\"\"")


def prompts():
    rng = random.Random(200)
    for i in range(N_PROMPTS):
        if i % 4 == 3:
            yield i, " ".join(rng.choice(WORDS) for _ in range(rng.randint(4, 400)))
        else:
            yield i, ASKS[i // 10 % len(ASKS)].format(TOPICS[i % len(TOPICS)]) + " " * (i // 50)


def request(i, prompt):
    body = {"max_tokens": MAX_TOKENS, "seed": i}
    body.update({"temperature": 0} if i % 2 == 0 else {"temperature": 0.8, "top_p": 0.95})
    if i % 4 < 2:
        body.update(messages=[{"role": "user", "content": prompt}], logprobs=True, top_logprobs=5)
        return "/v1/chat/completions", body
    body.update(prompt=prompt, logprobs=5)
    return "/v1/completions", body


def ask(server, i, prompt):
    path, body = request(i, prompt)
    choice = server.ask("POST", path, body)["choices"][0]
    return {"id": i, "text": choice["text"] if "text" in choice else choice["message"]["content"], "logprobs": choice["logprobs"],
            "finish_reason": choice["finish_reason"]}


def write(url, path):
    server, left, found, failed = Server("server=" + url, 600), list(prompts()), {}, []

    def work():
        while left and not failed:
            try:
                i, prompt = left.pop(0)
                found[i] = ask(server, i, prompt)
            except IndexError:
                return
            except (Failed, KeyError) as e:
                failed.append(e)

    threads = [threading.Thread(target=work) for _ in range(N_STREAMS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise Failed(str(failed[0]))
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(json.dumps(found[i], sort_keys=True) + "\n" for i in sorted(found))
    print(f"{len(found)} answers")


def compare(before, after):
    with open(before, encoding="utf-8") as a, open(after, encoding="utf-8") as b:
        a, b = a.readlines(), b.readlines()
    other = [i for i in range(max(len(a), len(b))) if i >= len(a) or i >= len(b) or a[i] != b[i]]
    print(f"{len(a)} and {len(b)} answers, {len(other)} differ" + (f": the first is {other[0]}" if other else ""))
    return 1 if other or not a else 0


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--compare":
        return compare(sys.argv[2], sys.argv[3])
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    write(sys.argv[1], sys.argv[2])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as e:
        print(f"answers.py: {e}", file=sys.stderr)
        sys.exit(2)
