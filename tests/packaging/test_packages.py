"""The package list equals the folders, and a wheel holds what an installed notebook needs and nothing else."""

import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
MAPPED = {folder: package for package, folder in SETUPTOOLS["package-dir"].items()}


def folders():
    for top in ("maxkernel_nb", "magics", "widgets", "jaxbench"):
        for init in (ROOT / top).rglob("__init__.py"):
            relative = init.parent.relative_to(ROOT).as_posix()
            if "node_modules" not in relative:
                yield MAPPED.get(relative, relative.replace("/", "."))


def test_the_package_list_equals_the_folders():
    assert sorted(SETUPTOOLS["packages"]) == sorted(folders())


def sources():
    """Every file that is or could be committed: what a fresh clone would hold."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(listing, cwd=ROOT, capture_output=True, check=True).stdout.decode()
    return [name for name in listed.split("\0") if name]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from what a clone holds, with the installed setuptools (no network)."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in sources():
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(source)]
    ran = subprocess.run(build, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_wheel_installs_two_packages_only(wheel):
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {t for t in tops if not t.endswith((".dist-info", ".data"))} == {"maxkernel_nb", "jaxbench"}


def test_the_wheel_holds_every_tracked_module_and_the_built_front_end(wheel):
    names = set(wheel.namelist())
    assert {"maxkernel_nb/widgets/static/panel.js", "maxkernel_nb/widgets/static/panel.css"} <= names
    assert {"maxkernel_nb/widgets/report.jinja", "maxkernel_nb/widgets/report.css", "maxkernel_nb/py.typed"} <= names
    data = {name.partition(".data/data/")[2] for name in names}
    lab = "share/jupyter/labextensions/maxkernel-nb"
    assert {f"{lab}/package.json", f"{lab}/install.json", f"{lab}/schemas/maxkernel-nb/plugin.json"} <= data
    assert "etc/jupyter/jupyter_server_config.d/maxkernel-nb.json" in data
    assert any(name.startswith(f"{lab}/static/remoteEntry") for name in data)
    for package in SETUPTOOLS["packages"]:
        assert f"{package.replace('.', '/')}/__init__.py" in names


def test_data_files_beside_the_code_are_in_the_wheel(wheel):
    """Whatever a module reads from its own folder must travel: prompts, guides, tables."""
    inside = [p for p in sources() if p.startswith(("maxkernel_nb/", "magics/", "widgets/", "jaxbench/"))]
    data = [p for p in inside if not p.endswith(".py") and "/frontend/" not in p]
    expected = {_installed(p) for p in data if (ROOT / p).is_file()}
    assert expected - set(wheel.namelist()) == set()


def _installed(path):
    top, _, rest = path.partition("/")
    return f"{MAPPED.get(top, top).replace('.', '/')}/{rest}"


def test_the_front_ends_sources_stay_out(wheel):
    assert not [n for n in wheel.namelist() if "frontend" in n or "node_modules" in n or n.endswith(".ts")]
