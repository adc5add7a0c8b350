"""The wheel carries every file of the three source folders, and nothing else."""

import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import perfdoctor
from tests.files import ROOT
from tests.unit.project.sources import FOLDERS, modules

PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
REQUIREMENTS = (ROOT / "requirements-dev.txt").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """Built from a copy, so that nothing is left in the checkout, by the environment's own setuptools."""
    folder = tmp_path_factory.mktemp("a checkout")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    for name in FOLDERS.values():
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = "from setuptools import build_meta; print(build_meta.build_wheel('.'))"
    done = subprocess.run([sys.executable, "-c", build], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(folder.glob("*.whl")))


def test_every_package_is_listed() -> None:
    """A forgotten one would be missing from the wheel without a warning, while an editable installation finds it."""
    block = re.search(r"^packages = \[(.*?)\]", PROJECT, re.DOTALL | re.MULTILINE)
    assert block is not None
    found = {name for name, module in modules().items() if module.path.name == "__init__.py"}
    assert set(re.findall(r'"([\w.]+)"', block[1])) == found


def test_no_source_folder_is_linked_into_another() -> None:
    """What has two paths has two names for mypy, which then checks nothing at all."""
    assert [path for folder in FOLDERS.values() for path in (ROOT / folder).rglob("*") if path.is_symlink()] == []


def test_wheel_holds_every_file_of_the_source(wheel: zipfile.ZipFile) -> None:
    expected = {
        Path(package.replace(".", "/"), path.relative_to(ROOT / folder)).as_posix()
        for package, folder in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == expected
    assert {"perfdoctor/py.typed", "perfdoctor/reports/assets/report.html"} <= held


def test_wheel_brings_the_command_the_licence_and_the_readme(wheel: zipfile.ZipFile) -> None:
    info = f"perfdoctor-{perfdoctor.__version__}.dist-info"
    scripts = configparser.ConfigParser()
    scripts.read_string(wheel.read(f"{info}/entry_points.txt").decode())
    assert scripts["console_scripts"]["perfdoctor"] == "perfdoctor.__main__:main"
    assert b"Apache License" in wheel.read(f"{info}/licenses/LICENSE")
    metadata = wheel.read(f"{info}/METADATA").decode()
    assert f"Version: {perfdoctor.__version__}" in metadata
    assert "License-Expression: Apache-2.0" in metadata
    required = [line for line in metadata.splitlines() if line.startswith("Requires-Dist: torch")]
    assert required
    assert all("extra ==" in line for line in required)


def test_changes_of_this_version_are_told() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"## [{perfdoctor.__version__}]" in changes


def test_requirements_are_pinned_and_name_no_registry() -> None:
    lines = REQUIREMENTS.splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    pinned = re.compile(r'[a-z0-9-]+==[0-9][0-9a-z.]*(; python_version (<|>=) "3\.\d+")?')
    assert [line for line in wanted if not pinned.fullmatch(line)] == []


def test_every_dependency_is_pinned() -> None:
    pinned = set(re.findall(r"^([a-z0-9-]+)==", REQUIREMENTS, re.MULTILINE))
    blocks = re.findall(r"^(?:dependencies|torch|dev) = \[(.*?)\]", PROJECT, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    wanted = {name.lower() for block in blocks for name in re.findall(r'"([A-Za-z0-9-]+)', block)}
    assert wanted - pinned == set()
