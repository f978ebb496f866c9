"""Live slices: the two machines of a group whose members hold pieces of one net, without any input or output."""
