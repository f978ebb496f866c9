"""The catalogue: every dataset that a task file can name."""

from __future__ import annotations

import dataclasses

from crowdml.core.registry import Registry
from crowdml.data import checksums
from crowdml.data.loaders import activity, adult, adult_schema, cifar10, digits, idx
from crowdml.data.sources import Source

DIGITS = Source(
    name="digits",
    description="Small handwritten digits that come with scikit-learn",
    licence="CC BY 4.0 (UCI)",
    citation="Alpaydin and Kaynak 1998",
    homepage="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    rows=(1400, 397),
    features=64,
    shape=(8, 8, 1),
    label_names=idx.DIGITS,
    folder="digits",
    forms=(),
    load=digits.load,
    home=digits.home,
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
    label_names=idx.DIGITS,
    folder="mnist",
    forms=checksums.MNIST,
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
    label_names=idx.CLOTHES,
    folder="fashion-mnist",
    forms=checksums.FASHION_MNIST,
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
    label_names=cifar10.LABELS,
    folder="cifar10",
    forms=checksums.CIFAR10,
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
    label_names=adult_schema.LABELS,
    folder="adult",
    forms=checksums.ADULT,
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
    label_names=activity.LABELS,
    folder="activity",
    forms=checksums.TMD,
    load=activity.load_tmd,
)
ACTIVITY_SLOTS = dataclasses.replace(
    ACTIVITY,
    name="activity-slots",
    description="The same recordings, one window per half minute",
    rows=(1427, 756),
    load=activity.load_tmd_slots,
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
    label_names=activity.LABELS[:2],
    folder="activity",
    forms=checksums.HAPT,
    load=activity.load_hapt,
)

DATASETS: Registry[Source] = Registry(
    "dataset",
    {
        source.name: source
        for source in (DIGITS, MNIST, FASHION_MNIST, CIFAR10, ADULT, ACTIVITY, ACTIVITY_SLOTS, ACTIVITY_HAPT)
    },
)
