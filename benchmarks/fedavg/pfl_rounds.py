"""Federated averaging with pfl-research's simulated backend. Prints CPU milliseconds per round and accuracy as JSON.

python pfl_rounds.py DATA.npz ROUNDS
"""

import json
import os
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("PFL_PYTORCH_DEVICE", "cpu")
import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam.base import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel

DEVICES, PER_ROUND, BATCH, RATE = 100, 10, 32, 0.1


class Net(torch.nn.Module):
    """784-200-10."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(784, 200), torch.nn.ReLU(), torch.nn.Linear(200, 10))

    def forward(self, rows):
        """Scores of the labels."""
        return self.layers(rows)

    def loss(self, rows, labels, eval=False):
        """What training minimises."""
        return torch.nn.functional.cross_entropy(self(rows), labels)

    def metrics(self, rows, labels, eval=False):
        """What evaluation counts."""
        right = (self(rows).argmax(1) == labels).sum().item()
        return {"accuracy": Weighted(right, len(labels))}


class Clock(TrainingProcessCallback):
    """Notes the CPU time after each round."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def after_central_iteration(self, aggregate_metrics, model, *, central_iteration):
        """Note the time."""
        self.times.append(time.process_time())
        return False, Metrics()


def main(path: str, rounds: int) -> None:
    """Train, and time all rounds but the first two."""
    with np.load(path) as data:
        rows, labels = torch.from_numpy(data["rows"]), torch.from_numpy(data["labels"].astype(np.int64))
        test_rows, test_targets = torch.from_numpy(data["test_rows"]), torch.from_numpy(data["test_targets"])
    np.random.seed(0)
    torch.manual_seed(0)
    shards = np.random.permutation(len(labels)).reshape(DEVICES, -1)

    def make(user: int) -> Dataset:
        shard = shards[user]
        return Dataset(raw_data=[rows[shard], labels[shard]])

    training = FederatedDataset(make, get_user_sampler("random", list(range(DEVICES))))
    net = Net()
    model = PyTorchModel(
        net, local_optimizer_create=torch.optim.SGD, central_optimizer=torch.optim.SGD(net.parameters(), 1.0)
    )
    backend = SimulatedBackend(training_data=training, val_data=training)
    clock = Clock()
    FederatedAveraging().run(
        backend=backend,
        model=model,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=PER_ROUND,
            val_cohort_size=0,
        ),
        model_train_params=NNTrainHyperParams(local_learning_rate=RATE, local_num_epochs=1, local_batch_size=BATCH),
        model_eval_params=NNEvalHyperParams(local_batch_size=BATCH),
        callbacks=[clock],
    )
    cpu = (clock.times[-1] - clock.times[1]) / (rounds - 2)
    with torch.no_grad():
        accuracy = (net(test_rows).argmax(1) == test_targets).float().mean().item()
    print(json.dumps({"ms": cpu * 1e3, "accuracy": accuracy}))


main(sys.argv[1], int(sys.argv[2]))
