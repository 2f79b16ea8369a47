"""Print docs/rules.md."""

from bubbleproof.verify.rules import document

print(document(), end="")
