"""The catalogue: every dataset that a task file can name, with its files and public addresses.

Sizes and checksums stand in `checksums.txt`. A checksum is that of the authors' published file, or of a compact form
without loss made from it.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from crowdml.core.registry import Registry
from crowdml.core.targets import Labels
from crowdml.data.loaders import activity, adult, cifar10, embedded, idx
from crowdml.data.sources import Archive, File, Form, Source, Version

_LINES = (line.split() for line in Path(__file__).with_name("checksums.txt").read_text(encoding="ascii").splitlines())
PUBLISHED = {path: (int(size), sha256) for sha256, size, path in _LINES}
"""Size and checksum of each file whose bytes are known, by folder and name."""

MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
FASHION_MIRRORS = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",)
QMNIST_MIRRORS = ("https://raw.githubusercontent.com/facebookresearch/qmnist/master/",)
ADULT_MIRRORS = ("https://archive.ics.uci.edu/ml/machine-learning-databases/adult/",)
IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


def _file(folder: str, *paths: str, mirrors: tuple[str, ...] = (), optional: bool = False) -> File:
    """Describe a file in the version that mirrors offer, which comes first, and in others that may lie there."""
    versions = []
    for number, path in enumerate(paths):
        size, sha256 = PUBLISHED[f"{folder}/{path}"]
        urls = () if number else tuple(mirror + path for mirror in mirrors)
        versions.append(Version(path=path, size=size, sha256=sha256, urls=urls))
    return File(versions=tuple(versions), optional=optional)


def _form(name: str, folder: str, *paths: str, archive: Archive | None = None) -> Form:
    """Describe files that have one version each."""
    return Form(name=name, files=tuple(_file(folder, path) for path in paths), archive=archive)


def _unchecked(name: str, path: str) -> Form:
    """Describe a folder of files that is published without checksums."""
    return Form(name=name, files=(File(versions=(Version(path=path),)),))


def _idx_files(folder: str, mirrors: tuple[str, ...]) -> tuple[File, ...]:
    return tuple(_file(folder, f"{name}.gz", name, mirrors=mirrors) for name in IDX)


DIGITS = Source(
    name="digits",
    description="Small handwritten digits that come with scikit-learn",
    licence="CC BY 4.0 (UCI)",
    citation="Alpaydin and Kaynak 1998",
    homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    rows=(1400, 397),
    features=64,
    shape=(8, 8, 1),
    target=Labels(names=idx.DIGITS),
    folder="digits",
    forms=(),
    load=embedded.load_digits,
    home=embedded.home,
)
DIABETES = Source(
    name="diabetes",
    description="A number: how far diabetes goes on within a year, from ten measurements; comes with scikit-learn",
    licence="none stated, published with the paper",
    citation="Efron, Hastie, Johnstone, Tibshirani 2004",
    homepage="https://www4.stat.ncsu.edu/~boos/var.select/diabetes.html",
    rows=(342, 100),
    features=10,
    shape=(10,),
    target=embedded.PROGRESSION,
    folder="diabetes",
    forms=(),
    load=embedded.load_diabetes,
    home=embedded.home,
)
MNIST = Source(
    name="mnist",
    description="Handwritten digits, with their writers if the QMNIST labels are there",
    licence="commonly given as CC BY-SA 3.0",
    citation="LeCun, Cortes, Burges 1998; writers: Yadav and Bottou 2019",
    homepage="http://yann.lecun.com/exdb/mnist/",
    rows=(60_000, 10_000),
    features=784,
    shape=(28, 28, 1),
    target=Labels(names=idx.DIGITS),
    folder="mnist",
    forms=(
        Form(
            name="idx",
            files=(
                *_idx_files("mnist", MNIST_MIRRORS),
                _file("mnist", f"{idx.WRITERS}.gz", idx.WRITERS, mirrors=QMNIST_MIRRORS, optional=True),
            ),
        ),
    ),
    load=idx.load_mnist,
)
FASHION_MNIST = Source(
    name="fashion-mnist",
    description="Grey pictures of clothing, in the shape of MNIST",
    licence="MIT",
    citation="Xiao, Rasul, Vollgraf 2017",
    homepage="https://github.com/zalandoresearch/fashion-mnist",
    rows=(60_000, 10_000),
    features=784,
    shape=(28, 28, 1),
    target=Labels(names=idx.CLOTHES),
    folder="fashion-mnist",
    forms=(Form(name="idx", files=_idx_files("fashion-mnist", FASHION_MIRRORS)),),
    load=idx.load_fashion_mnist,
)
CIFAR10 = Source(
    name="cifar10",
    description="Small colour photographs of animals and vehicles",
    licence="none stated, research use",
    citation="Krizhevsky 2009",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    rows=(50_000, 10_000),
    features=3072,
    shape=(32, 32, 3),
    target=Labels(names=cifar10.LABELS),
    folder="cifar10",
    forms=(
        _form(
            "binary",
            "cifar10",
            *(f"{batch}.bin" for batch in cifar10.BATCHES),
            archive=Archive(
                url="https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                size=170_052_171,
                folder="cifar-10-batches-bin",
            ),
        ),
        _form("mosaics", "cifar10", *(f"{batch}.webp" for batch in cifar10.BATCHES), "labels.npz"),
    ),
    load=cifar10.load,
)
ADULT = Source(
    name="adult",
    description="Census data: does a person earn more than 50000 dollars a year?",
    licence="CC BY 4.0 (UCI)",
    citation="Kohavi and Becker 1996",
    homepage="https://archive.ics.uci.edu/dataset/2/adult",
    rows=(30_162, 15_060),
    features=104,
    shape=(104,),
    target=Labels(names=adult.LABELS),
    folder="adult",
    forms=(
        Form(
            name="text",
            files=tuple(
                _file("adult", name, f"{name}.gz", mirrors=ADULT_MIRRORS) for name in ("adult.data", "adult.test")
            ),
        ),
    ),
    load=adult.load,
)
ACTIVITY = Source(
    name="activity",
    description="Accelerometer of phones: still, on foot or in a vehicle (TMD)",
    licence="MIT",
    citation="Carpineti, Lomonaco, Bedogni, Di Felice, Bononi 2018",
    homepage="https://github.com/vlomonaco/US-TransportationMode",
    rows=(9552, 4927),
    features=64,
    shape=(64,),
    target=Labels(names=activity.LABELS),
    folder="activity",
    forms=(_form("archive", "activity", "activity_tmd.npz"), _unchecked("csv", "raw_data")),
    load=activity.load_tmd,
)
ACTIVITY_SLOTS = dataclasses.replace(
    ACTIVITY,
    name="activity-slots",
    description="The same recordings, one window per half minute",
    rows=(1427, 756),
    load=activity.load_tmd_slots,
)
ACTIVITY_CHANGES = dataclasses.replace(
    ACTIVITY_SLOTS,
    name="activity-changes",
    description="The same half minutes, for training only those in which the label has changed",
    rows=(37, 756),
    load=activity.load_tmd_changes,
)
ACTIVITY_HAPT = Source(
    name="activity-hapt",
    description="Accelerometer of phones at the waist: still or on foot (HAPT)",
    licence="no commercial use",
    citation="Reyes-Ortiz, Oneto, Sama, Parra, Anguita 2015",
    homepage="https://archive.ics.uci.edu/dataset/341/"
    "smartphone+based+recognition+of+human+activities+and+postural+transitions",
    rows=(2867, 1384),
    features=64,
    shape=(64,),
    target=Labels(names=activity.LABELS[:2]),
    folder="activity",
    forms=(_form("archive", "activity", "activity_hapt.npz"), _unchecked("text", "RawData/labels.txt")),
    load=activity.load_hapt,
)

DATASETS: Registry[Source] = Registry(
    "dataset",
    {
        source.name: source
        for source in (
            DIGITS,
            MNIST,
            FASHION_MNIST,
            CIFAR10,
            ADULT,
            ACTIVITY,
            ACTIVITY_SLOTS,
            ACTIVITY_CHANGES,
            ACTIVITY_HAPT,
            DIABETES,
        )
    },
)
