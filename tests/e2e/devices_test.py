"""`infcgi devices`: this machine, and simulated machines."""
import json
import pathlib
import subprocess
import tempfile

import harness
from fake_machine import GIB, MIB, Machine

VRAM = 25753026560  # of a card of 24 GB, according to amdgpu
CARD = "0000:03:00.0"
MODEL = harness.ROOT / "tests/golden/models/llama-gqa-tied.gguf"


def run(ctx, machine, *args):
    return subprocess.run([ctx.binary, "devices", *args], env=machine.env, capture_output=True, text=True, timeout=60)


def table(ctx, machine, *args):
    r = run(ctx, machine, *args)
    assert r.returncode == 0 and r.stderr == "", r
    return r.stdout.splitlines()


def told(ctx, machine, *args):
    r = run(ctx, machine, "--json", *args)
    assert r.returncode == 0 and r.stderr == "", r
    return json.loads(r.stdout)


def machine():
    folder = tempfile.TemporaryDirectory()
    m = Machine(folder.name)
    m.folder = folder  # removed with it
    return m


def test_this_machine(ctx):
    m = machine()
    m.pocl()
    all_ = told(ctx, m)
    shown = {p.name for p in pathlib.Path("/sys/bus/pci/devices").glob("*") if (p / "class").read_text().startswith("0x03")}
    assert {c["pci"] for c in all_["cards"]} == shown
    assert [p["name"] for p in all_["platforms"]] == ["Portable Computing Language"] and all_["faults"] == []
    (device,) = all_["devices"]
    assert device["usable"] and not device["is_gpu"] and device["pci"] is None and "this is the CPU" in device["note"]
    assert [c["device"] for c in all_["chosen"]] == [0] and all_["chosen"][0]["why"].endswith(": no GPU"), all_
    lines = table(ctx, m)
    assert lines[0].split() == ["#", "PCI", "address", "name", "gfx", "memory", "BAR", "driver", "usable"], lines
    assert lines[1].startswith("0 ") and device["name"] in lines[1] and lines[1].endswith(" yes"), lines
    assert shown or any("PCI bus" in line for line in lines), lines


def test_no_driver_at_all(ctx):
    m = machine()
    m.bus()
    assert table(ctx, m) == [
        "no OpenCL driver is installed: everything is computed by the CPU (for AMD's cards: mesa-opencl-icd, or ROCm)",
        "no display card is on the PCI bus"]
    all_ = told(ctx, m)
    assert all_["devices"] == all_["cards"] == all_["platforms"] == all_["chosen"] == []
    r = run(ctx, m, "--device", "0")
    assert r.returncode == 64 and r.stdout == "" and r.stderr == (
        "error: bad_config: device: expected an OpenCL device, and there is none; found '0'; see `infcgi devices`\n"), r


def test_a_card_that_no_driver_shows(ctx):
    m = machine()
    m.pocl()
    m.card(3, 0x744C, 24 * GIB, VRAM)
    m.card(0, 0x15BF, 24 * GIB, kind=0x020000)  # not a display card
    (card,) = told(ctx, m)["cards"]
    assert card["pci"] == CARD and card["id"] == "1002:744c" and card["subsystem"] == "1eae:7901", card
    assert card["gfx"] == "gfx1100" and card["family"] == "RDNA3" and card["driver"] == "amdgpu", card
    assert card["bar_bytes"] == [24 * GIB, 0, 2 * MIB, 0, 0, MIB] and card["vram_bytes"] == VRAM, card
    assert card["link_speed"] == "16.0 GT/s PCIe" and card["link_width"] == 16 and card["resizable_bar"] == "on", card
    assert card["device"] is None and "RUSTICL_ENABLE=radeonsi" in card["note"], card
    lines = table(ctx, m)
    assert lines[2].split() == ["-", CARD, "PCI", "id", "1002:744c,", "RDNA3", "gfx1100", "24560", "MiB", "24576", "MiB",
                                "amdgpu", "no,", "see", "below"], lines
    assert any(line.startswith(f"{CARD}: no OpenCL driver shows it: ") for line in lines), lines


def test_a_card_of_mesa_with_a_small_window(ctx):
    m = machine()
    m.pocl()
    m.driver("rusticl")
    m.card(3, 0x744C, 256 * MIB, VRAM)
    all_ = told(ctx, m)
    device = next(d for d in all_["devices"] if d["platform"] == "rusticl")
    assert device["pci"] == CARD and device["gfx"] == "gfx1100" and device["family"] == "RDNA3" and device["is_gpu"], device
    assert device["dot"] == "khr" and device["subgroups"] == "feature" and device["has_fp16"], device
    assert device["version"] == 300 and device["local_bytes"] == 65536 and device["align_bytes"] == 128, device
    assert device["max_buffer_bytes"] == 2 * GIB - 1 and device["usable"], device
    (card,) = all_["cards"]
    assert card["device"] == device["number"] and card["resizable_bar"] == "off", card
    note = "resizable BAR is off: the host reaches 256 of 24560 MiB, which was measured to halve decoding"
    assert card["note"].startswith(note) and device["note"] == card["note"]
    (chosen,) = all_["chosen"]
    assert chosen["device"] == device["number"] and chosen["why"].endswith(": a discrete RDNA3 GPU"), all_
    lines = table(ctx, m, "--device", CARD)
    row = next(line for line in lines if CARD in line)
    assert row.split()[-7:] == ["256", "MiB", "amdgpu,", "rusticl", "1.0", "fake", "yes"] and row.startswith(f"{device['number']} "), lines
    assert any(line.startswith(f"{CARD}: {note}") for line in lines), lines
    assert lines[-1].startswith(f"--device {CARD}: device {device['number']} (AMD Radeon RX 7900 XTX"), lines


def test_two_cards_of_rocm(ctx):
    m = machine()
    m.driver("rocm", bus=0xE3)  # a signed byte reports it
    m.card(3, 0x744C, 24 * GIB, VRAM)
    m.card(0xE3, 0x744C, 24 * GIB, VRAM)
    all_ = told(ctx, m)
    (device,) = all_["devices"]
    assert device["pci"] == "0000:e3:00.0" and device["board"] == "AMD Radeon RX 7900 XTX" and device["name"] == "gfx1100"
    assert device["dot"] == "amd" and device["subgroups"] == "khr" and device["subgroup_sizes"] == 32, device
    assert device["free_bytes"] == 24000 * MIB and device["note"] is None, device
    assert [(c["pci"], c["device"]) for c in all_["cards"]] == [(CARD, None), ("0000:e3:00.0", 0)]
    for which in ("0,0", "auto,0000:e3:00.0"):
        r = run(ctx, m, "--device", which)
        name = "device 0 (AMD Radeon RX 7900 XTX at 0000:e3:00.0)"
        assert r.returncode == 64 and r.stderr == ("error: bad_config: device: expected each card once; "
                                                   f"found '{which.split(',')[1]}', {name}, after {name}\n"), r
    m.pocl()
    lines = [line for line in table(ctx, m, "--device", "1,0") if line.startswith("--device 1,0: device ")]
    assert [line.split()[3] for line in lines] == ["1", "0"], lines
    chosen = json.loads(run(ctx, m, "--device", "1,0", "--json").stdout)["chosen"]
    assert [c["device"] for c in chosen] == [1, 0] and all(f"--device 1,0: {c['why']}" in lines for c in chosen), chosen


def test_an_apu(ctx):
    m = machine()
    m.card(0xC1, 0x15BF, 256 * MIB, 512 * MIB)
    (card,) = told(ctx, m)["cards"]
    assert card["gfx"] == "gfx1103" and card["resizable_bar"] == "unknown", card  # its memory is the host's


def test_a_card_that_may_not_be_opened(ctx):
    m = machine()
    m.card(3, 0x744C, 24 * GIB, VRAM, node="renderD250")
    (card,) = told(ctx, m)["cards"]
    assert card["node"] == "renderD250" and card["note"].startswith("this user may not open /dev/dri/renderD250: "), card


def test_rdna4_is_told_apart(ctx):
    m = machine()
    m.card(3, 0x7550, 16 * GIB, 16304 * MIB)
    (card,) = told(ctx, m)["cards"]
    assert card["gfx"] == "gfx1201" and card["family"] == "RDNA4", card


def test_other_drivers(ctx):
    m = machine()
    m.bus()
    m.driver("nvidia", bus=4)
    (device,) = told(ctx, m)["devices"]
    assert device["dot"] == "nv" and device["subgroup_sizes"] == 32 and device["pci"] == "0000:04:00.0", device
    assert device["family"] is None and device["subgroups"] == "none" and device["usable"], device
    m.driver("emulating")
    (device,) = told(ctx, m)["devices"]
    assert device["dot"] == "plain" and not device["has_fp16"] and device["name"] == "?Device ?", device
    m.driver("narrow")
    all_ = told(ctx, m)
    assert not all_["devices"][0]["usable"] and all_["devices"][0]["version"] == 120, all_
    why = "work-groups have 16384 bytes of local memory, 32768 are needed"
    assert all_["devices"][0]["why_not"] == why and all_["chosen"] == [], all_
    assert table(ctx, m)[1].endswith(f"no: {why}")
    r = run(ctx, m, "--device", "0")
    assert r.returncode == 64 and r.stderr == f"error: bad_config: device 0 (Device) cannot be used: {why}\n", r


def test_a_driver_that_crashes_costs_its_own_devices(ctx):
    for what in ("crash-devices", "crash-device"):
        m = machine()
        m.pocl()
        m.driver(what)
        all_ = told(ctx, m)
        assert [d["platform"] for d in all_["devices"]] == ["Portable Computing Language"], all_
        assert all_["faults"] == ["rusticl crashed (Aborted)"] and all_["chosen"][0]["device"] == 0, all_
        assert "rusticl crashed (Aborted)" in table(ctx, m)


def test_a_driver_that_crashes_as_it_is_loaded(ctx):
    m = machine()
    m.pocl()
    m.driver("crash-load")
    m.card(3, 0x744C, 24 * GIB, VRAM)
    lines = table(ctx, m)
    fault = "one of the OpenCL drivers crashed (Aborted) while they were loaded; "
    assert any(line.startswith(fault) for line in lines), lines
    assert not any("no OpenCL driver is installed" in line for line in lines), lines
    assert any(CARD in line for line in lines), lines


def test_what_a_driver_prints_is_no_answer(ctx):
    m = machine()
    m.driver("loud")
    r = run(ctx, m, "--json")
    assert r.returncode == 0 and len(json.loads(r.stdout)["devices"]) == 1, r
    assert set(r.stderr.splitlines()) == {'{"end":true}'}, r


def computing(m):
    """Returns the environment of a process that computes on the machine: PoCL's compiler leaks memory at exit."""
    return {**m.env, "ASAN_OPTIONS": f"{m.env.get('ASAN_OPTIONS', '')}:detect_leaks=0"}


def test_the_back_end_takes_the_device(ctx):
    m = machine()
    m.pocl()
    for backend, which in (("opencl", "auto"), ("cpu:0-0,opencl", "0")):
        server = ctx.start("--backend", backend, "--device", which, model=MODEL, env=computing(m))
        (line,) = [line for line in server.log().splitlines() if " device choice=" in line]
        assert " warn device choice=\"device 0 (" in line and line.endswith("it serves tests\""), line
        ctx.after_test()


def test_the_back_end_without_a_device(ctx):
    m = machine()
    none = "an OpenCL device, and there is none; found 'auto'; see `infcgi devices`"
    for args, why in (((), none), (("--device", "7"), none.replace("auto", "7")),
                      (("--device", "0,1"), none.replace("auto", "0"))):
        r = subprocess.run([ctx.binary, "generate", "--model", MODEL, "--prompt", "a", "--backend", "opencl", *args],
                           env=m.env, capture_output=True, text=True, timeout=60)
        assert r.returncode == 64 and r.stdout == "" and r.stderr == f"error: bad_config: device: expected {why}\n", r
    m.pocl()
    m.driver("crash-devices")  # which does not keep another driver from computing
    r = subprocess.run([ctx.binary, "generate", "--model", MODEL, "--prompt", "a", "--n-predict", "2", "--backend", "opencl"],
                       env=computing(m), capture_output=True, text=True, timeout=60)
    assert r.returncode == 0 and "2 generated" in r.stderr, r
