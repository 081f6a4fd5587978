"""Where jobs could run: shapes, configurations and the integer program over them."""
