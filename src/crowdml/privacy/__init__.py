"""Privacy: bounds, noise, what a release costs, and how costs add up."""

from crowdml.privacy.accounting import Event as Event
from crowdml.privacy.accounting import Filter as Filter
from crowdml.privacy.accounting import Terms as Terms
from crowdml.privacy.accounting import require_delta as require_delta
from crowdml.privacy.calibration.modes import make_plan as make_plan
from crowdml.privacy.cost import Cost as Cost
from crowdml.privacy.cost import Figure as Figure
from crowdml.privacy.cost import figure as figure
from crowdml.privacy.noise.laws import MECHANISMS as MECHANISMS
from crowdml.privacy.plan import Plan as Plan
from crowdml.privacy.promise import Promise as Promise
from crowdml.privacy.promise import classical_scale as classical_scale
from crowdml.privacy.releases import ModelBounds as ModelBounds
from crowdml.privacy.releases import Releases as Releases
from crowdml.privacy.releases import Steps as Steps
from crowdml.privacy.settings import MODES as MODES
from crowdml.privacy.settings import PrivacySettings as PrivacySettings
