"""For training loops of other people: two networks as one module, the rule as a loss, and the ledger."""

from coteach.loops.ledger import Ledger
from coteach.loops.pair import Pair
from coteach.loops.selection import Selection

__all__ = ["Ledger", "Pair", "Selection"]
