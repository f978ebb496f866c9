"""A server put together: its application, its options and certificates, its socket."""
