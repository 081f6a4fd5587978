"""The network above the nodes: leaf switches, blocks, and the switches that join them."""
