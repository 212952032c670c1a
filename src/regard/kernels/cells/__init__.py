"""What a recurrent cell does beside its matrix products, a kernel a step, and whole layers made of them."""
