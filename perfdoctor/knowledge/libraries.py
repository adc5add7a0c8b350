"""Which source files are a library's, and which are the job's own, by where they lie.

============================  =======================================================================================
a file below or named         is
============================  =======================================================================================
``site-packages``             an installed package's (``pip``, ``conda``; site.getsitepackages())
``dist-packages``             one that Debian or Ubuntu installed (wiki.debian.org/Python)
``lib/python3.N``             the standard library's (sysconfig.get_path("stdlib")); ``lib64`` on Fedora and openSUSE
``torch``                     PyTorch's, also where it is built from source (``pip install -e``)
``<frozen …>``, ``<string>``  the import system's, and code that libraries make (``namedtuple``, ``dataclass``)
``perfdoctor/api.py`` …       perfdoctor's own hooks, where it is not installed but developed
============================  =======================================================================================
"""

import re
import sys

_STANDARD = r"lib(?:64)?/python\d\.\d+"
_FOLDERS = rf"site-packages|dist-packages|{_STANDARD}"
# ``api.py`` was ``inside.py`` once: recordings of then have its frames.
_OWN_HOOKS = r"/perfdoctor/(?:api|inside|lightning|transformers)\.py$|/probes/inside/\w+\.py$"

_INSTALLED = re.compile(rf"/(?:{_FOLDERS})/|/torch/")
_MADE_OR_OURS = re.compile(rf"^<frozen|^<string>|{_OWN_HOOKS}")
_PACKAGE = re.compile(rf"/(?:{_STANDARD}/)?(?:{_FOLDERS})/([^/.]+)")
# torch.profiler takes the beginning of the module search path away, so a package's name begins the file's.
_PROFILED = frozenset((*sys.stdlib_module_names, "torch", "torchgen", "functorch", "triton", "numpy", "perfdoctor"))

# What every step of a job runs: code of its own, PyTorch, and what Python itself makes (as ``package_of`` names them).
OF_A_STEP = frozenset(("", "torch", "python"))
# The standard library's modules that format tracebacks; autograd's anomaly detection does so at every operator.
FORMAT_TRACEBACKS = ("traceback", "linecache")


def is_library(file: str) -> bool:
    """Whether a frame's file is a library's, made by one, or perfdoctor's own; "" is nobody's."""
    return _INSTALLED.search(file) is not None or _MADE_OR_OURS.search(file) is not None


def is_library_in_trace(file: str) -> bool:
    """The same of a file as torch.profiler names it: relative to the module search path where it can be."""
    first = file.partition("/")[0].removesuffix(".py")
    return _INSTALLED.search(file) is not None or first in _PROFILED


def package_of(file: str) -> str:
    """The package that a source file belongs to: ``torch``, ``PIL``, ``json``; "" for the job's own."""
    found = _PACKAGE.search(file)
    if found:
        return found.group(1)
    return "torch" if "/torch/" in file else "python" if file.startswith("<") else ""
