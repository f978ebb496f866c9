"""The operator's pages: sign in, make tasks, open and end them, invite and revoke devices, look after the server."""
