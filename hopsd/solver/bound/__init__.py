"""Upper bounds: dual prices, cuts, reduced costs and branching."""
