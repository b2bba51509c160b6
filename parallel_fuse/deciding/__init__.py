"""Which bundles pay, by which lowering, and in which order they can be emitted."""
