"""The page on speed: what each benchmark printed, from the records in `results/speed`."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path

from docs.writers.phrases import GENERATED

RECORDS = Path(__file__).parents[2] / "results" / "speed"

INTRODUCTION = """\
Every block below is what one command printed at the named commit; `python benchmarks/record.py NAME COMMAND …` runs a
command and keeps its output in `results/speed/NAME.json`, from where this page is written. Figures are CPU time
unless the words say clock, and compiling is apart. Single figures vary by a third on shared cores, and the load of
the machine before the run is given; ratios were measured in one run.
[Why loops are fast](../decisions/0004-fast-loops.md), [why private steps are](../decisions/0006-private-steps.md)."""

SECTIONS = (
    (
        "start",
        "From typing to result",
        "Most of a short run is starting. A worker process imports JAX while the command reads the task and its "
        "rows; compiled programs are kept in the user's cache folder (`crowdml cache`), so the second start does not "
        "compile; and a run of a few hundred check-ins takes NumPy instead (`--engine auto`). Programs are compiled "
        "for shapes, which are rounded up: rows, check-ins and past versions by at most an eighth, trials per core "
        "by a quarter.",
    ),
    (
        "cores",
        "All cores",
        "Trials and cells of a sweep run in one worker process per core, and so do the devices of a round when there "
        "is a single trial: each process works for its part of them and all absorb the same check-ins in the same "
        "order. Rows lie in memory that the processes share.",
    ),
    (
        "loops",
        "Check-ins of small models",
        "Softmax regression of 50 × 10 parameters, 1,000 devices, beside an obvious NumPy loop and a tuned loop in "
        "C. The timeline (who checks in when, with which rows) is made before any number is known; its cost is "
        "shown, and counted. Stale: delays of up to 333 samples of the crowd on each of the three legs of a contact.",
    ),
    (
        "simulation",
        "Devices and delays",
        "The cost of an update does not depend on the number of devices, as long as the table of counts per device, "
        "where there is one, stays in the cache. 1000Δ: up to 3,000 versions of staleness.",
    ),
    (
        "own-data",
        "Rows from Parquet",
        "Memory of `crowdml simulate` on a Parquet file of millions of rows, of all its processes together and above "
        "that of the same run on a thousand rows: the table is there once, as float32, whatever the trials.",
    ),
    (
        "fedavg",
        "Federated averaging",
        "Most of a picture is zero. Columns that are zero in nearly all rows are left out of the first layer's "
        "products, and what they hold is added number by number; the model is the same up to rounding. Others could "
        "do this too, and do not, so whole rows are shown beside it. It is chosen by counting, when a simulation "
        "begins, where it saves a tenth of the first layer's work: for devices that take local steps, a dense first "
        "layer, and a rate that keeps no memory, without decay of the weights.",
    ),
    (
        "cnn",
        "Convolutions",
        "A training step of a net for CIFAR-10 beside PyTorch with channels last, on one thread each, and what "
        "measuring costs beside training on as many rows.",
    ),
    (
        "dpsgd",
        "A private step",
        "A convolution's gradients of single rows are one batched product of unfolded windows and slopes, with as "
        "many multiplications as the plain gradient; norms and the clipped sum then cost next to nothing.",
    ),
    (
        "fig2",
        "Figure 2 of the Crowd-ML library",
        "Thirty cells of a net 50-75-75-10, 1,000 check-ins of 10 steps on 100 rows.",
    ),
    (
        "serving",
        "The server",
        "CPU time of the server's process per check-in, beside an echo of the same body on the same protocol. A "
        "durable check-in is token, pace, header, limits, fold, transaction and answer; the more devices wait, the "
        "more go into one transaction.",
    ),
    (
        "against-echo",
        "Large models",
        "CPU time of the server's process per check-in, by the number of parameters, beside an echo that reads the "
        "body as any application on uvicorn does and answers with as many bytes as a receipt has; how many echoes a "
        "check-in costs, by the best turn of each. Then beside an echo that sends the body back, and one that reads "
        "as check-ins are read, from the socket straight into place: most of what a large check-in costs above that "
        "is its SHA-256, and folding it in. With one connection every check-in is a transaction of its own, in which "
        "the whole state is written.",
    ),
    (
        "own-models",
        "Models of your own",
        "A round of federated averaging with an MLP of flax beside our own MLP, the same with every row's gradient "
        "clipped by itself, and one of PyTorch beside a plain PyTorch loop; compiling is apart. Needs PyTorch: "
        "`make test-torch` makes an environment that has it.",
    ),
    (
        "memory",
        "What a server holds",
        "Memory of the server's process, which knows all of its devices: when it has begun, and at its most while 64 "
        "of them check in at once, again and again. [Capacity](capacity.md#memory) says what follows from it.",
    ),
    (
        "disk",
        "What a check-in leaves",
        "Bytes of a receipt on disk with its indexes, of 1,000 devices that check in at random. "
        "[Capacity](capacity.md#disk) says what follows from it.",
    ),
    (
        "restart",
        "A killed server",
        "From the start of its process to its first answer.",
    ),
    (
        "strangers",
        "Strangers",
        "What a device waits while somebody else asks for documents as fast as possible.",
    ),
    (
        "samplers",
        "Exact noise on a device",
        "Draws from the operating system's entropy. A rounded Gaussian draw takes one word of 64 bits, and a second in "
        "fewer than one of 10¹² draws; floating point decides all but some ten of a hundred million at the largest of "
        "these scales, and integers the rest. Half of what a discrete Gaussian draw costs, which shares of secure sums "
        "use, is entropy: some 13 words. From a standard deviation of 39,000 levels on its numbers do not fit into "
        "machine words, and it is half as fast.",
    ),
    (
        "ledger",
        "The ledger of a device",
        "Charging before sending, and opening.",
    ),
    (
        "admm",
        "Local solves of ADMM",
        "Several threads would wait for each other in such small products: devices keep BLAS to one.",
    ),
    (
        "secagg",
        "Secure aggregation",
        "All that a device does in one sum, and the server's part, beside Flower's SecAgg+ functions. A sum is "
        "exact; the peer's values are rounded, and its masks come from seeds that are folded into 32 bits.",
    ),
    (
        "secagg-live",
        "Secure aggregation over HTTP",
        "Nearly all of the time is waiting for devices that say nothing.",
    ),
    (
        "slicing",
        "Sliced nets",
        "A net that is cut into pieces beside the same net as a whole.",
    ),
    (
        "slice-relay",
        "Sliced nets between processes",
        "What a frame costs the relay beside a bare WebSocket echo of the same frames; batches a second beside what "
        "hops allow, every member 25 ms away; bytes beside the computed ones with their headers and seals; the share "
        "of encryption in what members do.",
    ),
    (
        "slice-losses",
        "Losses of a sliced group",
        "By the clock, from a loss to the next batch and to where the group was, every member 25 ms away, a cut "
        "every five batches. A batch that takes five seconds makes owners say whom they wait for; who has not answered "
        "in two seconds is lost. Then batches that stay with one loss a minute beside those of an undisturbed group, "
        "and batches a second of eight processes without any latency.",
    ),
    (
        "store",
        "The store",
        "Receipts and versions, in SQLite.",
    ),
)
"""Name of the record, heading, and what the figures are."""


def speed_page(records: Path = RECORDS) -> str:
    """Put all records on one page, in the order of the sections; what nobody has recorded is not there."""
    parts = [GENERATED, "# Speed", INTRODUCTION]
    for name, heading, words in SECTIONS:
        path = records / f"{name}.json"
        if path.exists():
            parts += [
                f"## {heading}",
                textwrap.fill(words, 120, break_on_hyphens=False, break_long_words=False),
                _block(json.loads(path.read_text(encoding="utf-8"))),
            ]
    return "\n\n".join(parts) + "\n"


def _block(kept: dict[str, object]) -> str:
    output = str(kept["output"]).rstrip()
    told = f"{kept['date']}, commit {kept['commit']}, {kept['cores']} cores, load {kept['load']} before it began"
    return f"```console\n$ {kept['command']}\n{output}\n```\n\n*{told}.*"
