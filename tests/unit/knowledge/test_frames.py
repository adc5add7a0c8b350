"""What is a library's file and what is the job's own is known from where it lies."""

import pytest

from perfdoctor.knowledge.frames import is_library, is_library_in_trace, package_of

# What torch.compile writes, in a cache of the job's own.
COMPILED = "/home/me/.cache/inductor/bx/cbx4t3ichr3o4r5iih4airjasmsxwetxw56b3hntvnmovrlfiwbm.py"


def test_packages_are_told_from_paths() -> None:
    assert package_of("/v/lib/python3.11/site-packages/PIL/Image.py") == "PIL"
    assert package_of("/usr/lib/python3.11/json/encoder.py") == "json"
    assert package_of("/usr/lib/python3.11/queue.py") == "queue"
    assert package_of("/src/pytorch/torch/nn/modules/linear.py") == "torch"
    assert package_of(COMPILED) == "torch"
    assert package_of("/home/me/train.py") == ""


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/v/lib/python3.11/site-packages/PIL/Image.py", True),
        ("/usr/lib/python3/dist-packages/yaml/loader.py", True),
        ("/usr/lib64/python3.12/json/encoder.py", True),
        ("/src/pytorch/torch/nn/modules/linear.py", True),
        ("<frozen importlib._bootstrap>", True),
        (COMPILED, True),
        ("/home/me/bx/cbx.py", False),
        ("<string>", True),
        ("/home/me/perfdoctor/perfdoctor/api.py", True),
        ("/home/me/perfdoctor/probes/inside/ring.py", True),
        ("/home/me/perfdoctor/probes/treated/steps.py", True),
        ("/home/me/train.py", False),
        ("/home/me/torch_utils/data.py", False),
        ("<@beartype(__main__.Net.forward) at 0x7f00>", True),
        ("<eval_with_key>.3", True),
        ("<ipython-input-1-abc>", False),
        ("<stdin>", False),
        ("<command-1234-5678>", False),
    ],
)
def test_libraries_are_told_from_the_jobs_own_files(file: str, library: bool) -> None:
    assert is_library(file) == library


def test_a_trace_names_libraries_from_the_search_path_on() -> None:
    """As torch.profiler does it: without the folder in which they lie."""
    for file in ("torch/nn/modules/linear.py", "json/encoder.py", "queue.py", "triton/runtime/jit.py"):
        assert is_library_in_trace(file)
    assert not is_library_in_trace("train.py")
    assert not is_library_in_trace("/home/me/train.py")
