"""The next move in an error. It names tools to agents, in English only, and commands to everybody else."""

from perfdoctor.reports.language import either


def list_processes() -> str:
    return f"{either('`perfdoctor ps`', tool='`list_jobs`')} lists the training jobs of this host."


def name_trainer() -> str:
    return f"Name the process that trains, or one above it; {list_processes()}"


def attach(*, pid: int) -> str:
    return either(f"perfdoctor attach {pid}", tool=f"`attach` with pid {pid}")


def attach_outer(*, inner: int, outer: tuple[int, ...]) -> str:
    listed = ", ".join(map(str, outer))
    return f"In a container, {inner} is the number of the process that is {listed} here: {attach(pid=outer[0])}"


def record_again() -> str:
    return either(
        "Record the job again with `perfdoctor attach PID --recording FILE`.",
        tool="Watch the job again with `attach`, or give the path of another recording.",
    )


def record_or_trace(*, trace: str) -> str:
    record = either(
        "Watch the job with `perfdoctor attach PID --recording FILE`.",
        tool="Give the path of another file or folder, or watch the job with `attach`.",
    )
    return f"{record} For a trace: {trace}"


def read_recording(*, path: str) -> str:
    return either(f"perfdoctor report {path}", tool="`analyze` takes it without traces beside it.")


def analyze_trace(*, path: str) -> str:
    return f"If it is a profiler's trace: {either(f'perfdoctor analyze {path}', tool='`analyze` takes it.')}"


def report_again() -> str:
    return either(
        "Make it anew: perfdoctor report RECORDING --json FILE.json",
        tool="Give the path of the recording that it was made from, or watch the job again with `attach`.",
    )


def list_causes(*, near: tuple[str, ...], known: tuple[str, ...]) -> str:
    meant = f"Did you mean {' or '.join(near)}? " if near else ""
    return meant + either("`perfdoctor explain` lists all of them.", tool=f"There are: {', '.join(known)}.")
