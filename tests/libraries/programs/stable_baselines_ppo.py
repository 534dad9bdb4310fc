"""stable-baselines3: PPO and DQN on CartPole for a few hundred steps."""

import torch
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.evaluation import evaluate_policy

torch.set_num_threads(1)
model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, batch_size=32, n_epochs=2, seed=0, device="cpu")
model.learn(192)
print("ppo", *(model.logger.name_to_value[k] for k in ("train/loss", "train/value_loss")))
print("weights", sum(p.sum().item() for p in model.policy.parameters()))
model = DQN("MlpPolicy", "CartPole-v1", learning_starts=20, seed=0, device="cpu", buffer_size=500)
model.learn(120)
print("dqn", sum(p.sum().item() for p in model.q_net.parameters()))
print("reward", *evaluate_policy(model, model.get_env(), n_eval_episodes=2, warn=False))
