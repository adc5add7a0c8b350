"""Actor and critic learn to dodge falling rocks in 64 games, whose frames a convolutional network sees.

cause: cpu.python_overhead
needs: a GPU
fixed: the games are arrays that step together.
"""

import random

import numpy as np
import pace
import torch
from torch import nn

GAMES = 64
GRID, ROCKS = 32, 56
TURNS, WIDTH = (4, 4) if pace.tiny() else (16, 64)


class Game:
    """Rocks fall and drift; the ship at the bottom moves left, stays or moves right."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.reset()

    def reset(self):
        self.ship = GRID // 2
        self.rocks = [self.rock(self.chance.uniform(-GRID, 0)) for _ in range(ROCKS)]

    def rock(self, height):
        return [self.chance.uniform(0, GRID), height, self.chance.uniform(-0.4, 0.4), self.chance.uniform(0.3, 1.2)]

    def step(self, action):
        self.ship = min(max(self.ship + action - 1, 1), GRID - 2)
        hit = False
        for number, rock in enumerate(self.rocks):
            rock[0] = (rock[0] + rock[2]) % GRID
            rock[1] += rock[3]
            if rock[1] >= GRID - 1:
                if abs(rock[0] - self.ship) < 1.5:
                    hit = True
                self.rocks[number] = self.rock(0.0)
        if hit:
            self.reset()
        return self.frame(), -1.0 if hit else 0.05, hit

    def frame(self):
        cells = bytearray(GRID * GRID)
        for x, y, _, speed in self.rocks:
            if y >= 0:
                cells[int(y) * GRID + int(x) % GRID] = int(100 + 100 * speed)
        for x in (self.ship - 1, self.ship, self.ship + 1):
            cells[(GRID - 1) * GRID + x] = 255
        return cells


class Games:
    def __init__(self, count):
        self.games = [Game(seed) for seed in range(count)]

    def frames(self):
        return np.stack([np.frombuffer(game.frame(), np.uint8) for game in self.games]).reshape(-1, 1, GRID, GRID)

    def step(self, actions):
        frames, rewards, ends = [], [], []
        for game, action in zip(self.games, actions.tolist(), strict=True):
            frame, reward, end = game.step(action)
            frames.append(np.frombuffer(frame, np.uint8))
            rewards.append(reward)
            ends.append(end)
        frames = np.stack(frames).reshape(-1, 1, GRID, GRID)
        return frames, np.array(rewards, np.float32), np.array(ends, np.float32)


class Arrays:
    """All games at once."""

    def __init__(self, count):
        self.rng = np.random.default_rng(0)
        self.count = count
        self.ship = np.full(count, GRID // 2)
        self.rocks = self.rock((count, ROCKS))
        self.rocks[..., 1] = self.rng.uniform(-GRID, 0, (count, ROCKS))

    def rock(self, shape):
        low, high = np.array([0, 0, -0.4, 0.3]), np.array([GRID, 0.0, 0.4, 1.2])
        return low + (high - low) * self.rng.random((*shape, 4))

    def frames(self):
        cells = np.zeros((self.count, 1, GRID, GRID), np.uint8)
        game, rock = np.nonzero(self.rocks[..., 1] >= 0)
        x, y, _, speed = self.rocks[game, rock].T
        cells[game, 0, y.astype(int), x.astype(int) % GRID] = 100 + 100 * speed
        for shift in (-1, 0, 1):
            cells[np.arange(self.count), 0, GRID - 1, self.ship + shift] = 255
        return cells

    def step(self, actions):
        self.ship = np.clip(self.ship + actions - 1, 1, GRID - 2)
        self.rocks[..., 0] = (self.rocks[..., 0] + self.rocks[..., 2]) % GRID
        self.rocks[..., 1] += self.rocks[..., 3]
        down = self.rocks[..., 1] >= GRID - 1
        hit = (down & (abs(self.rocks[..., 0] - self.ship[:, None]) < 1.5)).any(1)
        self.rocks[down] = self.rock((int(down.sum()),))
        if hit.any():
            self.ship[hit] = GRID // 2
            fresh = self.rock((int(hit.sum()), ROCKS))
            fresh[..., 1] = self.rng.uniform(-GRID, 0, fresh.shape[:2])
            self.rocks[hit] = fresh
        return self.frames(), np.where(hit, -1.0, 0.05).astype(np.float32), hit.astype(np.float32)


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.eyes = nn.Sequential(
            nn.Conv2d(1, WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(WIDTH, 4 * WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(4 * WIDTH, 4 * WIDTH, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(4 * WIDTH, 8 * WIDTH, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(8 * WIDTH, 4 * WIDTH, 3, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(4 * WIDTH * (GRID // 4) ** 2, 512),
            nn.ReLU(),
        )
        self.actor, self.critic = nn.Linear(512, 3), nn.Linear(512, 1)

    def forward(self, frames):
        seen = self.eyes((frames.float() / 255).contiguous(memory_format=torch.channels_last))
        return self.actor(seen), self.critic(seen).squeeze(-1)


def returns(rewards, ends, last, decay=0.98):
    values = []
    for reward, end in zip(rewards.flip(0), ends.flip(0), strict=True):
        last = reward + decay * last * (1 - end)
        values.append(last)
    return torch.stack(values[::-1])


def main():
    torch.manual_seed(0)
    device = pace.device()
    model = ActorCritic().to(device, memory_format=torch.channels_last)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-4)
    games = Games(GAMES) if pace.bottleneck() else Arrays(GAMES)
    frames = games.frames()
    update, score = 0, 0.0
    while True:
        seen, taken, rewards, ends = [], [], [], []
        for _ in range(TURNS):
            now = torch.from_numpy(frames).to(device)
            with torch.no_grad(), torch.autocast(device.type, torch.bfloat16):
                logits, _ = model(now)
            action = torch.multinomial(logits.float().softmax(1), 1).squeeze(1)
            frames, reward, end = games.step(action.cpu().numpy())
            seen.append(now)
            taken.append(action)
            rewards.append(reward)
            ends.append(end)
        score = 0.95 * score + 0.05 * float(np.mean(rewards))
        rewards = torch.from_numpy(np.stack(rewards)).to(device)
        ends = torch.from_numpy(np.stack(ends)).to(device)
        with torch.autocast(device.type, torch.bfloat16):
            logits, values = model(torch.cat(seen))
        logits, values = logits.float(), values.float().view(TURNS, GAMES)
        goal = returns(rewards, ends, values[-1].detach())
        advantage = (goal - values.detach()).flatten()
        choice = torch.distributions.Categorical(logits=logits, validate_args=False)
        loss = -(choice.log_prob(torch.cat(taken)) * advantage).mean()
        loss = loss + 0.5 * nn.functional.mse_loss(values, goal) - 0.01 * choice.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        update += 1
        if update % 20 == 0:
            print(f"update {update} reward {score:.3f}")
        pace.step()


main()
