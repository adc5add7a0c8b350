"""Attribution: who is to blame for each observation, and the account that sums it up."""
