"""`python bench/compare`: the tables of every driver."""

import harness
import store
import transfer

if __name__ == "__main__":
    harness.command([transfer, store], "Compares with what users can install today, side by side.")
