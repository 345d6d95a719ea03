"""A virtual environment of its own that has what the wheel needs, and not the wheel: for tests of installing it.

By default the distributions of this process's environment are linked into it, file by file as pip recorded them, so
that it takes seconds and no network; ``fresh=True`` has pip fetch them with the wheel.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
OURS = "maxkernel-nb"


def build_wheel(out: Path) -> Path:
    """The wheel of what a fresh clone would hold, built with the installed setuptools (no network)."""
    source = out / "source"
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    _run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)])
    return next(out.glob("*.whl"))


class Environment:
    """``run`` sees no program but this environment's own: no Node, no git, no compiler."""

    def __init__(self, folder: Path, fresh: bool = False, also: tuple[str, ...] = ()) -> None:
        self.folder, self._fresh = folder, fresh
        self.python = str(folder / "bin" / "python")
        self.variables = {"PATH": str(folder / "bin"), "VIRTUAL_ENV": str(folder), "PYTHONNOUSERSITE": "1",
                          "PYTHONPATH": ""}
        venv.create(folder, with_pip=fresh, symlinks=True)
        if not fresh:
            for found in _needed(["pip", *stated(), *also]):
                self._link(found)

    def run(self, *words: str, environment: dict[str, str] | None = None) -> str:
        """What a program of this environment prints, on either stream."""
        program = [str(self.folder / "bin" / words[0]), *words[1:]]
        return _run(program, {**os.environ, **self.variables, **(environment or {})})

    def install(self, wheel: Path) -> str:
        index = [] if self._fresh else ["--no-index"]
        return self.run("python", "-m", "pip", "install", *index, f"{OURS}[lab] @ {wheel.as_uri()}")

    def uninstall(self) -> str:
        return self.run("python", "-m", "pip", "uninstall", "-y", OURS)

    def contents(self) -> set[str]:
        """Every file and folder, but for what other packages compile when they are first imported."""
        found = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*"))
        return {name for name in found if "__pycache__" not in name or _is_ours(name)}

    def _link(self, found: Distribution) -> None:
        site = Path(sysconfig.get_path("purelib", vars={"base": str(self.folder), "platbase": str(self.folder)}))
        for file in found.files or ():
            here, there = Path(found.locate_file(file)), Path(os.path.normpath(site / file))
            if not here.is_file():
                continue
            there.parent.mkdir(parents=True, exist_ok=True)
            if there.parent.name == "bin":
                there.write_bytes(here.read_bytes().replace(sys.executable.encode(), self.python.encode()))
                there.chmod(0o755)
            else:
                _same(here, there)


def stated() -> list[str]:
    """What the wheel says it needs, with its [lab] extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["lab"]]


def _same(here: Path, there: Path) -> None:
    try:
        os.link(here, there)
    except FileExistsError:
        return
    except OSError:  # another file system
        shutil.copy2(here, there)


def _is_ours(name: str) -> bool:
    return "maxkernel" in name.replace("-", "_") or "jaxbench" in name


def _needed(wanted: list[str]) -> list[Distribution]:
    """What is wanted, as it is installed here, with all that it needs."""
    waiting, seen, found = [Requirement(name) for name in wanted], set(), {}
    while waiting:
        one = waiting.pop()
        key = canonicalize_name(one.name), frozenset(one.extras)
        if key in seen:
            continue
        seen.add(key)
        try:
            made = distribution(one.name)
        except PackageNotFoundError:
            continue  # pip will say so, if it is missed
        found[key[0]] = made
        for text in made.requires or ():
            need = Requirement(text)
            if need.marker is None or any(need.marker.evaluate({"extra": e}) for e in ("", *one.extras)):
                waiting.append(need)
    return list(found.values())


def _run(words: list[str], environment: dict[str, str] | None = None) -> str:
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=900)
    if ran.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {ran.returncode}:\n{(ran.stdout + ran.stderr)[-4000:]}")
    return ran.stdout + ran.stderr
