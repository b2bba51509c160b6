"""TensorFlow graphs, as a SavedModel holds them, translated to functional Keras models."""
