"""Sanitisers, one file per kind: what leaves a device, and what protects it, can be read here."""

from crowdml.privacy.sanitisers.base import Sanitiser as Sanitiser
from crowdml.privacy.sanitisers.base import Use as Use
from crowdml.privacy.sanitisers.local_work import LocalWork as LocalWork
from crowdml.privacy.sanitisers.local_work import Objective as Objective
from crowdml.privacy.sanitisers.local_work import Walk as Walk
