"""Groups whose members hold pieces of one net: who sits where, and what the relay is told."""
