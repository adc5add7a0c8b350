"""PyTorch's test backend for accelerators, with kernels and copies of planned length: for scripts that train on it."""

# ruff: noqa: TID253
import ctypes
import importlib
import os

import torch

BACKEND, KERNELS = "PERFDOCTOR_TEST_ACCELERATOR", "PERFDOCTOR_TEST_KERNELS"
MATRIX = "nvjet_tst_128x256_64x4_2x1_v_bz_TNT"
ELEMENTS = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 3ul> >"
# Of torch, for devices of other people's.
_PRIVATE_USE = 20


class PlayedDevice:
    """One stream of the device, which is torch's current one in the thread that made it.

    Attributes:
        torch: the device as torch has it.
    """

    def __init__(self) -> None:
        importlib.import_module(os.environ[BACKEND])  # unless torch has loaded it by itself
        self.torch = torch.device(torch._C._get_privateuse1_backend_name(), 0)
        torch.ones(1, device=self.torch)  # from now on it is in use
        self._library = ctypes.CDLL(os.environ[KERNELS])
        self._library.device_open.restype = ctypes.c_void_p
        self._library.device_launch.argtypes = (ctypes.c_char_p, ctypes.c_int64)
        self._library.device_copy.argtypes = (ctypes.c_int64, ctypes.c_int64, ctypes.c_int)
        stream = self._library.device_open()
        torch.accelerator.set_stream(torch.Stream(stream_id=stream, device_index=0, device_type=_PRIVATE_USE))

    def launch(self, ms: float, name: str = MATRIX) -> None:
        """Asks for a kernel, and returns at once unless the launch queue is full."""
        self._library.device_launch(name.encode(), int(ms * 1e6))

    def copy(self, ms: float, *, pinned: bool) -> None:
        """Asks for a copy from the host, 10 MB for each ms; from pageable memory it returns when that is done."""
        self._library.device_copy(int(ms * 1e6), int(ms * 1e7), int(pinned))

    def synchronize(self) -> None:
        """Waits for all that was asked."""
        self._library.device_synchronize()

    def work(self, values: torch.Tensor, forward_ms: float, backward_ms: float, name: str = MATRIX) -> torch.Tensor:
        """The same values, after a kernel; in the backward pass comes another one."""
        found: torch.Tensor = _Work.apply(values, self, forward_ms, backward_ms, name)
        return found


class _Work(torch.autograd.Function):
    @staticmethod
    def forward(context, values, device, forward_ms, backward_ms, name):
        context.backward_kernel = device, backward_ms, name
        device.launch(forward_ms, name)
        return values.view_as(values)

    @staticmethod
    def backward(context, gradients):
        device, ms, name = context.backward_kernel
        device.launch(ms, name)
        return gradients, None, None, None, None
