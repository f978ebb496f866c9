"""Words of other frameworks, and what they are called here.

Who comes from Flower, pfl, FedML or Opacus types what they are used to. A key that is theirs is answered with ours; a
test requires that every key named here exists.
"""

from __future__ import annotations

import re

_RATE = 'algorithm.rate, a table: rate = { kind = "constant", c = 0.1 }'
_ROUNDS = "crowd.passes (times the crowd goes through its rows), or stop.max-versions (end after so many versions)"
_DEVICES = "crowd.devices: a participant is called device"
_COHORT = "algorithm.per-round, where devices are invited to rounds (fedavg, fedsgd)"
_BATCH = "algorithm.batch (crowd-sgd), or algorithm.local-batch (local-sgd, fedavg)"
_EPOCHS = "algorithm.epochs (of a round of fedavg), or crowd.passes (times the crowd goes through its rows)"
_CLIP = "privacy.clip"
_NOISE = "privacy.epsilon: the noise follows from what is promised"
_PRIVATE = 'privacy.mode = "sound", with privacy.epsilon and privacy.max-uses'
_MASKED = "sums.masked = true"
_KIND = 'algorithm.kind, such as "crowd-sgd" or "fedavg"'
_PARTITION = 'crowd.partition, a table: partition = { kind = "dirichlet", alpha = 0.5 }'
_DECAY = "model.regularisation"
_HIDDEN = 'model.layers (of kind = "mlp"), such as [75, 75]'
_CLASSES = "data.labels: the names of all labels"
_FEATURES = "data.features: numbers in a row"
_SEED = "no key of the task: seed and trials are given when it is simulated"

WORDS = {
    "lr eta learning-rate client-lr server-lr local-lr local-rate step-size client-learning-rate": _RATE,
    "momentum": 'algorithm.rate, a table: rate = { kind = "momentum", c = 0.1 }',
    "rounds num-rounds n-rounds comm-round comm-rounds max-rounds total-rounds global-rounds num-server-rounds "
    "iterations central-num-iterations steps num-steps max-steps": _ROUNDS,
    "client clients num-clients n-clients client-num-in-total nodes num-nodes num-supernodes workers num-workers users "
    "num-users population participants num-devices": _DEVICES,
    "cohort cohort-size clients-per-round client-num-per-round devices-per-round fraction-fit fraction-train "
    "min-fit-clients sample-fraction": _COHORT,
    "bs batch-size minibatch mini-batch local-batch-size train-batch-size": _BATCH,
    "epochs epoch local-epochs num-epochs n-epochs client-epochs": _EPOCHS,
    "noise-multiplier noise sigma noise-level noise-std": _NOISE,
    "max-grad-norm clip-norm clipping-norm clipping-bound clipping-threshold l2-norm-clip grad-clip sensitivity": _CLIP,
    "eps target-epsilon privacy-budget": "privacy.epsilon: the total over the task",
    "target-delta": "privacy.delta",
    "dp use-dp enable-dp ldp local-dp differential-privacy dp-sgd": _PRIVATE,
    "secagg sec-agg secaggplus secure-aggregation secure-sum masking": _MASKED,
    "strategy optimizer optimiser aggregator aggregation fl-algorithm federated-optimizer": _KIND,
    "non-iid noniid alpha dirichlet dirichlet-alpha partitioner partition-method partition-alpha": _PARTITION,
    "weight-decay l2 reg regularization lambda wd": _DECAY,
    "hidden hidden-layers hidden-sizes num-hidden units": _HIDDEN,
    "classes num-classes n-classes output-dim": _CLASSES,
    "num-features n-features input-dim input-size input-shape": _FEATURES,
    "dropout dropout-rate dropouts": "crowd.drop-out: part of the check-ins that never arrive",
    "delay latency": "crowd.delays, a table: delays = { request = 10.0 }",
    "staleness": "algorithm.max-staleness",
    "byzantine attackers malicious": 'crowd.attack, a table: attack = { kind = "sign" }',
    "seed random-seed trials repeats num-trials": _SEED,
}
_BY_WORD = {word: ours for words, ours in WORDS.items() for word in words.split()}


def ours_for(word: str) -> str:
    """Return what a word of another framework is here; empty where it is none.

    >>> ours_for("num_clients")
    'crowd.devices: a participant is called device'
    """
    hyphens = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", word).lower().replace("_", "-")
    return _BY_WORD.get(hyphens, "")
