"""What runs in a worker process, and in the process that workers are forked from. Nothing here serves HTTP."""
