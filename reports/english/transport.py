"""The transport between ranks: settings that are in its way, and networks that it leaves idle."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.english.phrases import amount

_DETOURS = {
    "NCCL_P2P_DISABLE": "GPUs of one host then talk through host memory instead of NVLink or PCIe.",
    "NCCL_SHM_DISABLE": "Ranks of one host then talk through the network stack.",
    "NCCL_IB_DISABLE": "Hosts then talk over TCP instead of InfiniBand or RoCE.",
}


def no_detour(*, name: str, value: str) -> Fix:
    return Fix(f"Unset {name}", f"It is set to {value}. {_DETOURS[name]}", f"unset {name}")


def fast_interface(*, name: str) -> Fix:
    return Fix(
        f"Name the fast interface in {name}",
        "It is set to lo, which reaches no other host.",
        f"{name}=eth0  # see: ip link",
    )


def use_fabric(*, fabric: Evidence, received: Evidence) -> Fix:
    return Fix(
        "Have NCCL use the InfiniBand or RoCE ports",
        f"They receive {amount(fabric)}, while all interfaces receive {amount(received)}: ranks talk over TCP.",
        "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET torchrun ...  # says NET/IB where it uses them, and why not\n"
        "NCCL_IB_HCA=mlx5 torchrun ...  # which ports, see ibv_devices; a container needs --device=/dev/infiniband",
    )


def let_nccl_choose(*, name: str, value: str) -> Fix:
    return Fix(
        f"Try without {name}",
        f"It is set to {value} for all messages; NCCL chooses by their size and the topology otherwise.",
        f"unset {name}",
    )


def log_less() -> Fix:
    return Fix("Lower NCCL_DEBUG", "It is set to TRACE: every call is logged.", "NCCL_DEBUG=WARN")
