"""Files in, files out: read, fuse, write in a format, prove what was written; one or many."""
