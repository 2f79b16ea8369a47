"""Proofs that no schedule is shorter: asking a proof-producing solver, and cutting its log down to what is used."""
