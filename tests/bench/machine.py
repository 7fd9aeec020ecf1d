"""What the numbers were measured on: the CPU, the work of others, and how fast the machine can be at most."""
import json
import os
import re
import subprocess
import time


def cpu():
    """The CPU's name and those of its flags that matter here."""
    name, flags = "unknown CPU", []
    with open("/proc/cpuinfo", encoding="utf-8") as f:
        for line in f:
            key, _, value = (part.strip() for part in line.partition(":"))
            if key == "model name":
                name = value
            elif key in ("flags", "Features"):
                flags = value.split()
    wanted = ("avx", "fma", "f16c", "amx", "asimd", "i8mm", "bf16", "sve")
    return f"{name}, {os.cpu_count()} CPUs", " ".join(sorted(f for f in flags if f.startswith(wanted)))


def short_name():
    """A name of the machine for tables, if the caller has none: vendor, family and widest instructions of the CPU."""
    name, flags = cpu()
    words = re.findall(r"[a-z]+[a-z0-9]*", name.split(",")[0].lower().replace("(r)", "").replace("(tm)", ""))
    wide = next((isa for isa in ("amx_int8", "avx512f", "avx2", "sve", "asimd") if isa in flags.split()), "")
    return "-".join([w for w in words if w not in ("cpu", "processor", "with", "ghz")][:2] + wide.replace("_", "-").split())


def other_work(seconds=1.0):
    """How many CPUs are busy while we sleep; what a hypervisor takes away counts too [proc(5), /proc/stat]."""
    def idle_and_all():
        with open("/proc/stat", encoding="utf-8") as f:
            ticks = [int(v) for v in f.readline().split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)

    idle, total = idle_and_all()
    time.sleep(seconds)
    idle_after, total_after = idle_and_all()
    return (1 - (idle_after - idle) / max(1, total_after - total)) * os.cpu_count()


class Peaks:
    """The best that was seen of `checkkern --peaks` at one number of threads."""

    def __init__(self, checkkern, threads):
        self.command = [checkkern, "--peaks", "--threads", str(threads)]
        self.int8_gops = self.read_gbs = 0.0

    def measure(self):
        seen = json.loads(subprocess.run(self.command, stdout=subprocess.PIPE, text=True, check=True).stdout)
        self.int8_gops = max(self.int8_gops, seen["int8_gops"])
        self.read_gbs = max(self.read_gbs, seen["read_gbs"])

    def text(self):
        int8 = f", `vpdpbusd` {self.int8_gops / 1000:.2f} Top/s" if self.int8_gops else ""
        return f"limits at this number of threads, measured between the rounds: reading memory {self.read_gbs:.1f} GB/s{int8}"


def peer_version(folder):
    try:
        with open(f"{folder}/version", encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        program = next(p for p in ("llama-bench", "llama-server") if p == "llama-server" or os.access(f"{folder}/{p}", os.X_OK))
        done = subprocess.run([f"{folder}/{program}", "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              check=False)
        said = " ".join(done.stdout.split()) if done.returncode == 0 else "it does not say its version"
        return f"llama.cpp, a build of the caller's (PEER_BIN): {said}"


def our_version(binary):
    version = subprocess.run([binary, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[0]
    commit = our_commit()
    return f"{version}, commit {commit}" if commit else version


def our_commit():
    """Empty without git."""
    try:
        git = subprocess.run(["git", "describe", "--always", "--dirty"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                             check=False)
    except OSError:
        return ""
    return git.stdout.strip() if git.returncode == 0 else ""
