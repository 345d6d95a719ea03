"""``%maxkernel doctor``: what works on this machine, and what to do about the rest. Starts nothing, sends nothing."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maxkernel_nb.config import Setting
from maxkernel_nb.errors import MaxKernelError
from maxkernel_nb.magics.views import Table
from maxkernel_nb.store import Project

_MIN_FREE_GIB = 1.0


@dataclass(frozen=True)
class Check:
    subject: str
    good: bool
    says: str


def examine(settings: Callable[[], dict[str, Setting]], project: Callable[[], str]) -> Table:
    checks = tuple(_checks(settings, project))
    rows = tuple((check.subject, "ok" if check.good else "look", check.says) for check in checks)
    wrong = sum(not check.good for check in checks)
    caption = f"{wrong} of {len(checks)} checks need a look" if wrong else f"all {len(checks)} checks are ok"
    return Table(("Check", "", "What it says"), rows, caption)


def _checks(settings: Callable[[], dict[str, Setting]], project: Callable[[], str]) -> Iterator[Check]:
    yield _python()
    yield _jax()
    yield _compiler()
    yield from _chip()
    yield _author()
    yield _settings(settings)
    yield _folder(project)
    yield _front_end()


def _python() -> Check:
    return Check("Python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}, "
                                 f"{os.cpu_count()} CPU cores")


def _jax() -> Check:
    from maxkernel_nb.api import versions

    found = versions()
    return Check("jax", found["jax"] != "not installed", f"jax {found['jax']}, jaxlib {found['jaxlib']}")


def _compiler() -> Check:
    from maxkernel_nb.tpu.availability import compiler_available

    return Check("TPU compiler", *compiler_available())


def _chip() -> Iterator[Check]:
    """Who owns the chip, and who has it now. Decides nothing and opens nothing."""
    from maxkernel_nb.tpu.chip import lease, owner
    from maxkernel_nb.tpu.present import detect_present_chip

    try:
        owned = owner.decided() or owner.preview()
    except MaxKernelError as error:
        yield Check("TPU", False, str(error))
        return
    present = detect_present_chip()
    where = f"this machine carries a {present}" if present else "no TPU here"
    yield Check("TPU", True, f"{where}; {owned.reason}" if present or owned.owner != "none" else owned.reason)
    for number in range(owned.chips):
        yield _holder(lease.holder(owned.device(number)), owned.device(number))
    others = lease.opened_by() if owned.owner == "worker" and owned.platform == "tpu" else ()
    strangers = [pid for pid in others if _parent(pid) != os.getpid()]
    if strangers:
        yield Check("Chip in use", False, f"process {', '.join(map(str, strangers))} has the TPU open, and only one "
                                          "process can: end it to measure here")


def _holder(holder: Any, device: str) -> Check:
    if holder is None:
        return Check("Chip lease", True, f"{device} is free")
    if holder.pid == os.getpid():
        return Check("Chip lease", True, f"{device} is held by this notebook's runs")
    return Check("Chip lease", False, f"{device} is held by process {holder.pid} ({holder.purpose}): measuring waits "
                                      "until that notebook stops its runs")


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _author() -> Check:
    from maxkernel_nb.authors.claude.keys import find_key

    key = find_key()
    says = f"Claude can help: a key comes from {key.origin}" if key else "no key for Claude, and none is needed"
    return Check("Authors", True, f"the embedded recipes write kernels; {says}")


def _settings(settings: Callable[[], dict[str, Setting]]) -> Check:
    try:
        chosen = [f"{s.option.name}={s.value} ({s.origin})" for s in settings().values() if s.value is not None]
    except MaxKernelError as error:
        return Check("Settings", False, str(error))
    return Check("Settings", True, "; ".join(chosen) or "all at their defaults")


def _folder(project: Callable[[], str]) -> Check:
    """The project's .maxkernel and the folders in it, or the nearest folder above in which they would be made."""
    try:
        root = project()
    except MaxKernelError as error:
        return Check("Folder", False, f"not looked at, since the settings are wrong: {error}")
    place = Project(root)
    wanted = (place.folder, place.runs, place.objects.root, place.kernels, place.reports)
    found = [p for p in wanted if p.exists()] or [next(p for p in place.folder.parents if p.exists())]
    for path in found:
        if not path.is_dir():
            return Check("Folder", False, f"{path} is a file, where a folder is needed: move it away")
        if not os.access(path, os.W_OK):
            return Check("Folder", False, f"{path} cannot be written: choose another folder with --project")
    free = shutil.disk_usage(found[0]).free / 2**30
    return Check("Folder", free >= _MIN_FREE_GIB, f"{place.folder} can be written, {free:.0f} GiB free")


def _front_end() -> Check:
    static = Path(__file__).resolve().parent.parent / "widgets" / "static"
    spec = importlib.util.find_spec("maxkernel_nb.widgets")
    if spec is not None and spec.origin:
        static = Path(spec.origin).parent / "static"
    good = (static / "panel.js").is_file()
    return Check("Panel", good, "the panel's script is installed" if good else
                 f"panel.js is missing from {static}: install the package again")
