"""Parts: a run cut up for a batch scheduler. Each part is a file; all together they are the run, to the last bit.

Replicas (a cell and a trial each) are dealt out in turn, over all groups of cells that are compiled together, so that
parts are as long as each other. A part holds the last states of its replicas and what was measured; putting them
together makes the checkpoint that the whole run would have left at its end. What leaves no checkpoint (runs in NumPy,
batch training, sliced nets) is run when parts are put together.
"""
