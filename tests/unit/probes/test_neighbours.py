"""What a process outside the job is called: enough to find it, and no argument that may hold a secret."""

import pytest

from perfdoctor.probes.readers.neighbours import command_of


@pytest.mark.parametrize(
    ("name", "arguments", "called"),
    [
        ("python3", ["/usr/bin/python3", "-u", "/home/me/other.py", "--password", "x"], "python3 other.py"),
        (
            "python",
            ["python", "-X", "dev", "-m", "torch.distributed.run", "train.py"],
            "python -m torch.distributed.run",
        ),
        ("python", ["python", "-c", "print('secret')"], "python"),
        ("python", ["python"], "python"),
        ("python", [], "python"),
        ("mysql", ["mysql", "customers", "-psecret"], "mysql"),
    ],
)
def test_a_neighbour_is_called_by_its_name_and_a_script_by_its_file(
    name: str, arguments: list[str], called: str
) -> None:
    assert command_of(name, arguments) == called
