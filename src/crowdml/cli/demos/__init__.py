"""Demonstrations: a whole crowd on this machine, of processes or with your own phone among them."""
