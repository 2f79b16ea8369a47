"""The search over what a schedule may choose beside its order: recompute, fused backwards, overlapped pairs."""
