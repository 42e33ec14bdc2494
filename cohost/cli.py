"""The `cohost` command."""


def main() -> None:
    """Run the command."""
