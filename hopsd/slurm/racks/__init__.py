"""What is above the nodes: leaf switches, blocks, and what joins them."""
