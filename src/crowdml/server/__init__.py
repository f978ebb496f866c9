"""The server driver: stores, folds and serves live tasks."""
