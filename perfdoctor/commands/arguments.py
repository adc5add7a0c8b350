"""Options that several subcommands have, and what others are read by."""

import argparse
from collections.abc import Callable
from urllib.parse import urlsplit

from perfdoctor.reports.language import LANGUAGES

LOOPBACK = "127.0.0.1"


def duration(unit: str, in_a_day: int) -> Callable[[str], float]:
    """Reads a duration of less than a day.

    Args:
        unit: in which it is given, for the message where it is none.
        in_a_day: how many of these a day has.
    """

    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if not 0 < value < in_a_day:
            raise argparse.ArgumentTypeError(f"must be more than 0 and less than a day, in {unit}")
        return value

    return read


def add_steps_argument(parser: argparse.ArgumentParser) -> None:
    """The option to count steps from outside."""
    parser.add_argument(
        "--steps",
        action="store_true",
        help="count the job's steps, as root; puts two probes of the kernel into its code, and takes them out again",
    )


def add_metrics_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that let Prometheus ask."""
    parser.add_argument(
        "--metrics-port",
        type=_port,
        metavar="PORT",
        help="meanwhile answer Prometheus here; 0 takes a port that is free",
    )
    parser.add_argument(
        "--metrics-host",
        default=LOOPBACK,
        metavar="ADDRESS",
        help=f"at this address of the host (default: {LOOPBACK}, for this host only; 0.0.0.0: for everybody)",
    )


def add_live_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Options that let Prometheus ask, and send figures over OTLP."""
    add_metrics_arguments(parser)
    add_otlp_argument(parser)


def add_otlp_argument(parser: argparse.ArgumentParser) -> None:
    """The option that sends figures over OTLP; "" where the environment says to whom."""
    parser.add_argument(
        "--otlp",
        type=_endpoint,
        nargs="?",
        const="",
        metavar="URL",
        help="send the figures over OTLP, to URL or where OTEL_EXPORTER_OTLP_ENDPOINT says; needs 'perfdoctor[otlp]'",
    )


def add_language_argument(parser: argparse.ArgumentParser) -> None:
    """The option of commands that write no reports."""
    parser.add_argument("--lang", choices=LANGUAGES, help="language of what is said (default: by the locale)")


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError("must be a port, 0 to 65535")
    return int(text)


def _endpoint(text: str) -> str:
    if not text:  # argparse reads the constant, too
        return text
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise argparse.ArgumentTypeError("must be a collector's address, http://localhost:4318 for instance")
    return text
