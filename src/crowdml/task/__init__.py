"""Task files: read, checked, explained, and made ready for simulation and for live use."""

from crowdml.task.task import Task as Task
from crowdml.task.task_file import load as load
from crowdml.task.task_file import parse as parse
