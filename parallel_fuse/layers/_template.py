"""Layers that say what a lane is by a layer like it."""

from types import SimpleNamespace
from typing import Any

import keras


class OfTemplate(keras.layers.Layer):
    """A layer for M lanes that are each as a template is.

    Args:
        template: a layer, or its serialised form.
        count: M.
        shared: all lanes read one tensor, which has no lane axis.
    """

    def __init__(self, template: Any, count: int, shared: bool = False, **kwargs):
        super().__init__(**kwargs)
        if not isinstance(template, keras.layers.Layer):
            template = keras.saving.deserialize_keras_object(template)
        # In a namespace, out of the sight of Keras: its weights, if any, are those of no lane.
        self.hidden = SimpleNamespace(template=template)
        self.count = count
        self.shared = shared

    @property
    def template(self) -> keras.layers.Layer:
        return self.hidden.template

    def get_config(self):
        template = keras.saving.serialize_keras_object(self.template)
        own = {"template": template, "count": self.count, "shared": self.shared}
        return {**super().get_config(), **own}
