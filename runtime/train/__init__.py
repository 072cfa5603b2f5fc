"""Training at run time: data, instances and their gradients, checkpoints. Never needs the compiler."""
