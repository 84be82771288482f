"""Files and streams as columns: where bytes come from, which layout they have, what is wrong with a bad line, one writer."""
