"""Results of load tests: raw samples on disk, the statistics made from them, and reports.

Needs numpy and Jinja2, which come with the dependency group `load`; a deploy imports only `formats`, which needs neither.
"""
