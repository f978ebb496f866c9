"""Worker processes: one per core, started once, that run compiled programs for the process that prepares a run.

this process ── frames over a socket: task, replicas, check-ins ─► worker: JAX, programs, state
             ── rows in shared memory ────────────────────────────►
             ◄─ measurements after each chunk, and the end ───────
"""
