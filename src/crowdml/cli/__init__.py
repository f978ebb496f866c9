"""The command line. Each command lives in a file of its own and imports what it needs when it is called."""

from crowdml.cli.app import main as main
