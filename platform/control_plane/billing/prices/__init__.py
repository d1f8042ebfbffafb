"""What tokens and storage cost: versions of a price list, and exact arithmetic with them."""
