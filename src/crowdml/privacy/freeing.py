"""Freeing: what a task counts for against the owner's cap, while it runs and after it has ended.

An open task counts with its whole promise (ε, δ). One that has ended in public counts with less, if fewer releases
were made than its terms allow. How much less is not what the ledger says was *spent*: a server sees every release and
may end a task just when the device had bad luck, and "ε after k releases at δ" holds for a k that was fixed before,
not for one that was chosen by what came out. (Added up over many releases, such a server makes δ several times too
large; a test works it out.) What can be proven:

Let x_i be how far the privacy loss L_i of task i passes what it counts for, r_i. If Σr_i ≤ ε on every course of
events,

    δ ≤ E[1 - e^-(Σx_i)⁺] ≤ Σ E[1 - e^-(x_i⁺)],                     since 1 - Πa ≤ Σ(1 - a) for a in [0, 1]

so tasks add up, however they interleave and whoever chooses them, if each E[1 - e^-(x_i⁺)] is at most the δ it counts
for; L_i is the sum over its own releases, and its moments, taken release by release given all that came before, are
those of `accounting`. Let K be the number of releases at the end. It is known to whoever sees them, and so is r_i:

- No release: nothing was said, and the sums may begin with the first release. The task counts for nothing.
- Pure releases: L_i ≤ K·ε₀ on every course of events, so x_i = 0 for r_i = K·ε₀.
- Gaussian releases: marks are set beforehand, at a sixteenth, an eighth, a quarter and a half of all uses. Up to the
  mark at k releases the loss passes ε_k, the ε of k releases at δ/4, by no more than δ/4 in all, wherever the end is
  chosen before it: moments up to such an end are at most those of k releases. A task whose end comes before a mark
  counts with the ε of the first mark that it did not pass, otherwise with the whole. The four marks and the whole
  promise pass what they count for by 4·δ/4 + δ = 2δ together. So such a task counts with 2δ from the beginning, and
  goes on doing so: δ that was given back after a release could be spent again and again by ending tasks that went
  well.

For samples, K is the number of the device's releases, and no sample was in more. How often the most used sample
really was used depends on the rows, and a cap that went by it would tell.

Whether there is anything to free must not depend on the rows either: the end must be public, announced by the server
(its operator stopped the task, all versions are made, the error that it estimates from noisy counts fell: all of it
is computed from what devices have released) or reached by the number of releases in the terms. A server that
announces an end to one device alone, or too early, acts on what it has seen, which the argument allows for. A device
that stops for a reason of its own (its owner withdrew) frees nothing. Nothing can be charged to a closed task.
"""

from __future__ import annotations

from crowdml.privacy.accounting import Event, Filter
from crowdml.privacy.promise import Promise

MARKS = (16, 8, 4, 2)
"""Parts of all uses at which marks are set."""


def counted(limit: Filter) -> Promise:
    """Return what a task counts for while it is open."""
    return Promise(epsilon=limit.epsilon, delta=limit.delta if limit.kind == "pure" else 2 * limit.delta)


def counted_after(limit: Filter, event: Event, uses: int, made: int) -> Promise:
    """Return what a task counts for that has ended in public.

    Args:
        limit: Its promise, and the sum that enforced it.
        event: What one use costs.
        uses: Uses that its terms allow.
        made: Uses that the device's releases count for, whoever was in them.

    >>> counted_after(Filter(kind="pure", epsilon=2.0, delta=0.0), Event.of_pure(0.5), 4, 1)
    Promise(epsilon=0.5, delta=0.0)
    """
    if made == 0:
        return Promise(epsilon=0.0)
    whole = counted(limit)
    possible = [whole.epsilon, event.times(made).pure]
    if limit.kind != "pure":
        passed = [uses // part for part in MARKS if uses // part >= made]
        possible += [event.times(mark).promise(limit.delta / len(MARKS)).epsilon for mark in passed]
    return Promise(epsilon=min(possible), delta=whole.delta)
