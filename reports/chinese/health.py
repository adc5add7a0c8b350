"""What is wrong with host, GPUs or fabric, as far as it costs the job time."""

from perfdoctor.diagnosis import Evidence, Fix
from perfdoctor.reports.chinese.phrases import amount, fix, percent


def mend_pcie(*, link: float) -> Fix:
    return fix(
        "恢复 GPU 的完整 PCIe 链路",
        f"负载下这条链路只有 GPU 和主机所能达到的带宽的 {percent(link)}：通道数或速率下降了，拷贝相应变慢。",
    )


def mend_pcie_errors(*, replays: Evidence) -> Fix:
    return fix("检查 GPU 的 PCIe 链路", f"数据包以 {amount(replays)} 的频率重传：链路出错，拷贝要等待重传。")


def mend_nvlink(*, down: float) -> Fix:
    return fix(
        "恢复所有 GPU 的 NVLink",
        f"作业的另一块 GPU 上正常的链路，在某块 GPU 上有 {percent(down)} 断开；集合通信的速度取决于最慢的成员。",
    )


def mend_nvlink_errors(*, errors: Evidence) -> Fix:
    return fix("检查 NVLink", f"传输重传或校验出错，频率为 {amount(errors)}。")


def mend_fabric_link(*, link: float) -> Fix:
    return fix(
        "恢复网络各端口的全速",
        f"一个正在使用的端口只有同型号网卡另一端口速率的 {percent(link)}，而集合通信的速度取决于最慢的端口。",
    )


def mend_fabric(*, errors: Evidence) -> Fix:
    return fix("检查网络链路", f"本机的 InfiniBand 或 RoCE 端口以 {amount(errors)} 的频率报错或重传。")


def replace_gpu(*, errors: Evidence | None, repairs: float) -> Fix:
    found = [f"观测期间驱动报告了 {amount(errors)}（Xid）"] if errors else []
    found += [f"它的显存有 {repairs:g} 处修复尚未完成或已失败"] if repairs else []
    return fix(
        "把有故障的 GPU 移出作业",
        f"作业的一块 GPU 有故障（{'，'.join(found)}），它的耗时不能代表其他 GPU。",
    )


def bind_near_gpu(*, away: float, distance: float | None) -> Fix:
    far = f"，与 GPU 的距离是本地节点的 {distance:.2g} 倍" if distance else ""
    return fix(
        "让每个 rank 在其 GPU 所属的 NUMA 节点上运行",
        f"训练进程的主线程有 {percent(away)} 的时间在另一个 NUMA 节点上运行{far}："
        "kernel 启动和拷贝都要跨越节点间的链路，首次写入发生在那里的锁页内存也一样。",
    )


def raise_core_clock(*, below: float | None, hot: float | None) -> Fix:
    found = [f"频率比所有核都能保持的频率低 {percent(below)}"] if below else []
    found += [f"有 {percent(hot)} 的时间因过热而受限"] if hot else []
    return fix("让 CPU 核以全频运行", f"作业所用的核{'，并且'.join(found)}。")


def leave_host(*, stolen: float) -> Fix:
    return fix("换到没有超售的主机", f"虚拟机监控器把这台机器所需 CPU 时间的 {percent(stolen)} 分给了其他虚拟机。")


def give_memory(*, stalled: float | None, hits: Evidence | None, limit: float | None) -> Fix:
    if stalled is not None:
        why = f"所在 cgroup 的任务有 {percent(stalled)} 的时间在等待内存。"
    else:
        why = f"内存分配以 {amount(hits)} 的频率触及所在 cgroup 的上限。" if hits else ""
    most = f"上限是 {limit / 1e9:.3g} GB。" if limit else ""
    return fix("给作业更多内存，或减少它的需求", f"{why}{most}内核因此回收那些很快又要读取的页。")


def defer_compaction(*, stalls: Evidence) -> Fix:
    return fix("让大页在后台整理", f"内存分配要等待内核把内存归并成大页，频率为 {amount(stalls)}。")
