"""Privacy: bounds, noise, what a release costs, and how costs add up."""

from crowdml.privacy.accounting import Event as Event
from crowdml.privacy.accounting import Filter as Filter
from crowdml.privacy.banded import Banded as Banded
from crowdml.privacy.given import GivenNoise as GivenNoise
from crowdml.privacy.limits import Acceptance as Acceptance
from crowdml.privacy.limits import acceptance as acceptance
from crowdml.privacy.meaning import require_delta as require_delta
from crowdml.privacy.mechanisms import MECHANISMS as MECHANISMS
from crowdml.privacy.mechanisms import add_noise as add_noise
from crowdml.privacy.mechanisms import clip_weights as clip_weights
from crowdml.privacy.plan import Inputs as Inputs
from crowdml.privacy.plan import Perturbs as Perturbs
from crowdml.privacy.plan import Plan as Plan
from crowdml.privacy.plan import make_plan as make_plan
from crowdml.privacy.promise import Promise as Promise
from crowdml.privacy.promise import Spent as Spent
from crowdml.privacy.promise import classical_scale as classical_scale
from crowdml.privacy.settings import PrivacySettings as PrivacySettings
from crowdml.privacy.sound import Sound as Sound
from crowdml.privacy.sound_plan import Releases as Releases
