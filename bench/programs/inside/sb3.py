"""Stable-Baselines3: ``PPO``, ``A2C``, ``DQN``, ``SAC`` or ``TD3``."""

import sys

import stable_baselines3
import tiny

KIND = sys.argv[1]
game = "CartPole-v1" if KIND in ("PPO", "A2C", "DQN") else "Pendulum-v1"
options = {} if KIND in ("PPO", "A2C") else {"learning_starts": 100, "batch_size": 64}
if KIND == "DQN":
    options |= {"train_freq": 1}
agent = getattr(stable_baselines3, KIND)("MlpPolicy", game, device="cpu", **options)
leading = agent.critic.optimizer if KIND in ("SAC", "TD3") else agent.policy.optimizer
batch = agent.n_steps * agent.n_envs if KIND == "A2C" else agent.batch_size
tiny.add_clock(leading, lambda: batch)
agent.learn(100_000)
