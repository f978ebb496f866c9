"""How tables change from one release to the next. A migration is never changed after it was released."""
