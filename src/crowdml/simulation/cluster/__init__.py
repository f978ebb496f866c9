"""Workers of a Ray cluster: trials, cells and curves on other machines, in the same frames as on this one.

this process ── frames as bytes ─────────────► actor, one per processor: JAX, programs, state
             ── rows, once per node, by the object store ─►
             ◄─ measurements after each chunk, and the end ─

Ray is imported when a cluster is asked for, and by nobody else. It carries bytes: nothing of ours is pickled.
"""
