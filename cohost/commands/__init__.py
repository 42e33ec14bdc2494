"""The subcommands of `cohost`, one module for those that belong together; cohost/cli.py registers them."""
