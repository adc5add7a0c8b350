"""Deep Q-learning with a replay memory of Python objects, and a gc.collect() every 60th step "against leaks".

cause: cpu.garbage_collection
fixed: without it.
"""

import gc
import random
from collections import deque

import pace
import torch
from torch import nn

memory = deque(maxlen=30_000)
for _ in range(30_000):
    state = [random.random() for _ in range(8)]
    memory.append({"state": state, "action": random.randrange(4), "reward": random.random(), "next": (state, [False])})
online = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
target = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 4))
optimizer = torch.optim.Adam(online.parameters(), lr=1e-4)
step = 0
while True:
    rows = random.sample(memory, 512)
    states = torch.tensor([row["state"] for row in rows])
    actions = torch.tensor([[row["action"]] for row in rows])
    rewards = torch.tensor([row["reward"] for row in rows])
    with torch.no_grad():
        goal = rewards + 0.99 * target(states).max(1).values
    loss = nn.functional.smooth_l1_loss(online(states).gather(1, actions)[:, 0], goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    if pace.bottleneck() and step % 60 == 0:
        gc.collect()
    pace.step()
