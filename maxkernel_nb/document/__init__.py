"""What a person sees of a run, as data: one model that text, HTML and the panel render."""
