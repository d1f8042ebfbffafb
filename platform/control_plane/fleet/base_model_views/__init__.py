"""What operators see of base models, and what an autoscaler reads of them."""
