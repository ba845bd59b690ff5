"""Which labels of your own data are wrong: what `coteach audit` reads, trains and writes. Cheap to import."""
