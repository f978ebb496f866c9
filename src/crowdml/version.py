"""The version of the package: a file of its own, so that whoever writes it down need not import the package's front."""

__version__ = "0.1.0"
