"""The replay: clones of what stays, bundles emitted as one layer, the model around them."""
