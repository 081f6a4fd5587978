"""Upper bounds: dual prices, cuts and reduced costs."""
