"""The least IAM policies for deploys with this project, derived from the template and from the commands' calls."""
