"""Which calls are alike, and who stands side by side with whom."""
