"""What a process is by how a library starts it."""

# The program of torch's pool of compilers (torch/_inductor/compile_worker/subproc_pool.py): it has torch loaded, is no
# part of the training, and belongs to the process that has started it.
COMPILE_WORKER = "/torch/_inductor/compile_worker/"
# What multiprocessing's server of processes is started with (multiprocessing/forkserver.py). Those that it forks have
# its command line too; they are the processes of whoever has started it.
FORK_SERVER = "multiprocessing.forkserver"
# And what one is started with that it spawns (multiprocessing/spawn.py): neither says whose program it runs.
SPAWNED = "multiprocessing.spawn"
# Launchers that load torch themselves, by the scripts and modules that are started; they start ranks and train nothing:
# torchrun and its predecessor (torch/distributed/run.py, launch.py), accelerate (accelerate/commands/launch.py), and
# deepspeed, on the first host and on each (deepspeed/launcher/runner.py, launch.py).
LAUNCH_SCRIPTS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed")
LAUNCH_MODULES = (
    *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"),
    *("deepspeed.launcher.runner", "deepspeed.launcher.launch"),
)
