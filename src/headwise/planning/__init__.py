"""What commands will take, before any of them is begun: time, memory and disk."""
