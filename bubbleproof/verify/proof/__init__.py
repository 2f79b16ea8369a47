"""Proofs that no schedule of an instance is shorter than some length, and their checker; see docs/proofs.md."""

from __future__ import annotations

from bubbleproof.verify.proof.check import PROOF_FORMAT, ProofVerdict, check_proof, claimed_length, header
from bubbleproof.verify.proof.model import Constraint, Disjunctive, Linear, Model, build
from bubbleproof.verify.proof.ops import Unmodelled

__all__ = [
    "PROOF_FORMAT",
    "Constraint",
    "Disjunctive",
    "Linear",
    "Model",
    "ProofVerdict",
    "Unmodelled",
    "build",
    "check_proof",
    "claimed_length",
    "header",
]
