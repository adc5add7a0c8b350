"""torch's Flight Recorder, which notes the collectives that a rank calls: where dumps of it lie, and what they hold.

As of torch 2.13, torch/csrc/distributed/c10d/FlightRecorder.{hpp,cpp}; dumps have a version of their own, up to 2.10.
"""

# How the names of dumps begin; the rank follows. The second name is the older one, still read.
PREFIX = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
# Where neither is set: below the user's cache, as torch has named them one after the other, and of torch 2.3 to 2.6.
IN_CACHE = ("torch/comm_lib_trace_rank_", "torch/nccl_trace_rank_")
IN_TMP = "/tmp/nccl_trace_rank_"
# Whoever writes into the named pipe of a rank, this followed by its number and ".pipe", makes it dump (DumpPipe in
# ProcessGroupNCCL.hpp). It is made only where the recorder is on.
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
# The Unix socket on which a rank answers requests (torch.distributed.elastic.control_plane.worker_main), and what to
# ask there for the collectives of NCCL and for those on the CPU.
SERVER = "TORCH_WORKER_SERVER_SOCKET"
HANDLERS = ("dump_nccl_trace_json", "fr_trace_json")
# How dumps begin: a dictionary, pickled by torch (protocol 2), and as JSON.
BEGINNINGS = (b"\x80\x02}", b'{"comm_lib_version"', b'{"entries"', b'{"version"')
# The description of the group of all ranks.
ALL_RANKS = "default_pg"
# A call has ended in this state; gloo's have when they are retired, and are never marked so.
ENDED = "completed"
RETIRED_HAVE_ENDED = "gloo:"
# Of these every rank may have tensors of other sizes (Op.match in
# torch/distributed/flight_recorder/components/types.py, and collectives whose sizes are given for each rank).
SIZES_MAY_DIFFER = frozenset(
    ("all_to_all", "all_to_all_single", "all_to_all_v_single", "scatter", "gather", "all_gather_v", "reduce_scatter_v")
)
