"""AlloX (EuroSys 2020), and the schedulers its paper compares it with."""
