"""The intermediate representation: types, graph, text form, verifier, operator catalogue, kernel IR, machine facts."""
