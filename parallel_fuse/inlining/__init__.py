"""Opening layers that loop over layers of their own, so that their branches are seen."""
