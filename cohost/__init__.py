"""The core of lmi-cohost, without CDK: catalog, archives, routing, client, command line."""
