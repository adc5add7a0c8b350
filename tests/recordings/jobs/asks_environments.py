"""An actor and a critic; four environments in processes of their own are asked one after the other.

cause: cpu.input_preprocessing
fixed: all are asked before the first answer is waited for.
"""

import multiprocessing

import numpy as np
import pace
import torch
from torch import nn


class Pendulums:
    """A chain of pendulums; a step of the agent's is 30 small ones of the simulation's."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.start()

    def start(self):
        self.angles, self.speeds, self.age = self.random.uniform(-1, 1, 16), np.zeros(16), 0
        return self.seen()

    def seen(self):
        return np.concatenate([np.cos(self.angles), np.sin(self.angles), self.speeds]).astype(np.float32)

    def step(self, torque):
        push = np.repeat(torque, 4)
        for _ in range(30):
            left, right = np.roll(self.angles, 1), np.roll(self.angles, -1)
            self.speeds += 0.01 * (left + right - 2 * self.angles - np.sin(self.angles) + push - 0.1 * self.speeds)
            self.angles += 0.01 * self.speeds
        self.age += 1
        reward = float(np.cos(self.angles).mean())
        return (self.start() if self.age == 150 else self.seen()), reward


def serve(connection, seed):
    environment = Pendulums(seed)
    connection.send(environment.start())
    while True:
        connection.send(environment.step(connection.recv()))


def ask(connections, torques):
    if pace.bottleneck():
        answers = []
        for connection, torque in zip(connections, torques):
            connection.send(torque)
            answers.append(connection.recv())
    else:
        for connection, torque in zip(connections, torques):
            connection.send(torque)
        answers = [connection.recv() for connection in connections]
    seen, rewards = zip(*answers)
    return torch.from_numpy(np.stack(seen)), torch.tensor(rewards)


torch.set_num_threads(1)
pairs = [multiprocessing.Pipe() for _ in range(4)]
for seed, (_, theirs) in enumerate(pairs):
    multiprocessing.Process(target=serve, args=(theirs, seed), daemon=True).start()
connections = [ours for ours, _ in pairs]
body = nn.Sequential(nn.Linear(48, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh())
actor, critic, spread = nn.Linear(128, 4), nn.Linear(128, 1), nn.Parameter(torch.zeros(4))
parameters = [*body.parameters(), *actor.parameters(), *critic.parameters(), spread]
optimizer = torch.optim.Adam(parameters, lr=3e-4)
seen = torch.from_numpy(np.stack([connection.recv() for connection in connections]))
while True:
    states, actions, rewards = [], [], []
    for _ in range(12):
        with torch.no_grad():
            action = torch.distributions.Normal(actor(body(seen)), spread.exp()).sample()
        states.append(seen)
        actions.append(action)
        seen, reward = ask(connections, action.numpy())
        rewards.append(reward)
    with torch.no_grad():
        worth = critic(body(seen)).squeeze(1)
    returns = []
    for reward in reversed(rewards):
        worth = reward + 0.98 * worth
        returns.insert(0, worth)
    for _ in range(4):
        hidden = body(torch.cat(states))
        advantage = torch.cat(returns) - critic(hidden).squeeze(1)
        chosen = torch.distributions.Normal(actor(hidden), spread.exp()).log_prob(torch.cat(actions)).sum(1)
        loss = advantage.pow(2).mean() - (chosen * advantage.detach()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    pace.step()
