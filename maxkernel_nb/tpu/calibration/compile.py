"""Compiles the calibration's programs for v6e and keeps their terms: slow, resumable, any jax that can aim at a TPU.

Run as a worker it compiles one program after the other into a cache folder, a file each; what is there is not compiled
again. The programs come from a module with ``names()`` and ``program(name)`` (``jaxbench.calibration``).
"""

from __future__ import annotations

import datetime
import importlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from maxkernel_nb.errors import MaxKernelError, UsageError
from maxkernel_nb.tpu.calibration.rows import Compiled, Environment

MODULE = "jaxbench.calibration"


def compile_programs(module: str, names: Iterable[str], chip: str, cache: Path, python: str = sys.executable) -> int:
    """Compiles what ``cache`` lacks, in a worker process with ``python``'s jax; the worker's exit status.

    A program that does not compile is reported on stderr and left out; the others go on.
    """
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="maxkernel-calibrate-") as dumps:
        from maxkernel_nb.tpu.aot import worker_environment

        command = [python, "-m", "maxkernel_nb.tpu.calibration.compile", module, chip, str(cache), *names]
        return subprocess.run(command, env={**os.environ, **worker_environment(dumps)}, check=False).returncode


def read_cache(cache: Path) -> Environment:
    """The environment whose programs lie in ``cache``.

    Raises:
        UsageError: nothing was compiled into it.
    """
    files = sorted(cache.glob("*.json"))
    if not files:
        raise UsageError(f"No compiled programs in {cache}: run with --compile first.")
    told = [json.loads(f.read_text(encoding="utf-8")) for f in files]
    programs = {t["name"]: Compiled.from_dict(t["program"]) for t in told}
    made = datetime.date.fromtimestamp(max(f.stat().st_mtime for f in files)).isoformat()
    return Environment(jax=told[0]["jax"], libtpu=told[0]["libtpu"], made=made, programs=programs)


def main(module: str, chip: str, cache: str, *names: str) -> int:
    """The worker: flags and dump folder are set in its environment."""
    programs = importlib.import_module(module)
    failed = 0
    for name in names or programs.names():
        path = Path(cache) / f"{name.replace(':', '_')}.json"
        if path.exists():
            continue
        try:
            path.write_text(json.dumps(_compiled(programs, name, chip)), encoding="utf-8")
            sys.stderr.write(f"{name}: compiled\n")
        except (MaxKernelError, ValueError, TypeError, NotImplementedError, AttributeError) as error:
            failed += 1
            sys.stderr.write(f"{name}: {type(error).__name__}: {str(error)[:300]}\n")
    return 1 if failed else 0


def _compiled(programs: object, name: str, chip: str) -> dict[str, object]:
    import jax
    import jax.export

    from maxkernel_nb.tpu import aot
    from maxkernel_nb.tpu.availability import libtpu_version
    from maxkernel_nb.tpu.dumps import collecting
    from maxkernel_nb.tpu.model import profile_compiled, terms_of

    fn, specs = programs.program(name)  # type: ignore[attr-defined]
    with aot.abstract_mesh(aot.topology_devices(chip)[0]):
        exported = jax.export.export(jax.jit(fn), platforms=["tpu"])(*specs)
    with collecting(aot.dump_folder()) as dumps:
        compiled = aot.compile_exported(bytes(exported.serialize()), chip)
        ops, _ = terms_of(compiled, dumps.folder)
        profile = profile_compiled(compiled, dumps.folder)
    jax.clear_caches()
    program = Compiled(ops=tuple(ops), notes=profile.notes, flops=profile.flops, roofline_ms=profile.roofline_ms)
    return {
        "name": name,
        "jax": jax.__version__,
        "libtpu": libtpu_version(),
        "program": program.model_dump(mode="json", exclude_defaults=True),
    }


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
