"""What the page is made from: its template and its style."""
