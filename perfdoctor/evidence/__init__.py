"""Evidence: what is measured from a recording beside the account, for findings and reports."""
