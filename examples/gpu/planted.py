"""The jobs with a planted bottleneck that need a GPU: examples, and jobs of the corpus of recordings."""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
import jobs

from tests.recordings import record

FOLDER = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Planted:
    """One job.

    Attributes:
        name: of the example's folder, or of the corpus job's file.
        script: what is run.
        expected: the cause that a diagnosis should name.
        about: what the job does, in a sentence.
        straggler: the rank that the others wait for, if there is one.
        example: it takes the examples' options, and can be looked at from inside.
    """

    name: str
    script: Path
    expected: str
    about: str
    straggler: int | None
    example: bool

    @property
    def sound(self) -> bool:
        return self.expected in (jobs.HEALTHY, jobs.HEALTHY_ON_GPU)

    @property
    def kept_as(self) -> str:
        """What its recording is called in the corpus."""
        return f"gpu_{self.name.removesuffix('_gpu_training')}"

    @property
    def text(self) -> str:
        return self.script.read_text()

    @property
    def ranks(self) -> int:
        """It starts itself as so many, by torchrun."""
        return 2 if "under_torchrun()" in self.text else 1

    def words(self, state: str, seconds: float) -> list[str]:
        """Its command line in a state; a corpus job runs until it is ended."""
        return [state, "--seconds", str(seconds)] if self.example else [state]

    def imports(self) -> list[str]:
        """The libraries that may be imported before the job begins.

        None of them if it writes into its environment first, which libraries read on import, or if the process that
        begins is only its launcher.
        """
        if self.ranks > 1 or re.search(r"^os\.environ", self.text, re.MULTILINE):
            return []
        found = {}
        for node in ast.parse(self.text).body:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found.update(dict.fromkeys(name.split(".")[0] for name in names))
        places = (self.script.parent, FOLDER, jobs.EXAMPLES)
        own = {name for name in found if any((place / f"{name}.py").exists() for place in places)}
        return [name for name in found if name not in own | set(sys.stdlib_module_names)]


def every() -> list[Planted]:
    """All of them, examples first."""
    found = [_of_example(example) for example in jobs.examples() if example.needs_gpu]
    for script in sorted(record.JOBS.glob("*.py")):
        said = record.described(script.stem)
        if "needs" in said:
            straggler = int(said["straggler"]) if "straggler" in said else None
            found.append(Planted(script.stem, script, said["cause"], said["about"], straggler, False))
    return found


def chosen(names: list[str]) -> list[Planted]:
    """Those named, in that order; all without names."""
    known = {planted.name: planted for planted in every()}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no such job: {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def _of_example(example: jobs.Example) -> Planted:
    folder = jobs.EXAMPLES / example.name
    about = (folder / "README.md").read_text().split("\n\n")[1].replace("\n", " ")
    name = example.name.removeprefix("gpu/")
    return Planted(name, folder / "train.py", example.expected, about, example.straggler, True)
