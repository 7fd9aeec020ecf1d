"""Simulated machines: cards on the PCI bus (fake_pci.c) and an OpenCL driver (fake_icd.c)."""
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).parent
MIB, GIB = 1 << 20, 1 << 30
BAR = 0x14220C  # memory, 64 bits, prefetchable
IO = 0x40101


class Machine:
    def __init__(self, folder):
        self.dir = pathlib.Path(folder)
        self.env = dict(os.environ)
        self.env.pop("RUSTICL_ENABLE", None)
        self.drivers = self.dir / "vendors"
        self.drivers.mkdir()
        self.env["OCL_ICD_VENDORS"] = str(self.drivers)

    def _library(self, name, *args):
        made = self.dir / f"{name}.so"
        if not made.exists():
            source = HERE / f"{name}.c"
            subprocess.run(["gcc", "-std=gnu17", "-Wall", "-Werror", "-shared", "-fPIC", "-o", made, source, *args], check=True)
        return str(made)

    def driver(self, what, bus=3):
        """Installs an OpenCL driver; the environment sets what it shows or does."""
        (self.drivers / "fake.icd").write_text(self._library("fake_icd") + "\n")
        self.env.update(FAKE_ICD=what, FAKE_BUS=str(bus))

    def pocl(self):
        (self.drivers / "pocl.icd").write_text(pathlib.Path("/etc/OpenCL/vendors/pocl.icd").read_text())

    def bus(self):
        """From now on the bus has only the cards of card()."""
        root = self.dir / "pci"
        root.mkdir(exist_ok=True)
        self.env.update(FAKE_PCI=str(root), LD_PRELOAD=self._library("fake_pci"),
                        ASAN_OPTIONS=f"{self.env.get('ASAN_OPTIONS', '')}:verify_asan_link_order=0")
        return root

    def card(self, bus, device, bar0, vram=None, driver="amdgpu", vendor=0x1002, kind=0x030000, node=None):
        d = self.bus() / f"0000:{bus:02x}:00.0"
        d.mkdir()
        files = {"vendor": f"0x{vendor:04x}", "device": f"0x{device:04x}", "class": f"0x{kind:06x}", "revision": "0xc8",
                 "subsystem_vendor": "0x1eae", "subsystem_device": "0x7901", "irq": "99", "boot_vga": "0",
                 "current_link_speed": "16.0 GT/s PCIe", "current_link_width": "16"}
        if vram is not None:
            files["mem_info_vram_total"] = str(vram)
        for name, text in files.items():
            (d / name).write_text(text + "\n")
        bars = [(0x6000000000, bar0, BAR), (0, 0, 0), (0x7000000000, 2 * MIB, BAR), (0, 0, 0), (0xE000, 256, IO),
                (0xFCA00000, MIB, 0x40200), (0xFCB00000, 128 << 10, 0x46200)]
        (d / "resource").write_text("".join(
            f"0x{base:016x} 0x{base + size - 1 if size else 0:016x} 0x{flags if size else 0:016x}\n" for base, size, flags in bars))
        config = bytearray(256)
        config[0:4] = vendor.to_bytes(2, "little") + device.to_bytes(2, "little")
        config[8:12] = b"\xc8" + kind.to_bytes(3, "little")
        config[0x2C:0x30] = (0x1EAE).to_bytes(2, "little") + (0x7901).to_bytes(2, "little")
        (d / "config").write_bytes(config)
        if node is not None:
            (d / "drm" / node).mkdir(parents=True)
        if driver is not None:
            (d / "driver").symlink_to(f"../../../bus/pci/drivers/{driver}")
