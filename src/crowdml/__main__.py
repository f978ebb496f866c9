"""`python -m crowdml` is the same as `crowdml`."""

from crowdml.cli import main

if __name__ == "__main__":
    main()
