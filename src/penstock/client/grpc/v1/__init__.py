"""`penstock.v1`: the service of Penstock servers."""
