"""Models: layers with explicit per-example backward, losses, and the kinds a task file may name."""

from crowdml.models.kinds import MODELS as MODELS
from crowdml.models.kinds import ModelSettings as ModelSettings
from crowdml.models.kinds import Own as Own
from crowdml.models.model import FlatModel as FlatModel
from crowdml.models.model import Gradients as Gradients
from crowdml.models.model import Model as Model
from crowdml.models.model import Parameters as Parameters
from crowdml.models.model import build as build
from crowdml.models.model import flatten as flatten
