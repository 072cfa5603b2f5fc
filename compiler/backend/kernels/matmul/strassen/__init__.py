"""Products by Strassen's algorithm in Winograd's form."""
