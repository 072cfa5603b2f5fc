"""How instances exchange gradients and weights: the ways of the source, behind one interface. Knows no data sets."""
