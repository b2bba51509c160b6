"""The forms in which a model lies on disk, one file each."""
