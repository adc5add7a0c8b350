"""The only door to NVML: what a driver or device cannot say becomes None, with the reason kept once."""

from pathlib import Path
from types import ModuleType
from typing import Any

ENABLE = (
    "install the NVIDIA driver; in a container: docker run --gpus all, or a Kubernetes nvidia.com/gpu limit"
)

_LARGEST_CONSTANT = 1 << 16
_LASTING = (
    "NOT_SUPPORTED",
    "FUNCTION_NOT_FOUND",
    "NO_PERMISSION",
    "INVALID_ARGUMENT",
    "GPU_IS_LOST",
    "DEPRECATED",
)


class Nvml:
    """NVML through nvidia-ml-py, imported and initialised by ``open()``.

    Attributes:
        unsupported: why, by name of the function that this driver or device does not have.
    """

    def __init__(self) -> None:
        self.unsupported: dict[str, str] = {}
        self._module: ModuleType | None = None
        self._given_up: set[tuple[str, str, tuple[Any, ...]]] = set()

    def open(self) -> str | None:
        """Loads the library and connects to the driver; returns the reason if that cannot be done."""
        try:
            import pynvml
        except ImportError:
            return "The package nvidia-ml-py is not installed."
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            return f"NVML cannot be used: {error}."
        self._module = pynvml
        return None

    def close(self) -> None:
        """Disconnects from the driver."""
        if self._module is not None:
            self.query("", "nvmlShutdown")
            self._module = None

    def constant(self, name: str) -> Any:
        """A constant or structure of pynvml; None where this version has none."""
        return getattr(self._module, name, None)

    def query(self, device: str, function: str, *arguments: Any) -> Any:
        """Calls a function; None where it is missing, unsupported, not permitted, or has nothing to say now.

        Args:
            device: which device is asked, ``gpu:0`` for instance: what one cannot do, another may.
            function: its name in pynvml. What can never succeed is not called a second time.
            *arguments: its arguments, a device handle first as a rule.
        """
        return self._call(device, function, arguments)[0]

    def samples(self, device: str, function: str, *arguments: Any) -> list[Any] | None:
        """As ``query``, for functions that return samples: an empty list where there are no new ones."""
        answer, error = self._call(device, function, arguments)
        if error in (self.constant("NVML_SUCCESS"), self.constant("NVML_ERROR_NOT_FOUND")) and answer is None:
            return []
        return None if answer is None else list(answer)

    def first(self, device: str, functions: tuple[str, ...], *arguments: Any) -> Any:
        """What the first of several functions says that says anything; newer names come first."""
        for tried, function in enumerate(functions):
            answer = self.query(device, function, *arguments)
            if answer is not None:
                for worse in functions[:tried]:
                    self.unsupported.pop(worse, None)
                return answer
        return None

    def _call(self, device: str, function: str, arguments: tuple[Any, ...]) -> tuple[Any, int | None]:
        """Answer, and NVML's error number; -1 for a call that was not made at all."""
        # What is asked about (a clock, a direction) may decide; handles and time stamps do not.
        about = tuple(value for value in arguments if isinstance(value, int) and value < _LARGEST_CONSTANT)
        call = (device, function, about)
        if self._module is None or call in self._given_up:
            return None, -1
        found = getattr(self._module, function, None)
        if found is None:
            self._give_up(call, "this version of nvidia-ml-py does not have it")
            return None, -1
        try:
            return found(*arguments), None
        except self._module.NVMLError as error:
            if error.value in self._lasting():
                self._give_up(call, str(error))
            return None, int(error.value)

    def _give_up(self, call: tuple[str, str, tuple[Any, ...]], reason: str) -> None:
        self._given_up.add(call)
        self.unsupported.setdefault(call[1], reason)

    def _lasting(self) -> tuple[int | None, ...]:
        return tuple(self.constant(f"NVML_ERROR_{name}") for name in _LASTING)


def why_no_gpu(root: Path, reason: str) -> tuple[str, str]:
    """Reason and remedy where NVML cannot be used, in view of what GPU drivers this machine has."""
    if (root / "proc/driver/nvidia/version").exists():
        return reason, "reload the driver or reboot: its library and kernel module may differ in version"
    if (root / "dev/kfd").exists():
        return (
            "Only NVIDIA GPUs are read so far; this machine has the driver of AMD GPUs.",
            "rocm-smi shows them",
        )
    return f"{reason} This machine shows no NVIDIA driver.", ENABLE
