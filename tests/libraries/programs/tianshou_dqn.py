"""tianshou: a DQN learns from collected steps of CartPole."""

import gymnasium as gym
import numpy as np
import torch
from tianshou.algorithm import DQN
from tianshou.algorithm.modelfree.dqn import DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import Net
from tianshou.utils.torch_utils import policy_within_training_step

np.random.seed(0)
torch.manual_seed(0)
env = gym.make("CartPole-v1")
envs = DummyVectorEnv([lambda: gym.make("CartPole-v1") for _ in range(2)])
envs.seed(0)
net = Net(state_shape=env.observation_space.shape, action_shape=2, hidden_sizes=[16])
policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_training=0.0)
algorithm = DQN(
    policy=policy, optim=AdamOptimizerFactory(lr=1e-2), gamma=0.9, n_step_return_horizon=2
)
collector = Collector(algorithm, envs, VectorReplayBuffer(200, 2))
collector.reset()
found = collector.collect(n_step=60)
print("collected", found.n_collected_steps)
for _ in range(4):
    with policy_within_training_step(policy):
        stats = algorithm.update(buffer=collector.buffer, sample_size=None)
    print("loss", float(stats.loss))
