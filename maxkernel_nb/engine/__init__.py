"""What drives a run: the loop thread, durable steps, the fold over events, and the kernel bound at the end."""
