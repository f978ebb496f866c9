"""Partitions: how the training rows are spread over the devices of a simulated crowd."""

from __future__ import annotations

from crowdml.core.registry import Registry
from crowdml.data.partitions.base import Partition as Partition
from crowdml.data.partitions.dirichlet import Dirichlet as Dirichlet
from crowdml.data.partitions.iid import Iid as Iid
from crowdml.data.partitions.shards import Shards as Shards
from crowdml.data.partitions.unbalanced import Unbalanced as Unbalanced
from crowdml.data.partitions.writer import Writer as Writer

PARTITIONS: Registry[type[Partition]] = Registry(
    "partition",
    {"iid": Iid, "shards": Shards, "dirichlet": Dirichlet, "unbalanced": Unbalanced, "writer": Writer},
)
