#!/usr/bin/python3
"""Checks the CSV file, the crashes and the failures of `make bench-peer`, with scripts instead of the programs. Last line: N passed, N failed."""
import csv
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import machine  # noqa: E402
import peer_rows  # noqa: E402
from programs import Failed  # noqa: E402

PUBLISHED = HERE.parents[1] / "docs/benchmarks/peer.csv"

# infcgi reads 1 GB and does 512 Gop in each run of 0.25 s, of which the machine can do four and eight times as much.
INFCGI = r"""#!/bin/bash
case "$*" in
--version) echo 'infcgi 9.9' ;;
*--help) echo '-ctk --pack-cache' ;;
generate*) echo word ;;
*'-p 0 '*) kv=i16; [[ $* != *q8_0* ]] || kv=q8_0
    for s in $(sed -E 's/.* -s ([0-9,]+).*/\1/; s/,/ /g' <<<"$*"); do
        rows+="{\"n_prompt\": 0, \"n_gen\": 64, \"n_seqs\": $s, \"read_bytes\": 1e9, \"matmul_ops\": 512e9, \"type_k\": \"$kv\", \"samples_ns\": [250000000]},"
    done
    echo "[${rows%,}]" ;;
*) for n in '512, "n_gen": 0' '0, "n_gen": 64'; do
        rows+="{\"n_prompt\": $n, \"read_bytes\": 1e9, \"matmul_ops\": 512e9, \"type_k\": \"i16\", \"samples_ns\": [250000000]},"
    done
    echo "[${rows%,}]" ;;
esac
"""
CHECKKERN = """#!/bin/sh
echo '{"int8_gops": 16384, "read_gbs": 16}'
"""
# Twice as slow as infcgi, with the first setting of each kind faster than the others.
BENCH = r"""#!/bin/bash
[[ $* == *'-fa on --repack 1 -ub 512'* || $* == *'-fa on --repack 1 -r'* ]] && ns=500000000 || ns=1000000000
for n in '512, "n_gen": 0' '0, "n_gen": 64'; do rows+="{\"build_number\": 77, \"n_prompt\": $n, \"samples_ns\": [$ns]},"; done
echo "[${rows%,}]"
"""
IK_BENCH = BENCH.replace("-fa on --repack", "-fa 1 -rtr").replace(r'\"build_number\": 77', r'\"build_commit\": \"abc1234\"')
IK_BENCH = IK_BENCH.replace("\nfor n", "\nif [[ $* == *'-gp 4096,64'* ]]; then echo '[{\"n_prompt\": 4096, \"n_gen\": 64, \"samples_ns\": [500000000]}]'; exit; fi\nfor n")
# One line for each number of streams: the first, which warms up, is slow.
STREAMS = r"""#!/bin/bash
[[ $* == *'-fa on'*'--no-repack --kv-unified'* ]] && speed=512 || speed=256
for n in $(sed -E 's/.*-npl ([0-9,]+).*/\1/; s/,/ /g' <<<"$*"); do echo "{\"pl\": $n, \"speed_tg\": $((n == last ? speed : 1))}"; last=$n; done
"""
IK_STREAMS = r"""#!/bin/bash
[[ $* == *'-fa 0'*'-rtr --log-disable' ]] && speed=512.00 || speed=256.00
echo '|  PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |' >&2
echo '|-----|----|---|------|--------|----------|--------|----------|-----|-------|' >&2
for n in $(sed -E 's/.*-npl ([0-9,]+).*/\1/; s/,/ /g' <<<"$*"); do echo "|  16 | 64 | $n | 320 | 0.1 | 640.0 | 0.5 | $speed | 0.6 | 533.3 |" >&2; done
"""
SWEEP = r"""#!/bin/bash
[[ $* == *'-c 4608 -ub 512'*'--sweep-stride 8 -fa 1 -rtr --log-disable'* ]] && t=0.5 || t=1.0
echo '{"n_kv": 0, "t_pp": 9.0}' >&2
echo "{\"n_kv\": 4096, \"t_pp\": $t}" >&2
"""
FIRST = "#!/bin/sh\necho word\n"
CRASH = "#!/bin/bash\nkill -ILL $$\n"
CRASH_ON_FA = "#!/bin/bash\n[[ $* != *'-fa on'* ]] || { echo '/src/a.cpp:7: GGML_ASSERT(S > 0) failed' >&2; kill -SEGV $$; }\n" + BENCH.removeprefix("#!/bin/bash\n")
NO_LOAD = "#!/bin/sh\necho 'loading' >&2; echo \"error: unknown architecture 'x' | y\" >&2; echo 'main: gave up' >&2; exit 1\n"

passed = failed = 0


def check(name, is_right, found=""):
    global passed, failed
    if is_right:
        passed += 1
    else:
        failed += 1
        print(f"FAIL {name}: {found}")


class Bench:
    """A folder with programs, and runs of peer.py on them."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.model = self.folder / "Tiny-1B.Q4_1-Q8_0.gguf"
        self.model.write_bytes(bytes(1000))
        for name, text in (("infcgi", INFCGI), ("checkkern", CHECKKERN)):
            self.script(name, text)
        for name, text in (("good", BENCH), ("ik", IK_BENCH), ("crash", CRASH), ("crash-fa", CRASH_ON_FA), ("no-load", NO_LOAD)):
            self.script(f"{name}/llama-bench", text)
        for name, text in (("good/llama-batched-bench", STREAMS), ("good/llama-completion", FIRST), ("ik/llama-batched-bench", IK_STREAMS),
                           ("ik/llama-sweep-bench", SWEEP), ("ik/llama-cli", FIRST)):
            self.script(name, text)

    def script(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run(self, *options, peers="llama.cpp", only="shallow", **folders):
        env = {**os.environ, "PEER_BIN": "", "IK_BIN": "", "OV_BIN": "", **folders}
        return subprocess.run([sys.executable, HERE / "peer.py", "--infcgi", self.folder / "infcgi", "--checkkern", self.folder / "checkkern",
                               "--rounds", "2", "--threads", "3", "--watch", "0.01", "--only", only, "--peers", peers, "--machine", "here",
                               "--command", "make bench-peer", *options, self.model], capture_output=True, text=True, env=env, timeout=300)

    def rows(self, name, *options, **how):
        """Rows of the CSV file of a run, and what it printed."""
        path = self.folder / name
        done = self.run("--csv", path, *options, **how)
        check(f"{name}: ends well", done.returncode == 0, done.stdout + done.stderr)
        with open(path, encoding="utf-8", newline="") as f:
            return list(csv.DictReader(f)), done

    def bin(self, *names):
        return ":".join(str(self.folder / name) for name in names)


def check_rows(bench):
    rows, done = bench.rows("good.csv", PEER_BIN=bench.bin("good"))
    header = PUBLISHED.read_text(encoding="utf-8").splitlines()[0]
    check("the columns are the published ones", (bench.folder / "good.csv").read_text().splitlines()[0] == header)
    wanted = {"machine": "here", "cpu": machine.cpu()[0], "threads": "3", "model": "Tiny-1B", "quant": "Q8_0", "file_bytes": "1000",
              "test": "pp512", "kv": "i16 / f16", "unit": "tokens/s", "infcgi": "2048.0", "infcgi_min": "2048.0", "infcgi_max": "2048.0",
              "peer": "llama.cpp b77", "peer_value": "1024.0", "peer_min": "1024.0", "peer_max": "1024.0", "ratio": "2.00",
              "infcgi_read_gb_s": "", "infcgi_read_percent": "", "infcgi_int8_top_s": "2.05", "infcgi_int8_percent": "12",
              "command": "make bench-peer"}
    for key, value in wanted.items():
        check(f"the column {key}", rows[0][key] == value, rows[0][key])
    check("the setting", rows[0]["peer_setting"].startswith("-fa on --repack 1 -ub 512"), rows[0]["peer_setting"])
    decode = rows[1]
    check("decode", [decode[k] for k in ("test", "infcgi", "peer_value", "infcgi_read_gb_s", "infcgi_read_percent", "infcgi_int8_top_s")] ==
          ["tg64", "256.0", "128.0", "4.0", "25", ""], decode)
    check("two rows", len(rows) == 2, rows)
    check("the table", "| pp512 | 2048.0 [2048.0 - 2048.0] | llama.cpp b77 | 1024.0 [1024.0 - 1024.0] | 2.00 | 2.05 Top/s, 12 % | -fa on" in done.stdout,
          done.stdout)
    rows, _ = bench.rows("good.csv", PEER_BIN=bench.bin("good"))
    check("a second run adds rows and no header", len(rows) == 4 and all(r["machine"] == "here" for r in rows), rows)
    other = bench.folder / "other.csv"
    other.write_text("a,b\n")
    done = bench.run("--csv", other, PEER_BIN=bench.bin("good"))
    check("a file with other columns is left alone", done.returncode == 1 and "found 'a,b'" in done.stderr and other.read_text() == "a,b\n", done.stderr)
    try:
        peer_rows.check_header(bench.folder / "none" / "x.csv")
        check("a folder that is not there", False)
    except Failed as e:
        check("a folder that is not there", "No such file" in str(e), e)


def check_groups(bench):
    """Every test of both families of programs, and the settings that a later run takes from a file."""
    settings = bench.folder / "settings.json"
    how = {"peers": "llama.cpp ik_llama.cpp", "only": "deep q8_0 streams start", "PEER_BIN": bench.bin("good"), "IK_BIN": bench.bin("ik")}
    rows, _ = bench.rows("groups.csv", "--settings", settings, **how)
    found = [(r["test"], r["kv"], r["ratio"], r["peer_setting"].split("; trial")[0]) for r in rows if r["unit"] == "tokens/s"]
    wanted = [("pp512 @ d4096", "i16 / f16", "2.00", "-fa on --repack 1 -ub 512"), ("pp512 @ d4096", "i16 / f16", "2.00", "-fa 1 -rtr 1"),
              ("tg64 @ d4096", "i16 / f16", "2.00", "-fa on --repack 1"), ("tg64 @ d4096", "i16 / f16", "2.00", "-fa 1 -rtr 1"),
              ("tg64 @ d4096", "q8_0", "2.00", "-fa on --repack 1"), ("tg64 @ d4096", "q8_0", "2.00", "-fa 1 -rtr 1"),
              ("tg64 x 4 @ d16", "i16 / f16", "2.00", "-fa on --repack 0 -kvu 1"), ("tg64 x 4 @ d16", "i16 / f16", "2.00", "-fa 0 -rtr 1"),
              ("tg64 x 16 @ d16", "i16 / f16", "8.00", "-fa on --repack 0 -kvu 1"), ("tg64 x 16 @ d16", "i16 / f16", "8.00", "-fa 0 -rtr 1")]
    for one, other in zip(found, wanted):
        check(f"the group's row {other}", one == other, one)
    check("the groups' rows", len(found) == len(wanted), found)
    names = [(r["test"], r["unit"]) for r in rows[len(wanted):len(wanted) + 4]]
    check("the start's rows", names == [(what + more, unit) for what, unit in (("start to first token", "ms"), ("peak resident", "MiB"))
                                        for more in ("", ", packed cache")], names)
    check("the start's values", all(float(r["infcgi"]) > 0 and float(r["peer_value"]) > 0 and r["kv"] == "i16 / f16" for r in rows[len(wanted):]), rows)
    again, done = bench.rows("again.csv", "--settings", settings, **how)
    check("known settings are not tried again", "is fastest with" not in done.stderr and done.stderr.count("settings.json says") == 12, done.stderr)
    check("known settings are used", [r["peer_setting"].split("; ")[0] for r in again[:10]] == [w[3] for w in wanted], again)
    rows, _ = bench.rows("lacks.csv", only="shallow start", PEER_BIN=bench.bin("crash-fa"))
    check("a program that is not there", all("there is no llama-completion in PEER_BIN" in r["peer_setting"] for r in rows[2:]) and
          len(rows) == 6 and rows[0]["ratio"], rows)


def check_crashes(bench):
    rows, done = bench.rows("fallback.csv", PEER_BIN=bench.bin("crash", "good"))
    check("the second build is measured", [r["ratio"] for r in rows] == ["2.00", "2.00"], rows)
    check("the rows name the build", all("; build good" in r["peer_setting"] for r in rows), rows)
    check("the note says so", "- llama.cpp crashed, build crash: llama-bench: Illegal instruction (signal 4)" in done.stdout, done.stdout)
    rows, done = bench.rows("setting.csv", PEER_BIN=bench.bin("crash-fa", "good"))
    check("a setting that crashes", [r["ratio"] for r in rows] == ["2.00", "2.00"] and "build crash-fa: llama-bench: Segmentation fault (signal 11): a.cpp:7: GGML_ASSERT(S > 0) failed" in done.stdout, done.stdout)
    rows, _ = bench.rows("last.csv", PEER_BIN=bench.bin("crash-fa"))
    check("the last build keeps its other settings", all("-fa off" in r["peer_setting"] and r["ratio"] == "4.00" for r in rows), rows)
    rows, done = bench.rows("both.csv", peers="llama.cpp ik_llama.cpp", PEER_BIN=bench.bin("crash", "crash"), IK_BIN=bench.bin("ik"))
    why = "not measured: llama-bench: Illegal instruction (signal 4)"
    check("no build runs", [(r["peer"], r["peer_value"], r["ratio"], r["peer_setting"]) for r in rows[::2]] == [("llama.cpp", "", "", why)] * 2, rows)
    check("the other peer is measured", [(r["peer"], r["ratio"]) for r in rows[1::2]] == [("ik_llama.cpp abc1234", "2.00")] * 2, rows)
    check("the table says why", f"| llama.cpp | - | - | 2.05 Top/s, 12 % | {why} |" in done.stdout, done.stdout)


def check_failures(bench):
    rows, done = bench.rows("load.csv", peers="llama.cpp,ik_llama.cpp", PEER_BIN=bench.bin("no-load"), IK_BIN=bench.bin("ik"))
    why = "not measured: llama-bench: exit 1: error: unknown architecture 'x' | y"
    check("a model that a peer cannot load", rows[0]["peer_setting"] == why and rows[1]["ratio"] == "2.00", rows)
    check("a bar in a table's cell", "architecture 'x' \\| y |" in done.stdout, done.stdout)
    done = bench.run(peers="gpt", PEER_BIN=bench.bin("good"))
    check("an unknown peer", done.returncode == 1 and "PEERS: expected some of llama.cpp ik_llama.cpp openvino, found gpt" in done.stderr, done.stderr)
    bench.script("infcgi", CRASH)
    done = bench.run(PEER_BIN=bench.bin("good"))
    check("infcgi crashes", done.returncode == 1 and "error: infcgi: Illegal instruction" in done.stderr, done.stdout + done.stderr)


def check_chart(bench):
    """The chart is drawn from what the benchmark writes, with rows that have no value, with four peers, and with a row measured again."""
    lines = (bench.folder / "both.csv").read_text(encoding="utf-8").splitlines()
    more = [line.replace("ik_llama.cpp abc1234", f"peer-{i}") for i in range(3) for line in lines if "abc1234" in line]
    table, drawn = bench.folder / "chart.csv", bench.folder / "chart.svg"
    more.append(more[-1].replace(",2.00,", ",3.00,"))
    table.write_text("\n".join(lines + more) + "\n", encoding="utf-8")
    done = subprocess.run([sys.executable, HERE.parents[1] / "docs/chart.py", table, drawn], capture_output=True, text=True, timeout=60)
    text = drawn.read_text(encoding="utf-8") if done.returncode == 0 else ""
    check("the chart", (text.count("2.00×"), text.count("3.00×")) == (7, 1) and all(f"infcgi / peer-{i}" in text for i in range(3)), done.stderr + text)
    check("a peer without values is not in the chart", "infcgi / llama.cpp" not in text, text)


def main():
    with tempfile.TemporaryDirectory(prefix="infcgi-peer-") as folder:
        bench = Bench(folder)
        check_rows(bench)
        check_groups(bench)
        check_crashes(bench)
        check_failures(bench)
        check_chart(bench)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
