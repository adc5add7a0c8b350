"""What a process is by how a library starts it."""

# The program of torch's pool of compilers (torch/_inductor/compile_worker/subproc_pool.py): it has torch loaded, is no
# part of the training, and belongs to the process that has started it.
COMPILE_WORKER = "/torch/_inductor/compile_worker/"
# What multiprocessing's server of processes is started with (multiprocessing/forkserver.py). Those that it forks have
# its command line too; they are the processes of whoever has started it.
FORK_SERVER = "multiprocessing.forkserver"
# And what one is started with that it spawns (multiprocessing/spawn.py): neither says whose program it runs.
SPAWNED = "multiprocessing.spawn"
# What Ray calls the process of Ray Train's controller, which has torch loaded, starts ranks in other actors and asks
# how they are (ray/train/v2/_internal/execution/controller).
LAUNCH_TITLES = ("ray::TrainController",)
# What a process has mapped that is part of a Ray job (python/ray/_raylet.pyx); and the variable that says of which one,
# in all but the driver, the user's own script (src/ray/raylet/worker_pool.cc).
RAY_LIBRARY = b"/ray/_raylet.so"
RAY_JOB = "RAY_JOB_ID"
# Launchers that load torch themselves, by the scripts and modules that are started; they start ranks and train nothing:
# torchrun and its predecessor (torch/distributed/run.py, launch.py), accelerate (accelerate/commands/launch.py), and
# deepspeed, on the first host and on each (deepspeed/launcher/runner.py, launch.py).
LAUNCH_SCRIPTS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed")
LAUNCH_MODULES = (
    *("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch"),
    *("deepspeed.launcher.runner", "deepspeed.launcher.launch"),
)
