"""The subcommands of `cohost`, one module per topic; cohost/cli.py imports only the module of the called command."""
