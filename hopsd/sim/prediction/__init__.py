"""What a daemon would predict during a simulation, beside what comes true."""
