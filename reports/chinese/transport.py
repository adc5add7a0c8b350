"""The transport between ranks: settings that are in its way, and networks that it leaves idle."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.chinese.phrases import amount, fix

_DETOURS = {
    "NCCL_P2P_DISABLE": "同一主机的 GPU 因此通过主机内存通信，而不是 NVLink 或 PCIe。",
    "NCCL_SHM_DISABLE": "同一主机的 rank 因此通过网络协议栈通信。",
    "NCCL_IB_DISABLE": "主机之间因此通过 TCP 通信，而不是 InfiniBand 或 RoCE。",
}


def no_detour(*, name: str, value: str) -> Fix:
    return fix(f"取消设置 {name}", f"它被设为 {value}。{_DETOURS[name]}")


def fast_interface(*, name: str) -> Fix:
    return fix(f"在 {name} 中指定高速网卡", "它被设为 lo，而 lo 到不了其他主机。")


def use_fabric(*, fabric: Evidence, received: Evidence) -> Fix:
    return fix(
        "让 NCCL 使用 InfiniBand 或 RoCE 端口",
        f"这些端口的接收速率是 {amount(fabric)}，而所有网络接口一共是 {amount(received)}：rank 之间在用 TCP 通信。",
    )


def let_nccl_choose(*, name: str, value: str) -> Fix:
    return fix(f"试试不设置 {name}", f"它对所有消息都设为 {value}；不设置时，NCCL 会根据消息大小和拓扑来选择。")


def log_less() -> Fix:
    return fix("调低 NCCL_DEBUG", "它被设为 TRACE：每次调用都写日志。")
