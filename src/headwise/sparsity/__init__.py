"""How few channels carry the attention of a task's heads, beside directions that are not singular."""
