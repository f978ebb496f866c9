"""Several front ends on one PostgreSQL: one of them aggregates, the others answer devices and pass on the rest."""
