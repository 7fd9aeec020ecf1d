#!/usr/bin/env python3
"""Writes tests/unit/quant/quant_vectors.h: random blocks of each weight type and what the gguf package (the reference
implementation in Python) dequantises them to; and a checksum over 1024 blocks of each quantised type, which meet every
point of the grids.

usage: quant_vectors.py > tests/unit/quant/quant_vectors.h      (needs: pip install gguf numpy; made with gguf 0.19)
"""
import gguf
import numpy as np

# type: number of elements, byte offsets of the halves in a block (kept finite)
TYPES = {
    "F32": (8, None), "F16": (16, [0]), "BF16": (16, None),
    "Q4_0": (64, [0]), "Q4_1": (64, [0, 2]), "Q5_0": (64, [0]), "Q5_1": (64, [0, 2]), "Q8_0": (64, [0]),
    "Q4_K": (256, [0, 2]), "Q5_K": (256, [0, 2]), "Q6_K": (256, [208]),
    "Q2_K": (256, [80, 82]), "Q3_K": (256, [108]), "TQ1_0": (256, [52]), "TQ2_0": (256, [64]),
    "IQ1_S": (256, [0]), "IQ1_M": (256, []), "IQ2_XXS": (256, [0]), "IQ2_XS": (256, [0]), "IQ2_S": (256, [0]),
    "IQ3_XXS": (256, [0]), "IQ3_S": (256, [0]), "IQ4_NL": (64, [0]), "IQ4_XS": (256, [0]), "MXFP4": (64, []),
    "NVFP4": (64, []), "Q1_0": (128, [0]), "Q2_0": (128, [0]), "Q2_0_128": (128, [0]),
}
# Elements and bytes of a block; gguf 0.19 lacks these types.
OWN_SIZES = {"Q1_0": (128, 18), "Q2_0": (64, 18), "Q2_0_128": (128, 34)}
# Bytes that hold an exponent where no half stands: the top nibble of a scattered half, a power of two.
EXPONENT_BYTE = {"IQ1_M": 55, "MXFP4": 0, "NVFP4": 0}
CHECKSUM_BLOCKS = 1024


def exponent_bytes(name):
    halves = [at + 1 for at in TYPES[name][1]]
    return halves if halves else [EXPONENT_BYTE[name]]


def tame(data, at):
    """Keeps exponents in a middle range: sign and low bits stay."""
    data[:, at] = data[:, at] & 0x8F | 0x20


def size_of(name):
    return OWN_SIZES[name] if name in OWN_SIZES else gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]


def blocks(rng, name, n):
    elems, size = size_of(name)
    if name in ("F32", "BF16"):
        values = rng.standard_normal(n).astype(np.float32)
        raw = values.view(np.uint32)
        return (raw if name == "F32" else (raw >> 16).astype(np.uint16)).view(np.uint8)
    data = rng.integers(0, 256, (n // elems, size), dtype=np.uint8)
    for at in TYPES[name][1]:
        halves = rng.standard_normal(n // elems).astype(np.float16) * np.float16(0.02)
        data[:, at:at + 2] = halves.view(np.uint8).reshape(-1, 2)
    if name in EXPONENT_BYTE:
        tame(data, EXPONENT_BYTE[name])
    return data.reshape(-1)


def dequantised_own(data, name):
    """Half d, then codes, the first in the low bits: d * (2 * code - 1) of Q1_0, d * (code - 1)."""
    b, bits = data.reshape(-1, size_of(name)[1]), 1 if name == "Q1_0" else 2
    codes = (b[:, 2:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1).reshape(len(b), -1)
    return b[:, :2].copy().view(np.float16).astype(np.float32) * (codes.astype(np.float32) * (3 - bits) - 1)


def dequantised(name, data):
    if name in OWN_SIZES:
        return dequantised_own(data, name).reshape(-1).view(np.uint32)
    kind = gguf.GGMLQuantizationType[name]
    want = np.asarray(gguf.quants.dequantize(data.reshape(1, -1), kind), dtype=np.float32).reshape(-1)
    assert np.isfinite(want).all(), name
    return want.view(np.uint32)


def checksum(name):
    """Of CHECKSUM_BLOCKS blocks of bytes from splitmix64, counting from 0: sum of (2 i + 1) * bits of value i."""
    _, size = size_of(name)
    with np.errstate(over="ignore"):
        z = (np.arange((CHECKSUM_BLOCKS * size + 7) // 8, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
        data = z.view(np.uint8)[:CHECKSUM_BLOCKS * size].reshape(CHECKSUM_BLOCKS, size).copy()
        for at in exponent_bytes(name):
            tame(data, at)
        bits = dequantised(name, data).astype(np.uint64)
        return int(((2 * np.arange(len(bits), dtype=np.uint64) + np.uint64(1)) * bits).sum(dtype=np.uint64))


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
        if name == "F32":
            want = data.view(np.uint32)
        elif name == "F16":
            want = data.view(np.float16).astype(np.float32).view(np.uint32)
        else:
            want = dequantised(name, data)
        assert len(want) == n, name
        table("uint8_t", name.lower() + "_bytes", data.tolist(), "%d")
        table("uint32_t", name.lower() + "_bits", want.tolist(), "0x%08X")
    print("/* X(type, its checksum, offsets of the bytes with exponents); how: quant_vectors.py */")
    print(f"enum {{ CHECKSUM_BLOCKS = {CHECKSUM_BLOCKS} }};")
    print("#define CHECKSUMS(X) \\")
    rows = [(name, checksum(name), exponent_bytes(name)) for name in list(TYPES)[3:]]
    print(" \\\n".join(f"    X(DTYPE_{name}, 0x{value:016X}u, {at[0]}, {at[-1]})" for name, value, at in rows))
    print("\n/* clang-format on */")


main()
