"""Whether two models compute the same. Knows only Keras models, nothing of the rewriter."""
