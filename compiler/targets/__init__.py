"""What code is made for: instruction sets, and CPUs as they are described."""
