"""What stops a file and can be put right in memory, one repair per file."""
