"""Files and streams as columns: sources, layouts, what is wrong with a bad line, and one writer."""
