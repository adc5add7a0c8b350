"""What a process is by how a library starts it."""

# The program of torch's pool of compilers (torch/_inductor/compile_worker/subproc_pool.py): it has torch loaded, is no
# part of the training, and belongs to the process that has started it.
COMPILE_WORKER = "/torch/_inductor/compile_worker/"
# What multiprocessing's server of processes is started with (multiprocessing/forkserver.py). Those that it forks have
# its command line too; they are the processes of whoever has started it.
FORK_SERVER = "multiprocessing.forkserver"
# And what one is started with that it spawns (multiprocessing/spawn.py): neither says whose program it runs.
SPAWNED = "multiprocessing.spawn"
