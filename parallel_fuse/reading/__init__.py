"""Model files in: each format read, what stops the installed Keras repaired in memory and told."""
