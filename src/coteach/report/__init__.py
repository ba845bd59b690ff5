"""What people look at: the terminal, figures and tables."""
