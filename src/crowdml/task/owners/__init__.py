"""What owners are told of a task: one record, `owner_promise`, behind command line, pages and exported models."""

from crowdml.task.owners.owner_promise import OwnerPromise as OwnerPromise
from crowdml.task.owners.owner_promise import owner_promise as owner_promise
