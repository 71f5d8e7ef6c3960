"""Names: what a head, a writer or a channel responds to, in words that hold or fail on texts it was not found on.

A *signal* gives every cell of every text a number. Cells where it is strong and cells where it is not are described by
a *rule* made of plain predicates about the two tokens and their relation; the rule is the name. It is found on one
half of the texts and tested on the other.
"""
