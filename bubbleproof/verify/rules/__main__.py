"""Print docs/rules.md."""

from bubbleproof.verify.rules.catalogue import document

print(document(), end="")
