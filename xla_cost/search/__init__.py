"""Which mesh, plan and placement is fastest: enumerate, prune, lower, price, rank."""
