"""Readers of the datasets' files, one file per format family. They never unpickle anything."""
