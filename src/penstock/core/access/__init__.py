"""Access: users, passwords, access list, revocation."""
