"""The timeline: who reads which version and who checks in when, worked out before any number is known."""

from crowdml.simulation.timeline.contacts import Contacts as Contacts
from crowdml.simulation.timeline.timeline import Timeline as Timeline
from crowdml.simulation.timeline.timeline import make_timeline as make_timeline
from crowdml.simulation.timeline.trial_crowd import TrialSplit as TrialSplit
from crowdml.simulation.timeline.trial_crowd import trial_split as trial_split
