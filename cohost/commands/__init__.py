"""The subcommands of `cohost`, one module for those that belong together; cohost/cli.py imports what is called."""
