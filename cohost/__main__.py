"""Run the `cohost` command as `python -m cohost`."""

from cohost.cli import main

if __name__ == "__main__":
    main()
