"""PyTorch's own test backend for accelerators, where it is installed, and the kernels that tests play on it.

It is a device with streams, events and threads of its own that needs no hardware. Its package is no part of the
project: install PyTorch's ``torch_openreg`` (``test/cpp_extensions/open_registration_extension`` of its source) or a
package like it, or name its module in ``PERFDOCTOR_TEST_ACCELERATOR``.
"""

import importlib.util
import os
import shutil
import subprocess
from pathlib import Path

from tests.files import TARGETS

BACKEND, KERNELS = "PERFDOCTOR_TEST_ACCELERATOR", "PERFDOCTOR_TEST_KERNELS"
KNOWN = ("torch_openreg", "torch_accinte")
RUNTIME = "libopenreg.so"


def why_none() -> str:
    """Why there is no accelerator to test on; "" if there is one."""
    named = os.environ.get(BACKEND)
    backend = find_backend()
    if backend is None:
        looked = f"{BACKEND}={named}" if named else " or ".join(KNOWN)
        return f"no test backend of torch for accelerators here: cannot import {looked}"
    if not (_package(backend) / "lib" / RUNTIME).exists():
        return f"no test backend of torch for accelerators here: {backend} has no {RUNTIME}"
    return "" if shutil.which("c++") else "no C++ compiler for the kernels of the test backend here"


def find_backend() -> str | None:
    """The module of the backend; None if it cannot be imported here."""
    named = os.environ.get(BACKEND)
    return next((one for one in ([named] if named else KNOWN) if importlib.util.find_spec(one) is not None), None)


def build(folder: Path) -> dict[str, str]:
    """Builds the kernels (4 s), and gives the environment of jobs that train on the device.

    Args:
        folder: for the library.

    Raises:
        subprocess.CalledProcessError: it cannot be compiled.
    """
    backend, library = find_backend(), folder / "libdevice_kernels.so"
    assert backend is not None
    torch, runtime = _package("torch"), _package(backend) / "lib"
    # The headers of Kineto come with torch.
    include = [f"-I{torch / 'include' / 'kineto'}", f"-I{torch / 'include'}", "-DFMT_HEADER_ONLY=1"]
    link = [f"-L{torch / 'lib'}", "-ltorch_cpu", f"-L{runtime}", "-lopenreg", f"-Wl,-rpath,{runtime}"]
    flags = ["-std=c++17", "-O1", "-shared", "-fPIC"]
    subprocess.run(["c++", *flags, *include, TARGETS / "device_kernels.cpp", "-o", library, *link], check=True)
    return {BACKEND: backend, KERNELS: str(library)}


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
