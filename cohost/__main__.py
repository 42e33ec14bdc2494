"""`python -m cohost`: the same as the `cohost` command."""

from cohost.cli import main

if __name__ == "__main__":
    main()
