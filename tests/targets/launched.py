"""Two ranks that train together, started by many launchers: rank 1 takes longer to load what it trains on.

Its arguments say how ranks come to their numbers, and the file to which each of them writes its process id and rank
once it trains.
"""

# ruff: noqa: TID253
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

SLOW, WORLD = 1, 2


class Items(torch.utils.data.Dataset):
    def __init__(self, rank):
        self.seconds = 0.02 if rank == SLOW else 0.004

    def __len__(self):
        return 1_000_000

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return torch.rand(64)


def network():
    torch.set_num_threads(1)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))


def loader(rank):
    return torch.utils.data.DataLoader(Items(rank), batch_size=8, num_workers=1)


def say(rank, told):
    with open(told, "a") as file:
        file.write(f"{os.getpid()} {rank}\n")


def train(model, rank, told, backward=torch.Tensor.backward):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step, batch in enumerate(loader(rank)):
        optimizer.zero_grad()
        backward(model(batch).square().mean())
        optimizer.step()
        if step == 5:
            say(rank, told)


def by_environment(told):
    dist.init_process_group("gloo")
    train(nn.parallel.DistributedDataParallel(network()), dist.get_rank(), told)


def by_arguments(rank, told, meeting):
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=WORLD)
    train(nn.parallel.DistributedDataParallel(network()), rank, told)


def by_variables(told, meeting, variable):
    by_arguments(int(os.environ[variable]), told, meeting)


def by_hand(told, meeting, rank):
    by_arguments(int(rank), told, meeting)


def _backwards(index, told, meeting):
    by_arguments(WORLD - 1 - index, told, meeting)


def by_spawning(told, meeting):
    """The first one that is started is the last rank."""
    torch.multiprocessing.spawn(_backwards, (told, meeting), WORLD)


def by_accelerate(told):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    train(accelerator.prepare(network()), accelerator.process_index, told, accelerator.backward)


def by_deepspeed(told, *_):
    import deepspeed

    deepspeed.init_distributed("gloo")
    model, how = network(), {"train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "SGD", "params": {"lr": 0.001}}}
    engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=how)
    for step, batch in enumerate(loader(dist.get_rank())):
        engine.backward(engine(batch).square().mean())
        engine.step()
        if step == 5:
            say(dist.get_rank(), told)


def by_ray(told):
    import ray
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer, prepare_model

    def loop(config):
        import launched

        rank = ray.train.get_context().get_world_rank()
        launched.train(prepare_model(launched.network()), rank, config["told"])

    here = {"env_vars": {"PYTHONPATH": os.path.dirname(os.path.abspath(__file__))}}
    ray.init(num_cpus=WORLD + 2, include_dashboard=False, object_store_memory=100_000_000, runtime_env=here)
    where = RunConfig(storage_path=f"{told}.ray")
    TorchTrainer(
        loop, train_loop_config={"told": told}, scaling_config=ScalingConfig(num_workers=WORLD), run_config=where
    ).fit()


if __name__ == "__main__":
    # deepspeed puts an option of its own before them.
    how, told, *more = [word for word in sys.argv[1:] if not word.startswith("--")]
    globals()[f"by_{how}"](told, *more)
