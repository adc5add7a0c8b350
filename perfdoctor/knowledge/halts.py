"""In what a main thread sits that never goes on: frames, threads and file names that tell kinds of waits apart."""

from perfdoctor.knowledge.frames import meaning

# Debuggers that wait for somebody to type, or to connect.
DEBUGGERS = (
    # breakpoint(), pdb.set_trace(), pdb.post_mortem(); torch.distributed.breakpoint() lets the other ranks wait
    meaning(r"(?:pdb|bdb|cmd|code)\.py", "interaction _cmdloop cmdloop set_trace user_line interact dispatch_line", ""),
    # IPython's and those that are built on pdb
    meaning(r"(?:IPython/(?:core/debugger|terminal/.*)|ipdb/.*|pudb/.*|web_pdb/.*|remote_pdb)\.py", "", ""),
    # debugpy.wait_for_client(), and what VS Code and PyCharm attach
    meaning(
        r"(?:debugpy|pydevd|_pydevd_bundle|_pydev_bundle)/.*\.py", "wait_for_client wait_for_attach do_wait_suspend", ""
    ),
)
# The interpreter's exit: it waits for threads, and calls what was registered with atexit.
EXITS = (
    # threading's wait for threads that are no daemons; concurrent.futures' for its pools'
    meaning(r"threading\.py", "_shutdown", ""),
    meaning(r"concurrent/futures/(?:thread|process)\.py", "_python_exit", ""),
    # multiprocessing's wait for children, in the main process and in forked ones
    meaning(r"multiprocessing/util\.py", "_exit_function", ""),
)
# How the stack of a script's main thread begins (``__main__``, ``python -m``, a forked or spawned child); what begins
# otherwise is called by the interpreter itself, at exit.
BEGINS = ("<module>", "_run_module_as_main", "_bootstrap")
# A lock of a file that is asked for again and again, with sleeps between: no system call tells of it.
FILE_LOCKS_ASKED_FOR = (
    # filelock, as Hugging Face's libraries use for their caches; portalocker, fasteners
    meaning(r"filelock/.*\.py", "acquire", ""),
    meaning(r"portalocker/.*\.py", "acquire", ""),
    meaning(r"fasteners/process_lock\.py", "acquire", ""),
    # torch's, while another process builds an extension (torch.utils.cpp_extension.load)
    meaning(r"torch/utils/file_baton\.py", "wait", ""),
)
# The function that a worker of a pool runs (multiprocessing.Pool, concurrent.futures.ProcessPoolExecutor).
POOL_LOOPS = (
    meaning(r"multiprocessing/pool\.py", "worker", ""),
    meaning(r"concurrent/futures/process\.py", "_process_worker", ""),
)
# What such a worker gets its tasks and gives its results by.
OF_POOLS = (meaning(r"(?:multiprocessing/.*|concurrent/futures/process)\.py", "", ""),)
# Ranks wait for each other to come, or to write into the store.
RENDEZVOUS = (
    # torch.distributed.init_process_group, new_group, split_group; barriers and waits in the store
    meaning(
        r"torch/distributed/distributed_c10d\.py",
        "init_process_group _new_process_group_helper _store_based_barrier new_group split_group",
        "",
    ),
    meaning(r"torch/distributed/(?:rendezvous|elastic/.*|collective_utils)\.py", "", ""),
)
# Calls of torch.distributed in which ranks wait for each other.
IN_COLLECTIVES = (meaning(r"torch/distributed/(?:distributed_c10d|_functional_collectives|nn/functional)\.py", "", ""),)
# Server and client of the store by the name of torch's thread (torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp).
STORE_THREAD = "pt_tcpstore"
TERMINALS = ("file:/dev/pts/", "file:/dev/tty", "file:/dev/console")
# Exceptions that steer a program: what handles them handles no error.
CONTROL_FLOW = frozenset(("StopIteration", "StopAsyncIteration", "GeneratorExit", "Empty", "Full"))
# A thread in one of these gets data as soon as there is some; without a time limit it wakes for nothing else.
GETS_DATA = frozenset(("read", "readv", "recvfrom", "recvmsg", "recvmmsg"))
# What is written is on its way to storage.
TO_STORAGE = frozenset(("fsync", "fdatasync", "sync_file_range", "msync", "syncfs", "write", "pwrite64", "close"))
