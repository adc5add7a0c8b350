"""Knowledge: what names and numbers of other people's software and hardware mean, as tables."""
