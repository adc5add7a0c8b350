"""Proximal policy optimisation on a cart with a pole; the environments are stepped one after the other in Python.

cause: cpu.input_preprocessing
fixed: all environments are stepped at once with NumPy.
"""

import math
import random

import numpy as np
import pace
import torch
from torch import nn

ENVIRONMENTS, HORIZON, EPOCHS, MINIBATCHES, SUBSTEPS = 64, 32, 4, 4, 4


class Cart:
    def __init__(self):
        self.reset()

    def reset(self):
        self.x, self.v, self.angle, self.spin = (random.uniform(-0.05, 0.05) for _ in range(4))
        return [self.x, self.v, self.angle, self.spin]

    def step(self, action):
        for _ in range(SUBSTEPS):
            self.move(action)
        done = abs(self.x) > 2.4 or abs(self.angle) > 0.21
        return (self.reset() if done else [self.x, self.v, self.angle, self.spin]), 1.0, done

    def move(self, action):
        force = 10.0 if action == 1 else -10.0
        cosine, sine = math.cos(self.angle), math.sin(self.angle)
        inner = (force + 0.05 * self.spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * inner) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        push = inner - 0.05 * turn * cosine / 1.1
        self.x, self.v = self.x + 0.02 * self.v, self.v + 0.02 * push
        self.angle, self.spin = self.angle + 0.02 * self.spin, self.spin + 0.02 * turn


class OneByOne:
    def __init__(self):
        self.carts = [Cart() for _ in range(ENVIRONMENTS)]

    def reset(self):
        return np.array([cart.reset() for cart in self.carts], dtype=np.float32)

    def step(self, actions):
        seen, rewards, dones = zip(*[cart.step(a) for cart, a in zip(self.carts, actions, strict=True)], strict=True)
        return np.array(seen, np.float32), np.array(rewards, np.float32), np.array(dones, np.float32)


class AllAtOnce:
    def reset(self):
        self.state = np.random.uniform(-0.05, 0.05, (ENVIRONMENTS, 4)).astype(np.float32)
        return self.state

    def step(self, actions):
        state = self.state
        for _ in range(SUBSTEPS):
            state = self.move(state, actions)
        dones = (np.abs(state[:, 0]) > 2.4) | (np.abs(state[:, 2]) > 0.21)
        state[dones] = np.random.uniform(-0.05, 0.05, (int(dones.sum()), 4))
        self.state = state.astype(np.float32)
        return self.state, np.ones(ENVIRONMENTS, np.float32), dones.astype(np.float32)

    def move(self, state, actions):
        x, v, angle, spin = state.T
        cosine, sine = np.cos(angle), np.sin(angle)
        inner = (np.where(actions == 1, 10.0, -10.0) + 0.05 * spin**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * inner) / (0.5 * (4.0 / 3.0 - 0.1 * cosine**2 / 1.1))
        push = inner - 0.05 * turn * cosine / 1.1
        return np.stack([x + 0.02 * v, v + 0.02 * push, angle + 0.02 * spin, spin + 0.02 * turn], 1)


torch.set_num_threads(1)
policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 3))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
environments = OneByOne() if pace.bottleneck() else AllAtOnce()
seen = environments.reset()
while True:
    observations, actions, logs, rewards = [], [], [], []
    for _ in range(HORIZON):
        with torch.no_grad():
            out = policy(torch.from_numpy(seen))
        chosen = torch.distributions.Categorical(logits=out[:, :2])
        action = chosen.sample()
        observations.append(torch.from_numpy(seen))
        actions.append(action)
        logs.append(chosen.log_prob(action))
        seen, reward, _ = environments.step(action.numpy())
        rewards.append(torch.from_numpy(reward))
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0).flatten() / HORIZON
    states, taken, old = torch.cat(observations), torch.cat(actions), torch.cat(logs)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(states)).chunk(MINIBATCHES):
            out = policy(states[rows])
            now = torch.distributions.Categorical(logits=out[:, :2])
            advantage = returns[rows] - out[:, 2]
            ratio = (now.log_prob(taken[rows]) - old[rows]).exp()
            gain = torch.minimum(ratio * advantage.detach(), ratio.clamp(0.8, 1.2) * advantage.detach())
            loss = -gain.mean() + 0.5 * advantage.pow(2).mean() - 0.01 * now.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    pace.step()
