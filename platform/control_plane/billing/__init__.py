"""What is counted, limited, priced and reported."""
