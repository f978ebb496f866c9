"""Audits: what an attacker can really read, beside what is proven."""

from crowdml.studies.audit.slicenet import Audit as Audit
from crowdml.studies.audit.slicenet import Reading as Reading
from crowdml.studies.audit.slicenet import audit as audit
