"""Reports of usage and prices: monthly statements, the operator's report, CSV and exports."""
