"""The phrasebook for what could not be seen: reasons of probes and traces, and what enables more."""

_PROBES = {
    "The kernel's profiler is refused for process {} ({}). {}": "内核拒绝对进程 {} 使用性能分析器（{}）。{}",
    "too many open files to sample every process's code": "打开的文件太多，无法对每个进程的代码采样",
    "raise ulimit -n for perfdoctor": "为 perfdoctor 调高 ulimit -n",
    "with perfdoctor.diagnose(): in the script": "在脚本中使用 with perfdoctor.diagnose():",
    "run perfdoctor as root": "以 root 身份运行 perfdoctor",
    "Nothing marks its steps.": "没有东西标记它的训练步。",
    "Watching a running process works on Linux only; this is {}.": "只有在 Linux 上才能观测运行中的进程；这里是 {}。",
    "run perfdoctor where the job runs": "在作业运行的地方运行 perfdoctor",
    "Without stacks it is not known whether Python code prepares the input or calls the model, nor at which lines; "
    "that time stays unattributed.": (
        "没有调用栈就不知道 Python 代码是在准备输入还是在调用模型，也不知道在哪些行；这些时间保持未归因。"
    ),
    "This kernel has no user-space probes.": "这个内核没有用户态探针。",
    "a kernel with CONFIG_UPROBE_EVENTS": "使用带有 CONFIG_UPROBE_EVENTS 的内核",
    "Only root may count calls in a process (CAP_PERFMON).": "只有 root 可以对进程中的调用计数（CAP_PERFMON）。",
    "The kernel's user-space probes are refused here ({}).": "这里不允许使用内核的用户态探针（{}）。",
    "The system call bpf is refused here ({}).": "这里不允许使用系统调用 bpf（{}）。",
    "Backward passes are counted, not the steps of optimizers. {}": "计数的是反向传播，不是优化器的步。{}",
    "Steps of process {} are not counted: {}.": "没有对进程 {} 的训练步计数：{}。",
    "There are too many open files to count steps.": "打开的文件太多，无法对训练步计数。",
    "The kernel refuses to count calls in process {} ({}).": "内核拒绝对进程 {} 中的调用计数（{}）。",
    "Process {} makes more than {} of the counted calls per second; counting them would slow it down.": (
        "进程 {} 每秒的被计数调用超过 {} 次；继续计数会使它变慢。"
    ),
    "The driver shows no GPU.": "驱动没有报告任何 GPU。",
    "docker run --gpus all, where in a container": "在容器中：docker run --gpus all",
    "{} This machine shows no NVIDIA driver.": "{}这台机器没有 NVIDIA 驱动。",
    "install the NVIDIA driver; in a container: docker run --gpus all, or a Kubernetes nvidia.com/gpu limit": (
        "安装 NVIDIA 驱动；在容器中：docker run --gpus all，或 Kubernetes 的 nvidia.com/gpu 限额"
    ),
    "reload the driver or reboot: its library and kernel module may differ in version": (
        "重新加载驱动或重启：它的库和内核模块版本可能不一致"
    ),
    "NVML cannot be used: {}.": "无法使用 NVML：{}。",
    "amdsmi cannot be used: {}.": "无法使用 amdsmi：{}。",
    "The Python package amdsmi, which reads AMD's GPUs, cannot be imported.": (
        "无法导入读取 AMD GPU 的 Python 包 amdsmi。"
    ),
    "This machine has the driver of AMD's GPUs. {}": "这台机器有 AMD GPU 的驱动。{}",
    "pip install amdsmi, of the version of the ROCm that is installed": "pip install amdsmi，版本与已安装的 ROCm 一致",
    "Only its driver can tell whether process {} computes on a GPU. {}": (
        "进程 {} 是否在 GPU 上计算，只有驱动知道。{}"
    ),
    "A round of readings of the GPUs broke off: {}: {}.": "一轮 GPU 读数中断：{}：{}。",
    "The GPU's driver has not answered for {} s; what it was asked then is missing.": (
        "GPU 驱动已有 {} 秒没有应答；其间查询的数据缺失。"
    ),
    "look for Xid errors in the kernel's log: the driver hangs": "在内核日志中查找 Xid 错误：驱动卡住了",
    "report it, with the versions of driver and libraries": "请报告这个问题，并附上驱动和库的版本",
    "The interpreter lock of {} cannot be read.": "无法读取 {} 的 GIL。",
    "run the job on {}": "用 {} 运行作业",
    "process {}: {}": "进程 {}：{}",
    "this is a free-threaded CPython: it has no interpreter lock to watch": "这是自由线程的 CPython：没有可观测的 GIL",
    "sample Python stacks (the stacks probe), or run the job on {}": (
        "对 Python 调用栈采样（stacks 探针），或用 {} 运行作业"
    ),
    "Only devices are seen, not what process {} reads and writes. {}": "只能看到设备，看不到进程 {} 的读写。{}",
    "{} marks of process {} came faster than they were read, and are lost.": (
        "进程 {1} 的 {0} 个标记来得比读取快，已丢失。"
    ),
    "Only interfaces are seen, not the sockets of process {}. {}": "只能看到网络接口，看不到进程 {} 的套接字。{}",
    "The job's network interfaces cannot be read.": "无法读取作业的网络接口。",
    "mount /proc": "挂载 /proc",
    "amdsmi does not answer {} here: {}.": "amdsmi 在这里不回答 {}：{}。",
    "NVML does not answer {} here: {}.": "NVML 在这里不回答 {}：{}。",
    "a newer GPU or driver": "使用更新的 GPU 或驱动",
    "CPU quotas cannot be seen here.": "这里看不到 CPU 配额。",
    "mount /sys/fs/cgroup": "挂载 /sys/fs/cgroup",
    "Pressure of {} cannot be read ({}).": "无法读取 {} 的 PSI 压力（{}）。",
    "boot Linux 4.20 or newer with psi=1": "用 psi=1 启动 Linux 4.20 或更新版本",
    "gdb is not installed.": "没有安装 gdb。",
    "gdb cannot let processes call functions on this machine.": "在这台机器上，gdb 无法让进程调用函数。",
    "a newer gdb": "更新的 gdb",
    "apt install gdb, or dnf install gdb": "apt install gdb，或 dnf install gdb",
    "Pending calls were tried on Python 3.10 to 3.13; process {} runs {}.": (
        "pending call 在 Python 3.10 到 3.13 上试过；进程 {} 运行的是 {}。"
    ),
    "{} is partitioned (MIG), and none of its instances is visible.": "{} 已切分（MIG），但看不到它的任何实例。",
    "docker run --gpus with the instance that the job uses, where in a container": (
        "在容器中：docker run --gpus 指定作业所用的实例"
    ),
    "{} is partitioned (MIG), and NVML does not say how busy its instances are; "
    "their memory and processes are read, and power and clocks of the whole GPU.": (
        "{} 已切分（MIG），NVML 不报告实例的繁忙程度；可以读取实例的显存和进程，以及整块 GPU 的功率和频率。"
    ),
    "perfdoctor beside the job on an unpartitioned GPU, or on one from Hopper on": (
        "在未切分的 GPU 上、或在 Hopper 及更新的 GPU 上与作业一同运行 perfdoctor"
    ),
    "kernel.perf_event_paranoid is {}.": "kernel.perf_event_paranoid 为 {}。",
    "Threads are stopped for a moment instead, up to 33 times a second, to see where in machine code they are; "
    "how long they are in the kernel is not seen.": (
        "因此改为让线程短暂停住（每秒最多 33 次），以查看它们位于机器码的何处；它们在内核中停留多久，则看不到。"
    ),
    "The system call ptrace is filtered here ({}).": "系统调用 ptrace 在这里被过滤（{}）。",
    "Machine code is not sampled on {}.": "在 {} 上不对机器码采样。",
    "x86_64 or aarch64": "使用 x86_64 或 aarch64",
    "This kernel has no performance events.": "这个内核没有性能事件。",
    "a kernel with CONFIG_PERF_EVENTS": "使用带 CONFIG_PERF_EVENTS 的内核",
    "perf_event_open fails: {}.": "perf_event_open 失败：{}。",
    "The system call perf_event_open is filtered here ({}).": "系统调用 perf_event_open 在这里被过滤（{}）。",
    "The system call process_vm_readv is filtered here ({}).": "系统调用 process_vm_readv 在这里被过滤（{}）。",
    "kernel.yama.ptrace_scope is {}: {}.": "kernel.yama.ptrace_scope 为 {}：{}。",
    "only descendants may be traced": "只允许跟踪后代进程",
    "only root may trace": "只有 root 可以跟踪",
    "sudo sysctl kernel.yama.ptrace_scope=0, or {}": "sudo sysctl kernel.yama.ptrace_scope=0，或 {}",
    "docker run --cap-add SYS_PTRACE …; in Kubernetes {}": "docker run --cap-add SYS_PTRACE …；在 Kubernetes 中 {}",
    "docker run --security-opt seccomp=unconfined …; in Kubernetes {}": (
        "docker run --security-opt seccomp=unconfined …；在 Kubernetes 中 {}"
    ),
    "{} (and {}, should that not do)": "{}（如果不行，再加上 {}）",
    "Process {} belongs to {}; we are {}.": "进程 {} 属于 {}；当前用户是 {}。",
    "Process {} is protected from being looked at (not dumpable).": "进程 {} 受保护，不允许查看（not dumpable）。",
    "Process {} has capabilities that we lack.": "进程 {} 拥有当前进程没有的 capability。",
    "The kernel forbids tracing process {} (a security module, or another user namespace).": (
        "内核禁止跟踪进程 {}（安全模块，或另一个用户命名空间）。"
    ),
    "kernel.yama.ptrace_scope is 3: nobody may trace until the next boot.": (
        "kernel.yama.ptrace_scope 为 3：下次启动之前任何人都不能跟踪。"
    ),
    "boot with a lower ptrace_scope": "用更低的 ptrace_scope 启动系统",
    "Processes of other users are hidden: /proc is mounted with hidepid.": (
        "看不到其他用户的进程：/proc 以 hidepid 挂载。"
    ),
    "Process {} has just ended.": "进程 {} 刚刚结束。",
    "name a process that goes on": "请给出一个仍在运行的进程",
    "Process {} is not a Python process.": "进程 {} 不是 Python 进程。",
    "name the process that trains, or its launcher": "请给出训练进程或它的启动进程",
    "name the process that trains": "请给出训练进程",
    "sys.remote_exec came with Python 3.14; process {} runs {}.": (
        "Python 3.14 才有 sys.remote_exec；进程 {} 运行的是 {}。"
    ),
    "Process {} was started without remote debugging.": "进程 {} 启动时没有启用远程调试。",
    "py-spy is not installed.": "没有安装 py-spy。",
    "pip install py-spy (0.4 or newer) beside perfdoctor": "与 perfdoctor 一起 pip install py-spy（0.4 或更新）",
    "Process {} has not loaded torch: stacks are sampled, phases of training are not seen.": (
        "进程 {} 没有加载 torch：会对调用栈采样，但看不到训练的阶段。"
    ),
    "py-spy could not read the stacks of process {}: {}": "py-spy 无法读取进程 {} 的调用栈：{}",
    "run `perfdoctor check {}` to see what it needs": "运行 `perfdoctor check {}` 查看需要什么",
    "This py-spy does not know {}.": "这个版本的 py-spy 不支持 {}。",
    "The system calls of process {} stay unseen. {}": "看不到进程 {} 的系统调用。{}",
    "What ends its waits stays unseen. {}": "看不到什么能结束它的等待。{}",
    "threads were sampled at {} Hz instead of {}: more would have cost over {} of a core": (
        "线程以 {} Hz 而不是 {} Hz 采样：再高就会占用超过 {} 的一个核"
    ),
    "{}: more would have burdened the job": "{}：再多就会拖慢作业",
    "main threads of workers were sampled in {} of the ticks, other threads that were awake were sampled in {} of the "
    "ticks": "worker 进程的主线程在 {} 的采样时刻被采样，其他活跃线程在 {} 的采样时刻被采样",
    "main threads of workers were sampled in {} of the ticks": "worker 进程的主线程在 {} 的采样时刻被采样",
    "other threads that were awake were sampled in {} of the ticks": "其他活跃线程在 {} 的采样时刻被采样",
    "{} sleeping threads were looked at every {} s": "{} 个睡眠的线程每 {} 秒查看一次",
    "{} threads were not looked at yet": "{} 个线程还没有查看",
    "the sockets of {} processes were not looked at yet": "{} 个进程的套接字还没有查看",
}

_TRACING = {
    "The job was not started with {}.": "作业启动时没有设置 {}。",
    "start it with {}=1": "启动时设置 {}=1",
    "The job is in another network namespace.": "作业位于另一个网络命名空间。",
    "perfdoctor in its container, or {}": "在它的容器中运行 perfdoctor，或用 {}",
    "Kineto has a daemon already (dynolog, or another perfdoctor).": (
        "Kineto 已有守护进程（dynolog，或另一个 perfdoctor）。"
    ),
    "The trace of torch.profiler is larger than 2 GB.": "torch.profiler 的 trace 超过 2 GB。",
    "The trace of torch.profiler cannot be read: {}.": "无法读取 torch.profiler 的 trace：{}。",
    "The process has not loaded PyTorch.": "进程没有加载 PyTorch。",
    "attach again later": "稍后再 attach",
    "The process is still loading PyTorch.": "进程仍在加载 PyTorch。",
    "This PyTorch is too old to be traced from outside: {}": "这个版本的 PyTorch 太旧，无法从外部 trace：{}",
    "This PyTorch is too old to be traced from outside:": "这个版本的 PyTorch 太旧，无法从外部 trace。",
    "a newer PyTorch": "使用更新的 PyTorch",
    "The script uses torch.profiler itself, so perfdoctor took no trace of its own.": (
        "脚本自己使用了 torch.profiler，所以 perfdoctor 没有另做 trace。"
    ),
    "Python functions are not recorded by way of Kineto's daemon.": "经由 Kineto 守护进程时不记录 Python 函数。",
    "Python functions of the job were not recorded:": "没有记录作业的 Python 函数。",
    "Python functions of the job were not recorded: {}": "没有记录作业的 Python 函数：{}",
    "perfdoctor attach PID --trace, which records none": "perfdoctor attach PID --trace，它不记录 Python 函数",
    "The process was capturing a CUDA graph.": "进程当时正在捕获 CUDA graph。",
    "The process ended before it was traced.": "进程在 trace 之前就结束了。",
    "The main thread ran no Python code: it hangs, is in a long call, or leaves the work to another thread.": (
        "主线程没有运行 Python 代码：它卡住了，处于一个很长的调用中，或把工作交给了另一个线程。"
    ),
    "start the job with KINETO_USE_DAEMON=1": "启动作业时设置 KINETO_USE_DAEMON=1",
    "The trace did not come in time.": "trace 没有及时返回。",
    "The process was not told in time how long to trace.": "没有及时告诉进程要 trace 多久。",
    "The process was not traced: {}.": "没有对进程做 trace：{}。",
    "Process {} is debugging process {}.": "进程 {} 正在调试进程 {}。",
    "Process {} is stopped.": "进程 {} 已暂停。",
    "Another profiler is in process {} ({} is set).": "进程 {} 中已有另一个性能分析器（设置了 {}）。",
    "run the job without it": "不带它运行作业",
    "Kineto did not ask for a daemon in time.": "Kineto 没有及时请求守护进程。",
    "No process that trains was seen, so none was traced.": "没有看到训练进程，所以没有做 trace。",
    "Of {} trainers the first {} were traced.": "{} 个训练进程中只对前 {} 个做了 trace。",
    "The trace was interrupted.": "trace 被中断。",
    "The trace could not be taken: {}.": "无法做 trace：{}。",
    "A setting that was tried could not be taken back: {}.": "尝试过的一个设置无法恢复：{}。",
    "Process {} cannot be reached: {}.": "无法连接进程 {}：{}。",
    "The trace of process {} cannot be read: {}.": "无法读取进程 {} 的 trace：{}。",
    "torch.profiler failed in process {}: {}": "torch.profiler 在进程 {} 中失败：{}",
    "Another perfdoctor traces process {}.": "另一个 perfdoctor 正在对进程 {} 做 trace。",
    "wait until it has ended": "等它结束",
}

_TRACES = {
    "The trace is of a device that perfdoctor does not know ({}); what it did is not known.": (
        "trace 来自 perfdoctor 不认识的设备（{}）；无法知道它做了什么。"
    ),
    "The trace holds no event of a kind that torch.profiler writes: older profilers name none.": (
        "trace 中没有 torch.profiler 所写种类的事件：更早的性能分析器不写种类。"
    ),
    "The trace holds nothing that a GPU did, although there is one: record it with its GPU activity.": (
        "有 GPU，但 trace 中没有它的任何活动：请在记录时包含 GPU 活动。"
    ),
    "The trace holds launches of kernels, and none of the kernels: what the GPU did was not recorded.": (
        "trace 中有 kernel 的启动，却没有 kernel：GPU 做了什么没有记录下来。"
    ),
    "The host waits for a device to read single numbers, and the trace holds nothing that a device did.": (
        "主机在读取单个数值时等待某个设备，而 trace 中没有任何设备的活动。"
    ),
    "The trace of process {} holds no whole step: neither a loader is asked for batches nor does an optimizer of "
    "PyTorch's step, nor a backward pass end, twice.": (
        "进程 {} 的 trace 中没有完整的训练步：没有两次向 DataLoader 请求批次，PyTorch 的优化器没有更新两次，"
        "反向传播也没有结束两次。"
    ),
    "steps that take less than the trace's 5 s, or marks: with diagnose()": (
        "让每步耗时短于 trace 的 5 秒，或做标记：with diagnose()"
    ),
    "The trace is shorter than a millisecond.": "trace 不到一毫秒。",
    "The trace does not show what rank {} does while the others wait for it.": (
        "trace 没有显示其他 rank 等待 rank {} 时它在做什么。"
    ),
    "The trace does not show what rank {} does while the others wait for it. "
    "Its main thread is within {} then, in no operator, call or frame that was recorded.": (
        "trace 没有显示其他 rank 等待 rank {} 时它在做什么。它的主线程当时在 {} 之内，"
        "不处于任何记录下来的算子、调用或栈帧。"
    ),
    "A trace does not show whether threads lack a core meanwhile: on a CPU that looks like arithmetic.": (
        "trace 不能显示线程是否缺少核：在 CPU 上这看起来像是在计算。"
    ),
    "For much of the time the trace shows nothing that any thread does: no operator, call or loader.": (
        "很多时间里 trace 没有显示任何线程的活动：没有算子、调用或 DataLoader。"
    ),
    "Calls have no numbers in the trace, so why the GPU is idle is known for a part of the time.": (
        "trace 中的调用没有编号，所以只知道一部分时间里 GPU 空闲的原因。"
    ),
    "Only a sample of the events is in the trace, so why the GPU is idle is known for a part of the time.": (
        "trace 中只有一部分事件，所以只知道一部分时间里 GPU 空闲的原因。"
    ),
    "Recording makes each launch itself slower, which a trace cannot tell apart, so without a profiler this "
    "cause is smaller. A trace does not show whether the launching thread lacked a core either.": (
        "记录会让每次启动本身变慢，trace 无法把它分开，所以没有性能分析器时这个原因的占比更小。"
        "trace 也不能显示启动线程是否缺少核。"
    ),
    "The trace does not show what {} does outside of PyTorch: it computes, reads, sleeps, or waits.": (
        "trace 没有显示{}在 PyTorch 之外做什么：它在计算、读取、睡眠或等待。"
    ),
    "The trace does not show what {} does outside of PyTorch: it computes, reads, sleeps, or waits. "
    "It is within {} then.": "trace 没有显示{}在 PyTorch 之外做什么：它在计算、读取、睡眠或等待。它当时在 {} 之内。",
    "the main thread": "主线程",
    "the main thread of rank {}": " rank {} 的主线程",
    "A trace does not show what loader workers do while the trainer waits for them.": (
        "trace 不能显示训练进程等待 worker 进程时它们在做什么。"
    ),
    "profile with_stack=True, or perfdoctor attach PID": "用 with_stack=True 做性能分析，或用 perfdoctor attach PID",
    "profile it with_stack=True, or perfdoctor attach PID": "用 with_stack=True 做性能分析，或用 perfdoctor attach PID",
    "profile rank {} with_stack=True, or perfdoctor attach its PID": (
        "用 with_stack=True 对 rank {} 做性能分析，或对它的 PID 使用 perfdoctor attach"
    ),
    "record it again": "重新记录",
    "record it with a recent PyTorch": "用较新的 PyTorch 记录",
    "Events of unknown kinds are left out: {}.": "未知类型的事件没有计入：{}。",
    "an issue with the trace": "请提交 issue 并附上 trace",
    "No GPU activity is in the trace.": "trace 中没有 GPU 活动。",
    "What the GPU did is not in the trace, only its launches.": "trace 中没有 GPU 的活动，只有启动。",
    "let the driver show it to the profiler (NVIDIA: ERR_NVGPUCTRPERM; in WSL a recent driver of Windows), "
    "or perfdoctor attach PID, which needs no trace": (
        "让驱动把它提供给性能分析器（NVIDIA：ERR_NVGPUCTRPERM；在 WSL 中要用较新的 Windows 驱动），"
        "或使用不需要 trace 的 perfdoctor attach PID"
    ),
    "There is a GPU, and most of the time goes into operators that compute on the CPU only.": (
        "有 GPU，但大部分时间花在只能在 CPU 上计算的算子中。"
    ),
    "run it on the GPU: model.to('cuda'), and its inputs as well": "把作业放到 GPU 上：model.to('cuda')，输入也要",
    "where the job uses one: {}": "如果作业使用 GPU：{}",
    "The trace marks no steps, so all of it counts, start and end included.": (
        "trace 没有标记训练步，所以全部计入，包括启动和结束。"
    ),
    "The trace marks no steps, so all that its GPUs do counts, from their first event to their last.": (
        "trace 没有标记训练步，所以 GPU 从第一个事件到最后一个事件所做的全部计入。"
    ),
    "Of the {} s before the first event of a GPU nothing counts.": "GPU 的第一个事件之前的 {} 秒都不计入。",
    "Of the {} s before the first event of a GPU nothing counts. In {} s of them the main thread waits for a batch.": (
        "GPU 的第一个事件之前的 {} 秒都不计入，其中主线程有 {} 秒在等待一个批次。"
    ),
    "profile later steps: {} and prof.step() in the loop": "对更晚的训练步做性能分析：{}，并在循环中调用 prof.step()",
    "record all events: trace fewer steps instead": "记录全部事件：改为 trace 更少的步数",
    "The host's operators are not in the trace, so idle time has few reasons.": (
        "trace 中没有主机的算子，所以空闲时间很少能找到原因。"
    ),
    "perfdoctor attach PID, which does not slow the job down": "perfdoctor attach PID，它不会拖慢作业",
    "perfdoctor attach PID, which sees who has the cores": "perfdoctor attach PID，它能看到谁占用了核",
    "perfdoctor attach PID, which looks into workers": "perfdoctor attach PID，它能看到 worker 进程内部",
    "{}: the same as {} to the nanosecond, so a copy of it and no other rank's trace. It is left out.": (
        "{}：与 {} 逐纳秒相同，所以是它的副本，而不是另一个 rank 的 trace。没有计入。"
    ),
    "give each rank a file of its own, with its rank in the name": "让每个 rank 写自己的文件，文件名中带上 rank",
    "Not all traces say which rank they are of: the files were numbered in their order.": (
        "有的 trace 没有说明属于哪个 rank：按文件的顺序编号。"
    ),
    "By their hosts' clocks the traces lie {} s apart: they may be of different steps, or runs.": (
        "按各主机的时钟，这些 trace 相隔 {} 秒：它们可能来自不同的训练步，或不同的运行。"
    ),
    "{} of the exposed communication is in collectives that were found in one rank's trace only, "
    "so who came late to them is not known.": (
        "{} 的暴露通信所属的集合通信只出现在一个 rank 的 trace 中，所以不知道是谁迟到了。"
    ),
    "The ranks' traces hold different steps; waiting is followed only where their collectives are the same.": (
        "各 rank 的 trace 包含不同的训练步；只在集合通信相同的地方跟踪等待。"
    ),
    "record all ranks with the same profiler schedule": "用相同的 profiler schedule 记录所有 rank",
    "name the files so that their order is that of the ranks": "让文件名的顺序与 rank 的顺序一致",
    "How near operators come to the GPU's peak is not reported: {}.": "无法说明算子与 GPU 峰值的接近程度：{}。",
    "the trace lacks the operators' shapes, types or settings": "trace 中缺少算子的形状、类型或设置",
    "they take less than 10 us each, mostly starting and ending": "它们每个不到 10 us，大部分是启动和结束的开销",
    "torch.profiler.profile(record_shapes=True), of a recent PyTorch": (
        "使用较新 PyTorch 的 torch.profiler.profile(record_shapes=True)"
    ),
    "its limits are not known here ({})": "这里没有它的性能上限（{}）",
    "its name is not in the trace": "trace 中没有它的名称",
    "an issue with its data sheet": "请提交 issue 并附上它的规格表",
}

_FLIGHT_RECORDER = {
    "No rank of this job can be asked for a dump of its Flight Recorder.": (
        "这个作业没有 rank 能按要求给出 Flight Recorder 的转储。"
    ),
    "start the job with TORCH_FR_BUFFER_SIZE=2000 and TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/dump_ (NCCL), or with "
    "TORCH_WORKER_SERVER_SOCKET and torch.distributed.elastic.control_plane.worker_main()": (
        "启动作业时设置 TORCH_FR_BUFFER_SIZE=2000 和 TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/dump_（NCCL），"
        "或者设置 TORCH_WORKER_SERVER_SOCKET 并使用 torch.distributed.elastic.control_plane.worker_main()"
    ),
    "Start the job with TORCH_FR_BUFFER_SIZE=2000, and gather the dumps of all its ranks in one folder.": (
        "启动作业时设置 TORCH_FR_BUFFER_SIZE=2000，并把所有 rank 的转储收集到一个文件夹里。"
    ),
    "{} cannot be read: {}": "无法读取 {}：{}",
}

PHRASES = {**_FLIGHT_RECORDER, **_PROBES, **_TRACING, **_TRACES}
