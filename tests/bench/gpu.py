"""`make bench-gpu`: what a device does, as Markdown to paste into docs/benchmarks.md: `infcgi devices`, `infcgi bench`, and with a
`llama-bench` (a Vulkan build) both programs in turns, A B A B, as medians and their ratio."""
import argparse
import json
import statistics
import subprocess
import sys

import programs

TESTS = ("pp512", "tg128")


def rows(command):
    """Tokens a second of each test, from a program that prints llama-bench's JSON."""
    found = {}
    for row in json.loads(programs.run(command)):
        name = f"pp{row['n_prompt']}" if row["n_prompt"] else f"tg{row['n_gen']}"
        found[name] = (row["avg_ts"], row)
    return found


def commands(o):
    prompt, gen = (t[2:] for t in TESTS)
    yield "infcgi", [o.infcgi, "bench", "--model", o.model, "--backend", "opencl", "--device", o.device, "-p", prompt, "-n", gen, "-r", "2",
                     "-o", "json"]
    if o.llama_bench:
        yield "llama.cpp", [o.llama_bench, "-m", o.model, "-ngl", "99", "-fa", "1", "-p", prompt, "-n", gen, "-r", "2", "-o", "json"]


def measure(o):
    """{name: {test: [tokens a second, a round each]}} and the last row of infcgi's decoding."""
    speeds, last = {}, {}
    for _ in range(o.rounds):
        for name, command in commands(o):
            for test, (speed, row) in rows(command).items():
                speeds.setdefault(name, {}).setdefault(test, []).append(speed)
                last = row if name == "infcgi" and test == TESTS[1] else last
    return speeds, last


def cell(values):
    return f"{statistics.median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def table(speeds):
    names = list(speeds)
    yield "| test | " + " | ".join(f"{n}, tokens/s" for n in names) + (" | ratio |" if len(names) > 1 else " |")
    yield "|---|" + "---:|" * (len(names) + (len(names) > 1))
    for test in TESTS:
        cells = [speeds[n][test] for n in names]
        ratio = f" {statistics.median(cells[0]) / statistics.median(cells[1]):.2f} |" if len(names) > 1 else ""
        yield f"| {test} | " + " | ".join(cell(c) for c in cells) + " |" + ratio


def counted(row, speed):
    """What a decoded token makes the device do; nothing where the back end does not count."""
    if "launches" not in row:
        return
    steps = row["n_gen"]
    bytes_s = (row["weight_bytes"] + row["cache_bytes"]) / steps * speed
    yield ""
    yield (f"A decoded token: {row['launches'] / steps:.0f} launches, {row['weight_bytes'] / steps / 1e6:.1f} MB of weights, "
           f"{row['cache_bytes'] / steps / 1e6:.2f} MB of keys and values; {bytes_s / 1e9:.1f} GB/s"
           + (f", {100 * bytes_s / row['copy_bytes_s']:.0f} % of what the device copies at ({row['copy_bytes_s'] / 1e9:.0f} GB/s). "
              f"A launch: {row['launch_us']:.1f} us alone, {row['queued_launch_us']:.1f} us of many." if "copy_bytes_s" in row else "."))


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--infcgi", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--device", default="auto")
    p.add_argument("--llama-bench", default="")
    p.add_argument("--rounds", type=int, default=3)
    o = p.parse_args()
    if o.rounds < 1:
        p.error("--rounds: expected 1 or more")
    try:
        print("```\n" + programs.run([o.infcgi, "devices"]).rstrip() + "\n```\n")
        speeds, last = measure(o)
    except (programs.Failed, OSError, ValueError, subprocess.SubprocessError) as e:
        print(f"error: bench-gpu: {e}", file=sys.stderr)
        return 1
    print("\n".join([f"{o.model.rsplit('/', 1)[-1]}, {o.rounds} rounds in turns: medians (lowest to highest).", "", *table(speeds),
                     *counted(last, statistics.median(speeds["infcgi"][TESTS[1]]))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
