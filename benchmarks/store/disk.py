"""What check-ins take on disk for good: bytes per receipt with its indexes, in either database.

    python benchmarks/store/disk.py [--receipts 100000] [--devices 1000]

A database is filled twice with so many; what the second half added is measured. Receipts are
never deleted: whoever sends a check-in again, after however long, gets the receipt it has.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import psycopg

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))
from bench import Crowd

from crowdml.server.store import open_store
from tests.support.postgres import Postgres

BATCH = 250


def added(url: str, given: argparse.Namespace, size: Callable[[], int]) -> float:
    """Return how many bytes a receipt adds to a database."""
    with open_store(url) as store:
        crowd = Crowd(store, given)
    sizes = []
    for _ in range(2):
        with open_store(url) as store:
            for _ in range(given.receipts // BATCH):
                store.apply(crowd.batch(BATCH))
        # Closed, so that SQLite has emptied its log into the file.
        sizes.append(size())
    return float((sizes[1] - sizes[0]) / given.receipts)


def of_file(path: Path) -> int:
    """Return the size of an SQLite file."""
    return path.stat().st_size


def of_table(url: str) -> int:
    """Return the size of PostgreSQL's table of receipts, with its indexes."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT pg_total_relation_size('receipts')").fetchone()
    return int(found[0]) if found else 0


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--receipts", type=int, default=100_000)
    parser.add_argument("--devices", type=int, default=1000)
    given = parser.parse_args()
    given.state_bytes, given.random_keys = 2048, False
    print("database     bytes per receipt")
    with tempfile.TemporaryDirectory(prefix="crowdml-disk-") as folder:
        path = Path(folder) / "crowd.sqlite"
        print(f"{'SQLite':12} {added(f'sqlite:///{path}', given, lambda: of_file(path)):18.0f}", flush=True)
    place = Path(tempfile.mkdtemp(prefix="crowdml-pg-"))
    database = Postgres(place)
    try:
        url = database.database()
        print(f"{'PostgreSQL':12} {added(url, given, lambda: of_table(url)):18.0f}", flush=True)
    finally:
        database.stop("immediate")
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
