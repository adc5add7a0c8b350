"""An agent acts in few environments at a time, for many short passes, and then learns from what it saw, by PPO.

The fixed state has eight times the environments take an eighth of the steps: as many transitions for each update.

cause: cpu.python_overhead
"""

import torch
from pace import bottleneck, step
from torch import nn
from torch.distributions import Normal

TRANSITIONS, GAMMA = 4096, 0.98


class Agent(nn.Module):
    def __init__(self, width: int = 96):
        super().__init__()
        self.actor, self.critic = (
            nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))
            for _ in range(2)
        )
        self.spread = nn.Parameter(torch.zeros(1))

    def judge(self, states, actions=None):
        policy = Normal(self.actor(states), self.spread.exp())
        actions = policy.sample() if actions is None else actions
        return actions, policy.log_prob(actions).squeeze(-1), self.critic(states).squeeze(-1)


class Pendulums:
    """So many pendulums that are to stand upright."""

    def __init__(self, count: int):
        self.angle, self.speed = torch.rand(count) * 6 - 3, torch.rand(count) * 2 - 1

    def states(self):
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed], 1)

    def push(self, force):
        force = force.squeeze(-1).clamp(-2, 2)
        self.speed = (self.speed + 0.05 * (15 * self.angle.sin() + 3 * force)).clamp(-8, 8)
        self.angle = self.angle + 0.05 * self.speed
        return self.states(), -((self.angle.cos() - 1) ** 2) - 0.1 * self.speed**2


def rollout(agent: Agent, pendulums: Pendulums, length: int):
    seen, states = [], pendulums.states()
    for _ in range(length):
        with torch.no_grad():
            actions, chance, value = agent.judge(states)
        after, rewards = pendulums.push(actions)
        seen.append((states, actions, chance, value, rewards))
        states = after
    states, actions, chances, values, rewards = map(torch.stack, zip(*seen, strict=True))
    returns, after = torch.empty_like(rewards), values[-1]
    for at in reversed(range(length)):
        returns[at] = after = rewards[at] + GAMMA * after
    return [part.flatten(0, 1) for part in (states, actions, chances, returns, returns - values)]


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    count = 8 if bottleneck() else 64
    agent, pendulums = Agent(), Pendulums(count)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4)
    while True:
        states, actions, chances, returns, gains = rollout(agent, pendulums, TRANSITIONS // count)
        for chosen in torch.randperm(TRANSITIONS).repeat(4).split(256):
            _, chance, value = agent.judge(states[chosen], actions[chosen])
            ratio, gain = (chance - chances[chosen]).exp(), gains[chosen]
            better = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
            optimizer.zero_grad()
            (nn.functional.mse_loss(value, returns[chosen]) - better).backward()
            optimizer.step()
        step()


if __name__ == "__main__":
    main()
