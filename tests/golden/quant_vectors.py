#!/usr/bin/env python3
"""Writes tests/unit/kernels/quant_vectors.h: random blocks of each weight type and what the gguf package (the reference
implementation in Python) dequantises them to.

usage: quant_vectors.py > tests/unit/kernels/quant_vectors.h      (needs: pip install gguf numpy; made with gguf 0.19)
"""
import gguf
import numpy as np

# type: number of elements, byte offsets of the halves in a block (kept finite)
TYPES = {
    "F32": (8, None), "F16": (16, [0]), "BF16": (16, None),
    "Q4_0": (64, [0]), "Q4_1": (64, [0, 2]), "Q5_0": (64, [0]), "Q5_1": (64, [0, 2]), "Q8_0": (64, [0]),
    "Q4_K": (256, [0, 2]), "Q5_K": (256, [0, 2]), "Q6_K": (256, [208]),
}


def blocks(rng, name, n):
    kind = gguf.GGMLQuantizationType[name]
    elems, size = gguf.GGML_QUANT_SIZES[kind]
    if name in ("F32", "BF16"):
        values = rng.standard_normal(n).astype(np.float32)
        raw = values.view(np.uint32)
        return (raw if name == "F32" else (raw >> 16).astype(np.uint16)).view(np.uint8)
    data = rng.integers(0, 256, (n // elems, size), dtype=np.uint8)
    for at in TYPES[name][1]:
        halves = rng.standard_normal(n // elems).astype(np.float16) * np.float16(0.02)
        data[:, at:at + 2] = halves.view(np.uint8).reshape(-1, 2)
    return data.reshape(-1)


def table(ctype, name, numbers, fmt):
    print(f"static const {ctype} {name}[] = {{")
    per_line = 12 if ctype == "uint32_t" and fmt == "0x%08X" else 24
    for i in range(0, len(numbers), per_line):
        print("    " + " ".join(fmt % v + "," for v in numbers[i:i + per_line]))
    print("};")


def main():
    rng = np.random.default_rng(20260101)
    print("/* Made by tests/golden/quant_vectors.py; blocks of each weight type and the bits of the floats they stand for. */")
    print("/* clang-format off */")
    for name, (n, _) in TYPES.items():
        data = blocks(rng, name, n)
        kind = gguf.GGMLQuantizationType[name]
        want = np.asarray(gguf.quants.dequantize(data.reshape(1, -1), kind), dtype=np.float32).reshape(-1)
        if name == "F32":
            want = data.view(np.float32)
        elif name == "F16":
            want = data.view(np.float16).astype(np.float32)
        assert len(want) == n and np.isfinite(want).all(), name
        table("uint8_t", name.lower() + "_bytes", data.tolist(), "%d")
        table("uint32_t", name.lower() + "_bits", want.view(np.uint32).tolist(), "0x%08X")
    print("/* clang-format on */")


main()
