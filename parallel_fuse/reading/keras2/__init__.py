"""Models as Keras 1 and 2 wrote them, built again call by call with the layers of Keras 3."""
