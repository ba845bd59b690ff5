"""The paper's figures and tables as data, the numbers known for them, and the measuring and comparing of both."""
