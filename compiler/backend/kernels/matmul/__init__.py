"""Matrix products: shapes, blocking, packing, the loops around the register tile."""
