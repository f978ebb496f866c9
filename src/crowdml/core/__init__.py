"""The vocabulary every other part is written in: records, trees, ops, coins, errors, settings."""

from crowdml.core.coins import Coins as Coins
from crowdml.core.coins import GridCoins as GridCoins
from crowdml.core.errors import BadInput as BadInput
from crowdml.core.errors import CrowdError as CrowdError
from crowdml.core.graphs import Graph as Graph
from crowdml.core.graphs import Value as Value
from crowdml.core.ops import NUMPY as NUMPY
from crowdml.core.ops import Array as Array
from crowdml.core.ops import Ops as Ops
from crowdml.core.records import Batch as Batch
from crowdml.core.records import record as record
from crowdml.core.records import tree_record as tree_record
from crowdml.core.registry import Registry as Registry
from crowdml.core.settings import Settings as Settings
