"""What is made of usage and prices: monthly statements, the operator's report, CSV."""
