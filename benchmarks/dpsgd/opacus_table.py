"""One row of the published DP-SGD tables, run in Opacus itself: the same net, rows, sampling, clip and noise as ours.

    make bench-peers CLAIM=dpsgd    # makes the environment
    .venv-peers/opacus/bin/python benchmarks/dpsgd/opacus_table.py MNIST RATE NOISE CLIP EPOCHS [--keras] [--seed 0]

MNIST is the folder with the four idx files. `--keras` is TF-Privacy's example: rows in 0..1, Keras' first numbers, 234
steps of about 256 rows; without it Opacus' own: standardised rows, PyTorch's first numbers, 250 steps of about 240.
Prints accuracy after each epoch. `crowdml reproduce external/dpsgd` is the same in crowdml.
"""

import argparse
import gzip
import warnings
from pathlib import Path

import numpy as np
import opacus
import torch
from opacus import PrivacyEngine
from torch import nn

ROWS = 60_000


def read(path: Path, skip: int) -> np.ndarray:
    """Read an idx file's bytes."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=skip)


def load(folder: Path, part: str, keras: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Read pictures and labels."""
    pictures = read(folder / f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28).astype(np.float32) / 255
    if not keras:
        pictures = (pictures - 0.1307) / 0.3081
    labels = read(folder / f"{part}-labels-idx1-ubyte.gz", 8).astype(np.int64)
    return torch.from_numpy(pictures.astype(np.float32)), torch.from_numpy(labels)


def net(keras: bool) -> nn.Module:
    """Two convolutions and two dense layers, as both examples have them."""
    made = nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    for layer in made if keras else ():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return made


def main() -> None:
    """Train, and say how good it is after every epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("mnist", type=Path)
    for name in ("rate", "noise", "clip"):
        parser.add_argument(name, type=float)
    parser.add_argument("epochs", type=int)
    parser.add_argument("--keras", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(given.seed)
    rows, labels = load(given.mnist, "train", given.keras)
    test_rows, test_labels = load(given.mnist, "t10k", given.keras)
    share, steps = (256 / ROWS, 234) if given.keras else (0.004, 250)
    model = net(given.keras)
    optimiser = torch.optim.SGD(model.parameters(), lr=given.rate)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows, labels), batch_size=round(share * ROWS))
    # The engine wraps model and optimiser; rows are taken here, each by itself with the same chance in every step.
    private, private_optimiser, _ = PrivacyEngine().make_private(
        module=model,
        optimizer=optimiser,
        data_loader=loader,
        noise_multiplier=given.noise,
        max_grad_norm=given.clip,
        poisson_sampling=False,
    )
    print(f"Opacus {opacus.__version__}, PyTorch {torch.__version__}, seed {given.seed}", flush=True)
    for epoch in range(1, given.epochs + 1):
        private.train()
        for _ in range(steps):
            taken = torch.nonzero(torch.rand(ROWS) < share).flatten()
            private_optimiser.zero_grad()
            # A mean over the rows that should be there, so that a larger draw does not count less.
            loss = nn.functional.cross_entropy(private(rows[taken]), labels[taken], reduction="mean")
            loss.backward()
            private_optimiser.step()
        private.eval()
        with torch.no_grad():
            right = float((model(test_rows).argmax(1) == test_labels).float().mean())
        print(f"epoch {epoch}: test accuracy {right:.4f}", flush=True)


main()
