"""Slicing: one model cut over several devices, each of which does a part of the arithmetic of every example."""

from crowdml.slicing.cost_graph import DOMINATOR as DOMINATOR
from crowdml.slicing.cost_graph import CostGraph as CostGraph
from crowdml.slicing.cost_graph import cost_graph as cost_graph
from crowdml.slicing.costs import Costs as Costs
from crowdml.slicing.costs import costs as costs
from crowdml.slicing.sliced_net import SlicedNet as SlicedNet
from crowdml.slicing.sliced_net import batch_gradients as batch_gradients
from crowdml.slicing.sliced_net import sliced_net as sliced_net
from crowdml.slicing.slicers import SLICERS as SLICERS
from crowdml.slicing.slicers import cut as cut
