"""Audit: attacks on what a task promises, and on tasks that promise nothing.

`run` chooses the attack by what the task is; each attack is a file.
"""

from crowdml.audit.auditing import Options as Options
from crowdml.audit.auditing import run as run
