"""One run as many jobs of a batch scheduler: `--shard`, and `crowdml merge`."""
