"""Which TPU this machine carries, read from the PCI bus: no jax, no TPU client, no lock taken."""

from __future__ import annotations

from pathlib import Path

GOOGLE_VENDOR = "0x1ae0"
# PCI device ids as jax 0.10.2 lists them (jax/_src/hardware_utils.py).
PCI_DEVICES = {"0x005e": "v4", "0x0062": "v5p", "0x0063": "v5e", "0x006f": "v6e", "0x0076": "v7x"}


def detect_present_chip(pci: Path = Path("/sys/bus/pci/devices")) -> str | None:
    """The chip's name, or None when there is no TPU that we know (or the bus cannot be read)."""
    for device in sorted(pci.glob("*")):
        if _read(device / "vendor") == GOOGLE_VENDOR and (name := PCI_DEVICES.get(_read(device / "device"))):
            return name
    return None


def count_present_chips(pci: Path = Path("/sys/bus/pci/devices")) -> int:
    """How many TPU chips that we know this machine carries."""
    return sum(
        _read(device / "vendor") == GOOGLE_VENDOR and _read(device / "device") in PCI_DEVICES
        for device in pci.glob("*")
    )


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""
