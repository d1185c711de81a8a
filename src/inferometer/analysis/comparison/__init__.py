"""Machines, months, engines and precisions side by side, from stores and published studies alike (pure)."""
