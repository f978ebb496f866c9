"""What a server keeps for its operator: the token, sessions of browsers, and what was refused."""
