"""`python -m parallel_fuse`, the same as `parallel-fuse`."""

from parallel_fuse.command.cli import main

main(prog_name="parallel-fuse")
