"""Data: named datasets, transforms of their rows, and partitions over a crowd."""

from crowdml.data.catalogue import DATASETS as DATASETS
from crowdml.data.dataset import Dataset as Dataset
from crowdml.data.dataset import resplit as resplit
from crowdml.data.download import get as get
from crowdml.data.files import load as load
from crowdml.data.files import locate as locate
from crowdml.data.files import verify as verify
from crowdml.data.partitions import PARTITIONS as PARTITIONS
from crowdml.data.partitions import Partition as Partition
from crowdml.data.sources import Source as Source
from crowdml.data.transforms import TRANSFORMS as TRANSFORMS
from crowdml.data.transforms import Fitted as Fitted
from crowdml.data.transforms import Transform as Transform
from crowdml.data.transforms import apply_all as apply_all
from crowdml.data.transforms import fit_all as fit_all
from crowdml.data.transforms import input_bound as input_bound
